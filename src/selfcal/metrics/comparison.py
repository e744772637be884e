"""Paired comparison of two models on the same rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.errors import DataError
from selfcal.metrics._rows import values_per_row
from selfcal.metrics.bootstrap import Metric, resampled_weights
from selfcal.metrics.intervals import (
    ROW_SCORES,
    Interval,
    RowScore,
    known_level,
    mean_and_error,
    mean_interval,
)


@dataclass(frozen=True)
class Comparison:
    """A metric of two models on the same rows.

    Attributes:
        metric: The name of the metric.
        n: Number of rows.
        a: The metric of the first model.
        b: The metric of the second.
        difference: a - b with its interval.
        p_value: Probability that equally good models would differ at least as much; in [0, 1].
    """

    metric: str
    n: int
    a: float
    b: float
    difference: Interval
    p_value: float

    def __str__(self) -> str:
        verdict = "the first is lower" if self.difference.value < 0 else "the first is higher"
        if 0 in self.difference:
            verdict = "no significant difference"
        return (
            f"{self.metric} on {self.n:,} rows: {self.a:.4f} and {self.b:.4f}, difference "
            f"{self.difference.value:+.4f} [{self.difference.low:+.4f}, {self.difference.high:+.4f}] "
            f"({self.difference.level:.0%}), p = {self.p_value:.2g}: {verdict}."
        )


def compare(
    y_true: ArrayLike,
    probs_a: ArrayLike,
    probs_b: ArrayLike,
    *,
    metric: RowScore | Metric = "log_loss",
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Comparison:
    """Compare two models on the same rows, which cancels the difficulty of the rows.

    A score that is a mean over rows, passed by name, is compared by a paired t-test of the differences per row. Any
    other metric is a function: both models are evaluated on the same resamples of the rows, the interval is that of
    the quantiles of their differences, and p is twice the smaller fraction of differences on one side of zero.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs_a: Probabilities of the first model.
        probs_b: Probabilities of the second.
        metric: "accuracy", "log_loss", "brier_score", or a function of `(y_true, probs, sample_weight=...)`.
        level: Confidence level.
        n_resamples: Number of resamples, for a function.
        seed: Seed of the draws, for a function.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        Both values, their difference with its interval, and its p-value.

    >>> y = [0, 1, 1, 0] * 20
    >>> sure, unsure = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]] * 20, [[0.6, 0.4], [0.4, 0.6]] * 40
    >>> found = compare(y, sure, unsure)
    >>> print(found.difference, found.p_value < 1e-6)
    -0.3132 [-0.3591, -0.2673] True

    Reference: Dietterich, Approximate Statistical Tests for Comparing Supervised Classification Learning Algorithms,
    Neural Computation 10 (1998).
    """
    known_level(level)
    models = [checks.probabilities(probs_a, "probs_a"), checks.probabilities(probs_b, "probs_b")]
    codes = checks.label_codes(y_true, models[0].shape[1], classes)
    n = checks.same_length(y_true=codes, probs_a=models[0], probs_b=models[1])
    if models[0].shape != models[1].shape:
        widths = " and ".join(str(p.shape[1]) for p in models)
        raise DataError(f"probs_a and probs_b must have the same classes; got {widths} columns.")
    weight = checks.sample_weights(sample_weight, n)
    if callable(metric):
        name = getattr(metric, "__name__", repr(metric))
        a, b = (metric(codes, probs, sample_weight=weight) for probs in models)
        draws = [
            metric(codes, models[0], sample_weight=drawn) - metric(codes, models[1], sample_weight=drawn)
            for drawn in resampled_weights(n, n_resamples, seed, weight)
        ]
        return Comparison(name, n, a, b, *_judged_by_draws(a - b, np.array(draws), level))
    checks.one_of("metric", metric, ROW_SCORES)
    per_row = [values_per_row(ROW_SCORES[metric], codes, probs, None) for probs in models]
    a, b = (float(np.average(values, weights=weight)) for values in per_row)
    return Comparison(metric, n, a, b, *_judged_by_rows(per_row[0] - per_row[1], weight, level))


def _judged_by_rows(differences: Float, weight: Float | None, level: float) -> tuple[Interval, float]:
    interval = mean_interval(differences, level=level, sample_weight=weight)
    mean, error, freedom = mean_and_error(differences, weight)
    t = abs(mean) / error if error else math.inf if mean else 0.0
    return interval, 2 * float(stdtr(freedom, -t)) if freedom else 1.0


def _judged_by_draws(value: float, draws: Float, level: float) -> tuple[Interval, float]:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    rarer = min(np.count_nonzero(draws <= 0), np.count_nonzero(draws >= 0))
    return Interval(value, float(low), float(high), level), min(1.0, 2 * (1 + rarer) / (1 + len(draws)))
