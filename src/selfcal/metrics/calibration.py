"""Binned calibration errors of the top label, and their noise floor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.binning import (
    Bins,
    Chunk,
    Closed,
    Norm,
    Strategy,
    array_chunks,
    bin_chunks,
)
from selfcal.errors import DataError
from selfcal.metrics._norms import check_norm, error_of_bins
from selfcal.metrics._resampling import resampled_errors
from selfcal.metrics._rows import top_labels


@dataclass(frozen=True)
class NoiseFloor:
    """Calibration error that a perfectly calibrated model with the same confidences would show.

    Attributes:
        mean: Mean over the resampled label sets.
        low: 5% quantile.
        high: 95% quantile; a measured error below it is not evidence of miscalibration.
    """

    mean: float
    low: float
    high: float


def reliability_curve(
    correct: ArrayLike,
    confidence: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    closed: Closed = "right",
    sample_weight: ArrayLike | None = None,
) -> Bins:
    """Mean confidence and accuracy in bins of confidence.

    Args:
        correct: Whether each prediction was right, or its probability of being right, in [0, 1].
        confidence: The confidence of each prediction, in [0, 1].
        n_bins: Number of bins (at most, for "quantile": equal confidences are always in one bin).
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        closed: "right" for bins (a, b], "left" for [a, b); 0 is in the first bin and 1 in the last.
        sample_weight: One non-negative weight per row.

    Returns:
        The edges and, per bin, weight, count, mean confidence and accuracy.

    >>> curve = reliability_curve([1, 0, 1, 1], [0.5, 0.6, 0.9, 1.0], n_bins=2)
    >>> curve.edges, curve.count, curve.accuracy.round(4)
    (array([0. , 0.5, 1. ]), array([1, 3]), array([1.    , 0.6667]))
    """
    c = checks.unit_interval(confidence)
    a = checks.unit_interval(correct, "correct")
    n = checks.same_length(correct=a, confidence=c)
    w = checks.sample_weights(sample_weight, n)
    return bin_chunks(array_chunks(a, c, w), n_bins=n_bins, strategy=strategy, closed=closed)


def confidence_calibration_error(
    correct: ArrayLike,
    confidence: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Binned calibration error from confidences alone.

    With `s_b` the fraction of the weight in bin b: `sum_b s_b |acc_b - conf_b|` for "l1",
    `sqrt(sum_b s_b (acc_b - conf_b)^2)` for "l2", `max_b |acc_b - conf_b|` over non-empty bins for "max".

    Args:
        correct: Whether each prediction was right, or its probability of being right, in [0, 1].
        confidence: The confidence of each prediction, in [0, 1].
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1" for the ECE, "l2" for its root mean square form, "max" for the worst bin.
        closed: "right" for bins (a, b], "left" for [a, b).
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1].

    >>> round(confidence_calibration_error([1, 0, 1, 1], [0.5, 0.6, 0.9, 1.0], n_bins=2), 6)
    0.25

    Reference: Naeini, Cooper, Hauskrecht, Obtaining Well Calibrated Probabilities Using Bayesian Binning,
    AAAI 2015.
    """
    check_norm(norm)
    curve = reliability_curve(
        correct, confidence, n_bins=n_bins, strategy=strategy, closed=closed, sample_weight=sample_weight
    )
    return error_of_bins(curve, norm)


def expected_calibration_error(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    debias: bool = False,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Top-label calibration error: confidence max(p) against the correctness of the first argmax.

    `sum_b s_b |acc_b - conf_b|` for norm "l1"; see `confidence_calibration_error` for the others. Noise makes
    every gap larger: a perfectly calibrated model does not score 0. With `debias` its expected value is
    subtracted: from each squared gap for "l2", `acc_b (1 - acc_b) / (n_b - 1)`, n_b the effective count; for
    "l1", the increase of the mean error when each acc_b is redrawn from its normal approximation, which leaves
    59% of the noise of a calibrated bin. A negative result becomes 0.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1" for the ECE, "l2" for its root mean square form, "max" for the worst bin.
        closed: "right" for bins (a, b], "left" for [a, b).
        debias: Whether to subtract the expected contribution of label noise; for "l1" and "l2".
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1].

    >>> round(expected_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.3

    References: Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017; debiased:
    Kumar, Liang, Ma, Verified Uncertainty Calibration, NeurIPS 2019.
    """
    check_norm(norm, debias)
    chunks = top_labels(y_true, probs, classes, sample_weight)
    curve = bin_chunks(chunks, n_bins=n_bins, strategy=strategy, closed=closed)
    return error_of_bins(curve, norm, debias=debias)


def maximum_calibration_error(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    closed: Closed = "right",
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Largest gap between the confidence max(p) and the accuracy over bins that are not empty.

    `max_b |acc_b - conf_b|`; a single row in a bin can determine it, so check the counts of
    `reliability_curve` as well, or choose bins of equal weight.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        closed: "right" for bins (a, b], "left" for [a, b).
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error of the worst bin, in [0, 1].

    >>> round(maximum_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.6

    Reference: Naeini, Cooper, Hauskrecht, Obtaining Well Calibrated Probabilities Using Bayesian Binning,
    AAAI 2015.
    """
    chunks = top_labels(y_true, probs, classes, sample_weight)
    return error_of_bins(bin_chunks(chunks, n_bins=n_bins, strategy=strategy, closed=closed), "max")


def adaptive_calibration_error(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    norm: Norm = "l1",
    closed: Closed = "right",
    debias: bool = False,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Top-label calibration error over bins of equal weight, which follow the confidences.

    `expected_calibration_error` with `strategy="quantile"`. For the adaptive error of Nixon et al., which
    averages over all classes, use `classwise_calibration_error` with that strategy.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        n_bins: Maximum number of bins; equal confidences are always in one.
        norm: "l1", "l2" or "max", as in `confidence_calibration_error`.
        closed: "right" for bins (a, b], "left" for [a, b).
        debias: Whether to subtract the expected contribution of label noise; for "l1" and "l2".
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1].

    >>> probs = [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]]
    >>> round(adaptive_calibration_error([0, 1, 1, 0], probs, n_bins=2), 6)
    0.15

    Reference: Mukhoti et al., Calibrating Deep Neural Networks using Focal Loss, NeurIPS 2020.
    """
    return expected_calibration_error(
        y_true,
        probs,
        n_bins=n_bins,
        strategy="quantile",
        norm=norm,
        closed=closed,
        debias=debias,
        classes=classes,
        sample_weight=sample_weight,
    )


def posterior_calibration_error(
    posterior: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    sample_weight: ArrayLike | None = None,
) -> float:
    """Top-label calibration error against a known posterior, without label noise.

    With k(x) the first argmax of `probs`, the confidence `probs[k(x)]` is compared, bin by bin, with the true
    probability of being right, `posterior[k(x)]`, in place of the 0/1 correctness.

    Args:
        posterior: The true class probabilities of each row, in the column order of `probs`.
        probs: The predicted probabilities.
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1", "l2" or "max", as in `confidence_calibration_error`.
        closed: "right" for bins (a, b], "left" for [a, b).
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1]; the posterior itself scores 0.

    >>> round(posterior_calibration_error([[0.7, 0.3], [0.6, 0.4]], [[0.9, 0.1], [0.1, 0.9]]), 6)
    0.35
    """
    p, q = checks.probabilities(probs), checks.probabilities(posterior, "posterior")
    if p.shape != q.shape:
        raise DataError(
            f"posterior and probs must have the same rows and classes; got shapes {q.shape} and {p.shape}."
        )
    rows, top = np.arange(len(p)), p.argmax(axis=1)
    return confidence_calibration_error(
        correct=q[rows, top],
        confidence=p[rows, top],
        n_bins=n_bins,
        strategy=strategy,
        norm=norm,
        closed=closed,
        sample_weight=sample_weight,
    )


def ece_noise_floor(
    confidence: ArrayLike,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    sample_weight: ArrayLike | None = None,
) -> NoiseFloor:
    """Calibration error that a perfectly calibrated model with these confidences would have because of label noise.

    Each resample draws `correct_i ~ Bernoulli(confidence_i)` and computes `confidence_calibration_error`.

    Args:
        confidence: The confidence of each prediction, in [0, 1].
        n_resamples: Number of label sets to draw.
        seed: Seed of the draws.
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1", "l2" or "max", as in `confidence_calibration_error`.
        closed: "right" for bins (a, b], "left" for [a, b).
        sample_weight: One non-negative weight per row.

    Returns:
        Mean and 5-95% range of the error.

    >>> floor = ece_noise_floor([0.7, 0.8, 0.9] * 100)
    >>> round(floor.mean, 2), round(floor.low, 2), round(floor.high, 2)
    (0.03, 0.01, 0.06)

    Reference: Vaicenavicius et al., Evaluating Model Calibration in Classification, AISTATS 2019.
    """
    check_norm(norm)
    c = checks.unit_interval(confidence)
    w = checks.sample_weights(sample_weight, len(c))
    bins = bin_chunks(array_chunks(c, c, w), n_bins=n_bins, strategy=strategy, closed=closed)
    errors = resampled_errors(Chunk(c, c, w), bins, norm=norm, n_resamples=n_resamples, seed=seed)
    low, high = np.quantile(errors, [0.05, 0.95])
    return NoiseFloor(mean=float(errors.mean()), low=float(low), high=float(high))
