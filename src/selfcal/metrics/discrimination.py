"""Areas under ROC curves: how well probabilities separate the classes, whatever their calibration."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.binning import Chunk
from selfcal._support.checks import Float
from selfcal.errors import DataError
from selfcal.metrics._rows import blocks, each_class
from selfcal.metrics.intervals import (
    Interval,
    effective_count,
    known_level,
    mean_and_error,
    wilson_interval,
)


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


@dataclass(frozen=True)
class Area:
    """An area with a value per row that has it as its mean, the weights, and the rows of the smaller side."""

    value: float
    per_row: Float
    weight: Float | None
    smaller: float

    def __add__(self, other: Area) -> Area:
        smaller = min(self.smaller, other.smaller)
        return Area(self.value + other.value, self.per_row + other.per_row, self.weight, smaller)

    def interval(self, level: float) -> Interval:
        """The area with its interval."""
        _, error, _ = mean_and_error(self.per_row, self.weight)
        variance, spread = error**2, self.value * (1 - self.value)
        some = np.isfinite(variance) and variance > 1e-12 * spread > 0
        rows = spread / variance if some else self.smaller
        low, high = wilson_interval(self.value, rows, level=level)
        return Interval(self.value, float(low), float(high), level)


def roc_areas(
    y_true: ArrayLike,
    probs: ArrayLike,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Iterator[Area | None]:
    """The area of each class against the others, or None without rows on both sides; of two, that of the second."""
    chunks = each_class(blocks(y_true, probs, classes, sample_weight))
    first, second = next(chunks), next(chunks)
    rest = next(chunks, None)
    for chunk in (second,) if rest is None else chain((first, second, rest), chunks):
        yield _area(chunk)


def macro(areas: Iterable[Area | None]) -> Area:
    """The mean of the areas of those classes that have one."""
    total: Area | None = None
    count = 0
    for area in areas:  # one by one: a thousand of them would need much memory
        if area is not None:
            total, count = area if total is None else total + area, count + 1
    if total is None:
        raise DataError("The area under the ROC curve needs rows of at least two classes; got one.")
    return replace(total, value=total.value / count, per_row=total.per_row / count)


def _area(chunk: Chunk) -> Area | None:
    """The area of one class, from the fraction of the other side that each row is above or below."""
    inside = chunk.correct.astype(bool)
    weight = np.ones(len(inside)) if chunk.weight is None else checks.numbers(chunk.weight, "sample_weight")
    sides = [np.where(inside == side, weight, 0.0) for side in (False, True)]
    outer, inner = (float(side.sum()) for side in sides)
    if outer == 0 or inner == 0:
        return None
    _, place = np.unique(chunk.confidence, return_inverse=True)
    below, above = (np.bincount(place, side) for side in sides)
    beaten = (np.cumsum(below) - below / 2) / outer
    beating = (inner - np.cumsum(above) + above / 2) / inner
    value = float(above @ beaten) / inner
    share = np.where(inside, inner, outer) / (inner + outer)
    per_row = value + (np.where(inside, beaten[place], beating[place]) - value) / share
    smaller = min(effective_count(weight[inside == side], 0) for side in (False, True))
    return Area(value, per_row, chunk.weight, smaller)
