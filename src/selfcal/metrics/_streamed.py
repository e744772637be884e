"""Intervals, noise floor and risk-coverage curve from sums over rows: closed forms and draws per bin, not per row."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from selfcal._support.binning import Bins, effective_counts, gap_norm
from selfcal._support.checks import Float
from selfcal.metrics._claims import N_CELLS, thresholds
from selfcal.metrics.bootstrap import interval_of_bins
from selfcal.metrics.calibration import NoiseFloor
from selfcal.metrics.intervals import Interval, student_interval, wilson_interval
from selfcal.metrics.selective import RiskCoverageCurve
from selfcal.metrics.significance import CalibrationTest, brownian_range_tail, standardised

STEP = 32
"""Cells between two thresholds for which the confusion matrix is kept."""
N_STEPS = N_CELLS // STEP
MOST_CONFUSED = 10
"""Maximum number of classes for which the confusion matrix is kept."""

N_RESAMPLES = 2000


def score_squares(values: Float, weight: Float | None) -> Float:
    """The sums of the values and of their squares, with squared weights."""
    if weight is None:
        return np.array([values.sum(), dot(values, values)])
    return np.array([dot(weight**2, values), dot(weight * values, weight * values)])


def dot(first: Float, second: Float) -> float:
    """The inner product in one thread: BLAS would start more, which cost more than they gain and change the bits."""
    return float(np.einsum("n,n->", first, second))


def intervals(
    sums: Mapping[str, Float], bins: Bins, means: Mapping[str, float], level: float, seed: int
) -> dict[str, Interval]:
    """The intervals of `calibration_error_interval` and `score_interval`, from sums."""
    weight, squared = bins.weight.sum(), float(sums["top_label"][2].sum())
    n = float(weight**2 / squared) if squared > 0 else float(bins.count.sum())
    low, high = wilson_interval(bins.mean_accuracy, n, level=level)
    found = {
        "accuracy": Interval(bins.mean_accuracy, float(low), float(high), level),
        "ece": interval_of_bins(
            bins,
            sums["claim_squares"][0],
            round(n),
            norm="l1",
            level=level,
            n_resamples=N_RESAMPLES,
            seed=seed,
        ),
    }
    for (name, mean), (first, second) in zip(means.items(), sums["score_squares"], strict=True):
        error, freedom = math.inf, 0.0
        if n >= 1 + 1e-9:
            around = max(0.0, float(second - 2 * mean * first + mean**2 * squared))
            error, freedom = math.sqrt(around / weight**2 * n / (n - 1)), n - 1
        found[name] = student_interval(mean, error, freedom, level=level, bounds=(0.0, math.inf))
    return found


def noise_floor(sums: Mapping[str, Float], bins: Bins, seed: int) -> NoiseFloor:
    """The noise floor with normal gaps of the exact variance, which a bin of dozens of rows makes accurate."""
    spread = gap_spread(sums, bins)
    gaps = np.random.default_rng(seed).normal(size=(N_RESAMPLES, len(spread))) * spread
    errors = gap_norm(bins.share, gaps, "l1")
    low, high = np.quantile(errors, [0.05, 0.95]).tolist()
    return NoiseFloor(mean=float(bins.share @ spread) * math.sqrt(2 / math.pi), low=low, high=high)


def gap_spread(sums: Mapping[str, Float], bins: Bins) -> Float:
    """The standard deviation of the gap of each bin if the confidences are calibrated; 0 for empty bins."""
    filled = bins.weight > 0
    return np.where(filled, np.sqrt(sums["claim_squares"][1]) / np.where(filled, bins.weight, 1.0), 0.0)


def curve(sums: Mapping[str, Float]) -> RiskCoverageCurve:
    """The risk-coverage curve at the thresholds of the cells that have rows."""
    filled = np.flatnonzero(sums["histogram"][0])
    weight, count, squared, _, correct = np.cumsum(sums["histogram"][:, filled], axis=1)
    return RiskCoverageCurve(
        thresholds=thresholds()[filled],
        coverage=weight / weight[-1],
        risk=np.clip((weight - correct) / weight, 0.0, 1.0),
        effective_count=effective_counts(weight, squared, count),
    )


def kuiper(
    sums: Mapping[str, Float], tail: Callable[[float], float] = brownian_range_tail
) -> CalibrationTest:
    """The Kuiper test between the thresholds of the cells; with fewer places to look, it errs towards calibrated."""
    weight, _, _, confidence, correct = sums["histogram"]
    walk = np.append(0.0, np.cumsum((correct - confidence)[weight > 0]))
    statistic = standardised(float(np.ptp(walk)), float(sums["claim_squares"][1].sum()))
    return CalibrationTest(statistic, tail(statistic))
