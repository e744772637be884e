"""Binned calibration errors of the top label, and what noise alone would make of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from selfcal import _checks
from selfcal._binning import Bins, Closed, Strategy, array_chunks, bin_chunks, bin_index
from selfcal._checks import Float
from selfcal.errors import DataError
from selfcal.metrics._rows import blocks

Norm = Literal["l1", "l2", "max"]


@dataclass(frozen=True)
class NoiseFloor:
    """Calibration error that a perfectly calibrated model with the same confidences would show.

    Attributes:
        mean: Mean over the resampled label sets.
        low: 5 % quantile.
        high: 95 % quantile; a measured error under it is no evidence of miscalibration.
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
        n_bins: Number of bins (at most, for "quantile": equal confidences always share a bin).
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        closed: "right" for bins (a, b], "left" for [a, b); 0 is in the first bin and 1 in the last.
        sample_weight: One non-negative weight per row.

    Returns:
        The edges and, per bin, weight, count, mean confidence and accuracy.

    >>> curve = reliability_curve([1, 0, 1, 1], [0.5, 0.6, 0.9, 1.0], n_bins=2)
    >>> curve.edges, curve.count, curve.accuracy.round(4)
    (array([0. , 0.5, 1. ]), array([1, 3]), array([1.    , 0.6667]))
    """
    c = _checks.unit_interval(confidence)
    a = _checks.unit_interval(correct, "correct")
    n = _checks.same_length(correct=a, confidence=c)
    w = _checks.sample_weights(sample_weight, n)
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
    """Distance between confidence and correctness over bins, for those who have only confidences.

    With `s_b` the share of the weight in bin b: `sum_b s_b |acc_b - conf_b|` for "l1",
    `sqrt(sum_b s_b (acc_b - conf_b)^2)` for "l2", `max_b |acc_b - conf_b|` over bins not empty for "max".

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
    _known_norm(norm)
    curve = reliability_curve(
        correct, confidence, n_bins=n_bins, strategy=strategy, closed=closed, sample_weight=sample_weight
    )
    return _error(curve.share, curve.gap, norm)


def expected_calibration_error(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Top-label calibration error: confidence max(p) against being right with the first argmax.

    `sum_b s_b |acc_b - conf_b|` for norm "l1"; see `confidence_calibration_error` for the others.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1" for the ECE, "l2" for its root mean square form, "max" for the worst bin.
        closed: "right" for bins (a, b], "left" for [a, b).
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1].

    >>> round(expected_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.3

    Reference: Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017.
    """
    _known_norm(norm)
    rows = blocks(y_true, probs, classes, sample_weight)
    curve = bin_chunks((block.top_label() for block in rows), n_bins=n_bins, strategy=strategy, closed=closed)
    return _error(curve.share, curve.gap, norm)


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
    """Top-label calibration error against a known posterior, free of the noise of drawn labels.

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
    p, q = _checks.probabilities(probs), _checks.probabilities(posterior, "posterior")
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
    """Calibration error that a perfectly calibrated model with these confidences would score by chance.

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
        Mean and 5-95 % range of the error.

    >>> floor = ece_noise_floor([0.7, 0.8, 0.9] * 100)
    >>> round(floor.mean, 2), round(floor.low, 2), round(floor.high, 2)
    (0.03, 0.01, 0.06)

    Reference: Vaicenavicius et al., Evaluating Model Calibration in Classification, AISTATS 2019.
    """
    _known_norm(norm)
    _checks.positive_int("n_resamples", n_resamples)
    c = _checks.unit_interval(confidence)
    w = _checks.sample_weights(sample_weight, len(c))
    curve = bin_chunks(array_chunks(c, c, w), n_bins=n_bins, strategy=strategy, closed=closed)
    index = bin_index(c, curve.edges, closed)
    divisor = np.where(curve.weight > 0, curve.weight, 1.0)
    rng = np.random.default_rng(seed)
    errors = np.empty(n_resamples)
    for resample in range(n_resamples):
        right = rng.random(len(c)) < c
        surplus = np.bincount(
            index, weights=(right - c) if w is None else w * (right - c), minlength=len(divisor)
        )
        errors[resample] = _error(curve.share, surplus / divisor, norm)
    low, high = np.quantile(errors, [0.05, 0.95])
    return NoiseFloor(mean=float(errors.mean()), low=float(low), high=float(high))


def _known_norm(norm: str) -> None:
    _checks.one_of("norm", norm, ("l1", "l2", "max"))


def _error(share: Float, gap: Float, norm: Norm) -> float:
    distance = np.abs(gap)
    if norm == "l1":
        return float(share @ distance)
    if norm == "l2":
        return float(np.sqrt(share @ distance**2))
    return float(distance.max())
