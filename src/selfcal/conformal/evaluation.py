"""How prediction sets do on rows with known classes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from selfcal._support import checks
from selfcal.errors import DataError
from selfcal.metrics.intervals import Interval, clopper_pearson_interval, known_level


@dataclass(frozen=True)
class SetScores:
    """The coverage and the sizes of prediction sets.

    Attributes:
        rows: Number of rows.
        coverage: The fraction of rows whose set contains the true class, with its exact interval.
        size: Mean number of classes in a set, with its Student interval.
        single: Fraction of sets of one class.
        empty: Fraction of sets of none.
        by_class: The coverage of the rows of each true class that has rows.
    """

    rows: int
    coverage: Interval
    size: Interval
    single: float
    empty: float
    by_class: Mapping[Any, Interval]

    def __str__(self) -> str:
        return (
            f"{self.rows:,} sets: coverage {self.coverage}, mean size {self.size}, "
            f"{self.single:.1%} of one class, {self.empty:.1%} empty"
        )


@dataclass
class SetCounts:
    """Counts of rows by true class, coverage and size of the set, of which more can be added at any time."""

    counts: Counter[tuple[Hashable, bool, int]] = field(default_factory=Counter)

    def add(self, rows: Iterable[tuple[Hashable, bool, int]]) -> None:
        """Add rows: true class, whether it is in the set, size of the set."""
        self.counts.update(rows)

    def scores(self, level: float = 0.95) -> SetScores:
        """Return the scores; at least one row must have been added."""
        known_level(level)
        sizes, covered, rows = Counter[int](), Counter[Hashable](), Counter[Hashable]()
        for (true, inside, size), count in self.counts.items():
            sizes[size] += count
            rows[true] += count
            covered[true] += count * inside
        n = rows.total()
        return SetScores(
            rows=n,
            coverage=_rate(covered.total(), n, level),
            size=_mean_size(sizes, level),
            single=sizes[1] / n,
            empty=sizes[0] / n,
            by_class={true: _rate(covered[true], count, level) for true, count in rows.items()},
        )


def evaluate_sets(
    y_true: ArrayLike, sets: ArrayLike, *, level: float = 0.95, classes: ArrayLike | None = None
) -> SetScores:
    """Evaluate prediction sets on rows that they were not chosen on.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        sets: Whether each class (column) is in the set of each row, as `predict_set` returns it.
        level: The level of the intervals.
        classes: The label of each column, if labels are not codes.

    Returns:
        Coverage and sizes with their intervals.

    >>> print(evaluate_sets([0, 1, 1], [[True, False], [True, True], [True, False]]))
    3 sets: coverage 0.6667 [0.0943, 0.9916], mean size 1.3333 [0.0000, 2.7676], 66.7% of one class, 0.0% empty
    """
    table = checks.as_array(sets)
    if table.ndim != 2 or table.dtype != np.bool_ or not len(table):
        raise DataError(
            "sets must be a table of True and False, one row per sample and one column per class; got "
            f"{table.dtype}, shape {table.shape}."
        )
    codes = checks.label_codes(y_true, table.shape[1], classes)
    checks.same_length(y_true=codes, sets=table)
    names = np.arange(table.shape[1]) if classes is None else checks.as_array(classes)
    counts = SetCounts()
    covered = table[np.arange(len(codes)), codes]
    counts.add(zip(names[codes].tolist(), covered.tolist(), table.sum(axis=1).tolist(), strict=True))
    return counts.scores(level)


def _rate(hits: int, n: int, level: float) -> Interval:
    low, high = clopper_pearson_interval(hits / n, n, level=level)
    return Interval(hits / n, float(low), float(high), level)


def _mean_size(sizes: Counter[int], level: float) -> Interval:
    """The Student interval of the mean; a single row says nothing about it."""
    n = sizes.total()
    mean = sum(size * count for size, count in sizes.items()) / n
    if n == 1:
        return Interval(mean, 0.0, math.inf, level)
    variance = sum(count * (size - mean) ** 2 for size, count in sizes.items()) / (n - 1)
    half = math.sqrt(variance / n) * float(stdtrit(n - 1, (1 + level) / 2))
    return Interval(mean, max(0.0, mean - half), mean + half, level)
