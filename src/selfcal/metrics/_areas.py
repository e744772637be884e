"""Areas under ROC curves with a value per row, from which intervals follow."""

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
    mean_and_error,
    wilson_interval,
)


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
