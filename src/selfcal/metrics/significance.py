"""Tests of the null hypothesis that a model is calibrated.

Each tests the confidence in the top label or, with `of_class`, P(y = that class). Only the labels are random: weights
are fixed, and a row of weight 2 is one observation that counts double, not two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc

from selfcal._support import checks
from selfcal._support.binning import Chunk, Closed, Norm, Strategy, bin_chunks, gap_norm
from selfcal._support.checks import Float
from selfcal.metrics._resampling import resampled_errors
from selfcal.metrics._rows import claims


@dataclass(frozen=True)
class CalibrationTest:
    """The result of a test: statistic and p-value.

    Attributes:
        statistic: The test statistic.
        p_value: Probability, for a calibrated model, of a statistic at least as large; in [0, 1].
    """

    statistic: float
    p_value: float


def consistency_test(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    of_class: Any = None,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    n_resamples: int = 1000,
    seed: int = 0,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> CalibrationTest:
    """Test by the binned calibration error, against label sets drawn from the confidences themselves.

    `p = (1 + number of label sets with an error at least as large) / (1 + n_resamples)`

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        of_class: The class whose probability is tested; the top label's if None.
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1", "l2" or "max", as in `confidence_calibration_error`.
        closed: "right" for bins (a, b], "left" for [a, b).
        n_resamples: Number of label sets; the smallest possible p-value is `1 / (1 + n_resamples)`.
        seed: Seed of the draws.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error and its p-value.

    >>> consistency_test([0, 1, 1, 0] * 20, [[0.9, 0.1], [0.1, 0.9]] * 40).p_value < 0.01
    True

    Reference: Broecker, Smith, Increasing the Reliability of Reliability Diagrams, Weather and Forecasting 22 (2007);
    Vaicenavicius et al., Evaluating Model Calibration in Classification, AISTATS 2019.
    """
    claimed = claims(y_true, probs, classes, sample_weight, of_class=of_class)
    bins = bin_chunks([claimed], n_bins=n_bins, strategy=strategy, closed=closed)
    error = float(gap_norm(bins.share, bins.gap, norm))
    resampled = resampled_errors(claimed, bins, norm=norm, n_resamples=n_resamples, seed=seed)
    return CalibrationTest(error, resampling_p_value(error, resampled))


def spiegelhalter_test(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    of_class: Any = None,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> CalibrationTest:
    """Test whether the Brier score equals its expectation under the confidences.

    `z = sum_i w_i (a_i - c_i)(1 - 2 c_i) / sqrt(sum_i w_i^2 (1 - 2 c_i)^2 c_i (1 - c_i))`, with c the confidence
    and a the correctness; z is standard normal for a calibrated model, positive for an over-confident one.
    For two classes the tests of the top label and of either class are the same.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        of_class: The class whose probability is tested; the top label's if None.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        z and its two-sided p-value.

    >>> test = spiegelhalter_test([0, 1, 1, 0] * 20, [[0.9, 0.1], [0.1, 0.9]] * 40)
    >>> round(test.statistic, 3), test.p_value < 1e-6
    (11.926, True)

    Reference: Spiegelhalter, Probabilistic Prediction in Patient Management and Clinical Trials, Stat. in Medicine 5
    (1986).
    """
    c, right, weight = claims(y_true, probs, classes, sample_weight, of_class=of_class)
    lever = (1 - 2 * c) * (1.0 if weight is None else checks.relative_weights(weight))
    z = standardised(float(lever @ (right - c)), float(lever**2 @ (c * (1 - c))))
    return CalibrationTest(z, float(erfc(abs(z) / math.sqrt(2))))


def kolmogorov_smirnov_test(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    of_class: Any = None,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> CalibrationTest:
    """Test by the largest cumulative surplus or deficit of hits, in order of confidence; needs no bins.

    `max_k |S_k| / sqrt(sum_i w_i^2 c_i (1 - c_i))` with `S_k = sum_{i <= k} w_i (a_i - c_i)` in the order of the
    confidences, which is for a calibrated model the largest absolute value of Brownian motion on [0, 1].
    Equal confidences enter together, so that the order of the rows does not matter; with few rows, or few different
    confidences, the p-value is a little too large.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        of_class: The class whose probability is tested; the top label's if None.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The normalised statistic and its asymptotic p-value.

    >>> test = kolmogorov_smirnov_test([0, 1, 1, 0] * 20, [[0.9, 0.1], [0.1, 0.9]] * 40)
    >>> round(test.statistic, 3), test.p_value < 1e-6
    (11.926, True)

    Reference: Arrieta-Ibarra, Gujral, Tannen, Tygert, Xu, Metrics of Calibration for Probabilistic Predictions, JMLR
    23 (2022).
    """
    return _cumulative_test(
        claims(y_true, probs, classes, sample_weight, of_class=of_class),
        lambda walk: max(walk.max(), -walk.min()),
        brownian_maximum_tail,
    )


def kuiper_test(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    of_class: Any = None,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> CalibrationTest:
    """Test by the largest surplus or deficit of hits in any range of confidences; needs no bins.

    `(max_k S_k - min_k S_k) / sqrt(sum_i w_i^2 c_i (1 - c_i))`, S as in `kolmogorov_smirnov_test` with S_0 = 0, which
    is for a calibrated model the range of Brownian motion on [0, 1]. It sees a model that is over-confident here and
    under-confident there better than the other. With few rows, or few different confidences, the p-value is a little
    too large.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        of_class: The class whose probability is tested; the top label's if None.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The normalised statistic and its asymptotic p-value.

    >>> test = kuiper_test([0, 1, 1, 0] * 20, [[0.9, 0.1], [0.1, 0.9]] * 40)
    >>> round(test.statistic, 3), test.p_value < 1e-6
    (11.926, True)

    Reference: Arrieta-Ibarra, Gujral, Tannen, Tygert, Xu, Metrics of Calibration for Probabilistic Predictions, JMLR
    23 (2022).
    """
    return _cumulative_test(
        claims(y_true, probs, classes, sample_weight, of_class=of_class),
        lambda walk: walk.max() - walk.min(),
        brownian_range_tail,
    )


def resampling_p_value(measured: float, resampled: Float) -> float:
    """Return the p-value of the measured error, which is counted as one of the resamples."""
    ties = 1e-12 * max(1.0, abs(measured))
    return float((1 + np.count_nonzero(resampled >= measured - ties)) / (1 + len(resampled)))


def brownian_maximum_tail(x: float) -> float:
    """Return P(max |W| > x) of Brownian motion W on [0, 1], by the series that converges fast at this x."""
    if x > 1:
        terms = [(-1) ** k * erfc((2 * k + 1) * x / math.sqrt(2)) for k in range(8)]
        return min(1.0, max(0.0, 2 * math.fsum(terms)))
    if x < 0.1:
        return 1.0
    odd = np.arange(1, 16, 2)
    signs = np.where(odd % 4 == 1, 1.0, -1.0)
    below = 4 / math.pi * float((signs / odd) @ np.exp(-((odd * math.pi / x) ** 2) / 8))
    return min(1.0, max(0.0, 1 - below))


def brownian_range_tail(x: float) -> float:
    """Return P(max W - min W > x) of Brownian motion W on [0, 1], by the series that converges fast at this x."""
    if x > 1.5:
        terms = [(-1) ** (k - 1) * k * erfc(k * x / math.sqrt(2)) for k in range(1, 12)]
        return min(1.0, max(0.0, 4 * math.fsum(terms)))
    if x < 0.2:
        return 1.0
    square = (np.arange(1, 12) - 0.5) ** 2 * math.pi**2
    below = float(np.sum((8 / x**2 + 2 / square) * np.exp(-2 * square / x**2)))
    return min(1.0, max(0.0, 1 - below))


def _cumulative_test(
    claimed: Chunk, extent: Callable[[Float], float], tail: Callable[[float], float]
) -> CalibrationTest:
    order = np.argsort(claimed.confidence, kind="stable")
    c, right = claimed.confidence[order], claimed.correct[order]
    w = np.ones(len(c)) if claimed.weight is None else checks.relative_weights(claimed.weight[order])
    last_of_ties = np.append(c[1:] > c[:-1], True)
    walk = np.append(0.0, np.cumsum(w * (right - c))[last_of_ties])
    statistic = standardised(float(extent(walk)), float(w**2 @ (c * (1 - c))))
    return CalibrationTest(statistic, tail(statistic))


def standardised(value: float, variance: float) -> float:
    """Return the value in standard deviations; infinite for a nonzero value without variance."""
    if variance > 0:
        return value / math.sqrt(variance)
    return math.copysign(math.inf, value) if abs(value) > 1e-12 else 0.0
