"""Calibration in groups of rows, such as age groups or sites, with intervals that hold for all groups at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfcal import metrics
from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.errors import DataError
from selfcal.reporting._names import counted, shown, shown_apart
from selfcal.reporting._verdict import ENOUGH_ROWS, findings
from selfcal.reporting.content import GroupedBy, GroupFinding, GroupScores, NoiseFloor
from selfcal.reporting.predictions import Predictions

MAX_GROUPS = 20
QUANTILES = 5
FEW_VALUES = 10
"""A numeric column with no more values has a group for each."""

RESAMPLES = 200
Groups = tuple[Int, list[str]]

WORDS = {"over": "over-confident", "under": "under-confident", "mixed": "over- and under-confident"}


def cut(values: ArrayLike) -> Groups:
    """The group of each row and the names of the groups.

    Numbers are cut at quantiles into groups of about as many rows each, unless they have few values. Of many
    categories, the most frequent have a group of their own and the rest is "other". Missing values are a group.

    >>> cut([30.0, 40.0, float("nan")])[1], cut(["b", "a", None])[1]
    (['30', '40', 'missing'], ['a', 'b', 'missing'])
    >>> cut(range(100))[1]
    ['up to 19', 'over 19 to 39', 'over 39 to 59', 'over 59 to 79', 'over 79']
    """
    given = checks.as_array(values)
    if given.dtype.kind in "iuf":
        return _cut_numbers(given.astype(np.float64))
    text = np.array(
        ["" if _is_missing(value) else str(checks.plain(value)) for value in given.tolist()], dtype=object
    )
    gone = np.array([_is_missing(value) for value in given.tolist()], dtype=bool)
    names, code, count = np.unique(text[~gone].astype(str), return_inverse=True, return_counts=True)
    kept = np.arange(len(names))
    if len(names) > MAX_GROUPS:
        kept = np.sort(np.argsort(-count, kind="stable")[: MAX_GROUPS - 1])
    place = np.full(len(names), len(kept))
    place[kept] = np.arange(len(kept))
    codes = np.full(len(text), -1)
    codes[~gone] = place[code]
    pooled = len(names) - len(kept)
    labels = [*names[kept].tolist(), *([f"other ({pooled:,} categories)"] if pooled else [])]
    return _with_missing(codes, labels)


def judge_groups(
    judged: Predictions, groups: Mapping[str, Groups], *, level: float, seed: int
) -> tuple[GroupedBy, ...]:
    """Confidence, accuracy and ECE in each group of each column.

    A finding needs an interval of the accuracy, or a Kuiper test, that is significant at half of 1 - level after
    Bonferroni's correction for all groups of all columns: a calibrated model has one with probability at most
    1 - level, however many groups there are. Groups of few rows are judged by the interval alone.
    """
    total = sum(len(names) for _, names in groups.values())
    how = _Evaluation(judged, 1 - (1 - level) / 2, total, seed)
    return tuple(how.of(shown(column), *groups[column]) for column in groups)


def cut_all(groups: Mapping[str, ArrayLike], n_rows: int) -> dict[str, Groups]:
    """The groups of every column, after a check of their length."""
    found = {}
    for column in groups:
        values = checks.as_array(groups[column])
        if values.ndim != 1 or len(values) != n_rows:
            raise DataError(
                f"groups[{str(column)!r}] must hold one value for each of the {n_rows:,} rows; got shape "
                f"{values.shape}."
            )
        found[str(column)] = cut(values)
    return found


class _Evaluation(NamedTuple):
    """How the groups of each column are evaluated: predictions, level, number of all groups and seed."""

    judged: Predictions
    level: float
    total: int
    seed: int

    def of(self, column: str, codes: Int, names: Sequence[str]) -> GroupedBy:
        """The groups of one column."""
        k = len(names)
        rows = np.bincount(codes, minlength=k)
        claimed = np.bincount(codes, self.judged.confidence, minlength=k) / rows
        right = np.bincount(codes, self.judged.correct, minlength=k) / rows
        values = findings(rows, claimed, right, self.level, of=self.total)
        scored = tuple(self._scored(codes == group, names[group], values[group]) for group in range(k))
        return GroupedBy(column, _text(column, scored), scored)

    def _scored(self, chosen: NDArray[np.bool_], name: str, values: dict[str, Any]) -> GroupScores:
        confidence, correct = self.judged.confidence[chosen], self.judged.correct[chosen]
        finding: GroupFinding = values["finding"]
        if not finding and _kuiper(correct, confidence) < (1 - self.level) / self.total:
            finding = "mixed"
        floor = metrics.ece_noise_floor(confidence, n_resamples=RESAMPLES, seed=self.seed)
        ece = metrics.confidence_calibration_error(correct, confidence)
        noise = NoiseFloor(floor.mean, floor.low, floor.high)
        return GroupScores(**{**values, "finding": finding}, name=name, ece=ece, noise_floor=noise)


def _kuiper(correct: NDArray[np.bool_], confidence: Float) -> float:
    if len(correct) < ENOUGH_ROWS:
        return 1.0
    claim = np.column_stack([1 - confidence, confidence])
    return metrics.kuiper_test(correct.astype(np.int64), claim, of_class=1).p_value


def _text(column: str, groups: Sequence[GroupScores]) -> str:
    """The verdict on the groups of a column."""
    off = {kind: [g.name for g in groups if g.finding == kind] for kind in WORDS}
    of = counted(len(groups), "group")
    if not any(off.values()):
        small = sum(group.rows < ENOUGH_ROWS for group in groups)
        few = f"; {counted(small, 'group')} of fewer than {ENOUGH_ROWS} rows could hide much" if small else ""
        return f"No sign of miscalibration in any of {of} by {column}{few}."
    parts = [f"{word} in {', '.join(map(_quoted, off[kind]))}" for kind, word in WORDS.items() if off[kind]]
    text = "; ".join(parts)
    return f"Of {of} by {column}: {text}."


def _cut_numbers(values: Float) -> Groups:
    known = np.isfinite(values)
    codes = np.full(len(values), -1)
    distinct = np.unique(values[known])
    if len(distinct) <= FEW_VALUES:
        codes[known] = np.searchsorted(distinct, values[known])
        return _with_missing(codes, [_number(value) for value in distinct.tolist()])
    fractions = np.arange(1, QUANTILES) / QUANTILES
    edges = np.unique(np.quantile(values[known], fractions, method="inverted_cdf"))
    edges = edges[edges < distinct[-1]]
    codes[known] = np.searchsorted(edges, values[known])
    text = [_number(edge) for edge in edges.tolist()]
    middle = [f"over {low} to {high}" for low, high in pairwise(text)]
    return _with_missing(codes, [f"up to {text[0]}", *middle, f"over {text[-1]}"])


def _with_missing(codes: Int, names: list[str]) -> Groups:
    """Missing values as the last group, and only groups that have rows, with names that are fit to print."""
    if (codes < 0).any():
        codes, names = np.where(codes < 0, len(names), codes), [*names, "missing"]
    used, codes = np.unique(codes, return_inverse=True)
    printed: list[Any] = [names[group] for group in used.tolist()]
    return codes, shown_apart(printed)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == math.floor(value) and abs(value) < 1e15 else f"{value:.6g}"


def _quoted(name: str) -> str:
    return f'"{name}"'


def _is_missing(value: object) -> bool:
    return value is None or value == "" or value != value  # noqa: PLR0124, NaN and NaT differ from themselves
