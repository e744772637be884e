"""Areas under ROC curves: how well probabilities separate the classes, whatever their calibration."""

from __future__ import annotations

from numpy.typing import ArrayLike

from selfcal.metrics._areas import macro, roc_areas
from selfcal.metrics.intervals import Interval, known_level


def roc_auc(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Area under the ROC curve: the probability that a row of the class gets a higher probability than another row.

    `sum_ij w_i w_j (1[p_i > p_j] + 1[p_i = p_j] / 2) / sum_ij w_i w_j`, over rows i of the class and j of the others.
    For two classes, of the second one; for several, the mean over the classes that have rows (macro, one-vs-rest).
    It is 0.5 for predictions that are all the same, and does not depend on calibration.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The area, in [0, 1].

    >>> roc_auc([0, 0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.5, 0.5], [0.2, 0.8]])
    0.75

    Reference: Hanley, McNeil, The Meaning and Use of the Area under a ROC Curve, Radiology 143 (1982).
    """
    return macro(roc_areas(y_true, probs, classes, sample_weight)).value


def roc_auc_interval(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    level: float = 0.95,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Interval:
    """`roc_auc` with an interval: DeLong's variance, in Wilson's form, which stays in [0, 1].

    The variance is turned into the number of rows that would give a proportion the same variance, and Wilson's
    interval of that proportion is returned. If the classes are separated completely, which leaves no variance to
    estimate, the number of rows of the smaller side is used.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        level: Confidence level.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The area with its interval.

    >>> print(roc_auc_interval([0, 0, 1, 1] * 10, [[0.9, 0.1], [0.4, 0.6], [0.5, 0.5], [0.2, 0.8]] * 10))
    0.7500 [0.5706, 0.8713]

    Reference: DeLong, DeLong, Clarke-Pearson, Comparing the Areas under Correlated ROC Curves, Biometrics 44 (1988).
    """
    known_level(level)
    return macro(roc_areas(y_true, probs, classes, sample_weight)).interval(level)
