"""Decomposition of proper scores into calibration and refinement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support.binning import joined
from selfcal._support.checks import Float
from selfcal.metrics._rows import Block, blocks, each_class, normalized_weights
from selfcal.metrics.scores import LOG_FLOOR, log_loss


@dataclass(frozen=True)
class Decomposition:
    """A proper score in parts: `total = calibration + refinement = calibration - resolution + uncertainty`.

    Attributes:
        calibration: The reduction by isotonic recalibration on the same rows; 0 if it does not help.
        refinement: The score after recalibration.
        uncertainty: The score of a forecast of the class frequencies for every row.
    """

    calibration: float
    refinement: float
    uncertainty: float

    @property
    def total(self) -> float:
        """The score itself."""
        return self.calibration + self.refinement

    @property
    def resolution(self) -> float:
        """The improvement of the recalibrated forecast over the class frequencies."""
        return self.uncertainty - self.refinement


def brier_decomposition(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Decomposition:
    """Brier score split class by class: each column p_k against its isotonic regression on `1[y = k]`.

    With q_k that regression: `refinement = sum_k mean (q_k - 1[y = k])^2`, `calibration = sum_k mean (p_k - q_k)^2`
    (the two add up because q_k is a mean over blocks of rows), `uncertainty = sum_k f_k (1 - f_k)`, f_k the
    frequency of class k. There are no bins, and no part is negative. A flexible fit to few rows overestimates the
    calibration part, and the q_k of a row need not sum to one.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The parts; `total` is the `brier_score`.

    >>> parts = brier_decomposition([0, 0, 1, 1], [[0.9, 0.1], [0.7, 0.3], [0.7, 0.3], [0.2, 0.8]])
    >>> round(parts.calibration, 6), round(parts.refinement, 6), round(parts.uncertainty, 6)
    (0.065, 0.25, 0.5)

    References: Murphy, A New Vector Partition of the Probability Score, J. Appl. Meteorol. 12 (1973); Dimitriadis,
    Gneiting, Jordan, Stable Reliability Diagrams for Probabilistic Classifiers, PNAS 118 (2021).
    """
    calibration = refinement = uncertainty = 0.0
    for column in each_class(blocks(y_true, probs, classes, sample_weight)):
        p, hit, weight = normalized_weights(column)
        q = _isotonic(p, hit, weight)
        rate = float(weight @ hit)
        calibration += float(weight @ ((p - hit) ** 2 - (q - hit) ** 2))
        refinement += float(weight @ (q - hit) ** 2)
        uncertainty += rate * (1 - rate)
    return Decomposition(max(0.0, calibration), refinement, uncertainty)


def log_loss_decomposition(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Decomposition:
    """Log loss split at the confidence: the other classes keep their proportions.

    The log loss is that of the event "the top label is right", `-a log c - (1 - a) log(1 - c)`, plus, where it is
    wrong, that of the true class among the others. `calibration` is the reduction of the first term by the isotonic
    regression of a on c, `refinement` the rest, `uncertainty` the entropy of the class frequencies. Resolution is
    negative if even the recalibrated forecast is worse than the class frequencies.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The parts in nats; `total` is the `log_loss`.

    >>> parts = log_loss_decomposition([0, 1, 1, 1], [[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.2, 0.8]])
    >>> round(parts.calibration, 6), round(parts.refinement, 6), round(parts.total, 6)
    (0.134806, 0.477386, 0.612192)

    Reference: Bröcker, Reliability, Sufficiency, and the Decomposition of Proper Scores, Q. J. R. Meteorol. Soc.
    135 (2009).
    """
    rows = list(blocks(y_true, probs, classes, sample_weight))
    total = log_loss(y_true, probs, classes=classes, sample_weight=sample_weight)
    c, right, weight = normalized_weights(joined(block.top_label() for block in rows))
    gain = _confidence_loss(c, right, weight) - _confidence_loss(_isotonic(c, right, weight), right, weight)
    calibration = min(max(0.0, gain), total)
    return Decomposition(calibration, total - calibration, _entropy(rows))


def _isotonic(score: Float, hit: Float, weight: Float) -> Float:
    """Return the weighted isotonic regression of hit on score at each row; equal scores get equal values."""
    from scipy.optimize import isotonic_regression

    _, place = np.unique(score, return_inverse=True)
    total = np.bincount(place, weight)
    mean = np.bincount(place, weight * hit) / total
    fitted: Float = isotonic_regression(mean, weights=total).x
    return np.clip(fitted, 0.0, 1.0)[place]


def _confidence_loss(confidence: Float, right: Float, weight: Float) -> float:
    likelihood = np.where(right > 0, confidence, 1 - confidence)
    return -float(weight @ np.log(np.maximum(likelihood, LOG_FLOOR)))


def _entropy(rows: list[Block]) -> float:
    k = len(rows[0].columns)
    mass = np.sum([np.bincount(block.codes, block.weight, minlength=k) for block in rows], axis=0)
    some = mass[mass > 0] / mass.sum()
    return -float(some @ np.log(some))
