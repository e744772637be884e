"""Duplicate rows, exact or nearly so: a split must keep them on one side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from selfcal._support.checks import Float, Int, listed

SIGNIFICANT_DIGITS = 6
"""Rows that agree in this many significant digits of every number differ by rounding only."""

MIN_COPIES = 0.01
"""Near-copies below this fraction of the rows may be coincidences, and are too few to change a result."""

MIN_DISTINCT_ROWS = 20
"""Rows with fewer distinct values, most of them repeated, cannot be split without copies on both sides."""

MAX_MEAN_REPEATS = 20
"""If rows without identifiers and dates repeat more often than this on average, columns have few values."""

N_SCREENING_COLUMNS = 8
"""Rows are first compared in this many columns; rows that differ there are not compared further."""

_SHIFT = 5 / 9  # offset of a second rounding; no number with a few more digits is at an edge of both
_MAX_EXPONENT = 300
_POWERS = 10.0 ** np.arange(-_MAX_EXPONENT, _MAX_EXPONENT + 1)


@dataclass(frozen=True)
class Copies:
    """Groups of rows that are copies of each other.

    Attributes:
        groups: The number of the group of each row, in the order of first appearance.
        notes: Notes for the user.
    """

    groups: Int
    notes: tuple[str, ...] = ()

    @property
    def n_copies(self) -> int:
        """The number of rows that belong to the group of an earlier row."""
        return len(self.groups) - n_groups(self.groups)


def find_copies(
    X: Float, *, kinds: Sequence[str] | None = None, names: Sequence[object] | None = None
) -> Copies:
    """Find the rows that are copies of another, exactly or nearly.

    Rows are copies if they are equal in every column. They are near-copies if they are equal after rounding numbers
    to `SIGNIFICANT_DIGITS`, or if they differ in dates and identifiers only. An identifier is a category or whole
    number with a different value in every distinct row.

    Equal values in columns of few levels do not indicate a copy. Near-copies therefore count only if they do not
    depend on the precision: about the same rows must be found with one digit less, or without the column of most
    distinct values. Less than a fraction `MIN_COPIES` of the rows is ignored.

    Rows are compared by a 64-bit hash; the only effect of a collision is that two rows share a group.

    Args:
        X: One row of numbers for each row, NaN where missing.
        kinds: The kind of each column: "number", "date", "category", or any other, which is compared exactly. By
            default all are numbers.
        names: Names of the columns for the notes; by default their positions.

    Example:
        >>> copies = find_copies(np.array([[1.5, 2.0], [0.1, 0.2], [1.5, 2.0]]))
        >>> copies.groups
        array([0, 1, 0])
        >>> copies.notes
        ('1 of 3 rows repeats an earlier row; copies are kept in the same part.',)
    """
    n, width = X.shape
    kind = np.array(["number"] * width if kinds is None else kinds)
    every = np.arange(width)
    equal = _equal_rows(X, every)
    rounded, digits = equal, np.zeros(width, dtype=np.int64)
    fine, coarse = (
        np.where(kind == "number", number, 0) for number in (SIGNIFICANT_DIGITS, SIGNIFICANT_DIGITS - 1)
    )
    found = _equal_rows(X, every, fine)
    if _many(found, equal) and _stable(found, _equal_rows(X, every, coarse), equal):
        rounded, digits = joined(found, _equal_rows(X, every, fine, shift=_SHIFT)), fine
    whole, ignored = rounded, _identifiers(X, kind, rounded, digits)
    kept = np.setdiff1d(every, ignored)
    if len(ignored) and len(kept) > 1 and n >= MIN_DISTINCT_ROWS:
        found = joined(rounded, _equal_rows(X, kept, digits))
        richest = kept[np.argmax([len(np.unique(X[:, column])) for column in kept])]
        fewer = _equal_rows(X, np.setdiff1d(kept, richest), digits)
        if (
            n <= MAX_MEAN_REPEATS * n_groups(found)
            and _many(found, rounded)
            and _stable(found, fewer, rounded)
        ):
            whole = found
    if n_groups(whole) < min(MIN_DISTINCT_ROWS, n / 2):
        return Copies(np.arange(n), (_few_note(n_groups(whole), n),))
    labels = range(width) if names is None else names
    shown = [labels[column] for column in ignored]
    return Copies(whole, _notes(n, n_groups(equal), n_groups(rounded), n_groups(whole), shown))


def joined(*groupings: Int) -> Int:
    """Merge groupings: rows that share a group in any of them share a group in the result.

    Example:
        >>> joined(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])).tolist()
        [0, 0, 0, 1]
    """
    n = len(groupings[0])
    first, others = groupings[0], groupings[1:]
    size, ends = n_groups(first), []
    for other in others:
        ends.append(other + size)
        size += n_groups(other)
    edges = (np.tile(first, len(others)), np.concatenate(ends)) if others else (first, first)
    graph = coo_array((np.ones(len(edges[0]), dtype=bool), edges), shape=(size, size))
    _, component = connected_components(graph, directed=False)
    return numbered(component[first]) if n else first


def numbered(values: NDArray[np.generic]) -> Int:
    """Number distinct values in the order of their first appearance."""
    _, first, place = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[place]


def n_groups(groups: Int) -> int:
    """Return the number of groups, numbered from zero."""
    return int(groups.max(initial=-1)) + 1


def _many(found: Int, before: Int) -> bool:
    """Whether the new grouping merges enough rows."""
    return n_groups(before) - n_groups(found) >= max(1, MIN_COPIES * len(found))


def _stable(found: Int, coarser: Int, before: Int) -> bool:
    """Whether a coarser comparison finds about the same rows."""
    gain, coarse_gain = (n_groups(before) - n_groups(groups) for groups in (found, coarser))
    return coarse_gain <= 2 * gain and 2 * n_groups(coarser) >= n_groups(found)


def _identifiers(X: Float, kind: NDArray[np.str_], groups: Int, digits: Int) -> Int:
    """The columns of dates, and those with a different value in every row, apart from copies and dates."""
    dates = np.flatnonzero(kind == "date")
    if len(dates):
        groups = joined(groups, _equal_rows(X, np.flatnonzero(kind != "date"), digits))
    candidates = np.flatnonzero((kind == "number") | (kind == "category"))
    keys = [column for column in candidates if _is_key(X[:, column], groups)]
    return np.union1d(dates, np.array(keys, dtype=np.int64))


def _is_key(values: Float, groups: Int) -> bool:
    """Whether whole numbers identify the groups; a sample is checked first, which rules out most columns."""
    for some in (slice(None, None, 1 + len(groups) // 1000), slice(None)):
        part = values[some]
        if not np.all((part == np.rint(part)) | np.isnan(part)):
            return False
        if len(np.unique(part)) <= (1 - MIN_COPIES) * len(np.unique(groups[some])):
            return False
    return True


def _equal_rows(X: Float, columns: Int, digits: Int | None = None, *, shift: float = 0.5) -> Int:
    """Number the rows such that rows that agree in the columns, rounded to `digits`, have the same number."""
    digits = np.zeros(X.shape[1], dtype=np.int64) if digits is None else digits
    some = columns[:: max(1, -(-len(columns) // N_SCREENING_COLUMNS))]
    hashes = _hashes(X, np.arange(len(X)), some, digits, shift)
    if len(some) < len(columns):  # only rows that agree in some columns can agree in all
        _, place, count = np.unique(hashes, return_inverse=True, return_counts=True)
        rows = np.flatnonzero(count[place] > 1)
        hashes[rows] = _hashes(X, rows, columns, digits, shift)
    return numbered(hashes)


def _hashes(X: Float, rows: Int, columns: Int, digits: Int, shift: float) -> NDArray[np.uint64]:
    """A hash of the values of each row in some columns."""
    hashes = np.zeros(len(rows), dtype=np.uint64)
    keys = _mixed((columns.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    digits = digits[columns]
    step = max(1, 2**15 // max(1, len(columns)))
    for start in range(0, len(rows), step):
        block = X[rows[start : start + step, None], columns] + 0.0  # a copy, in which -0.0 is 0.0
        block[np.isnan(block)] = np.nan  # one bit pattern for every NaN
        if digits.any():
            rounded = _rounded(block, digits.max(), shift)
            block = rounded if digits.all() else np.where(digits > 0, rounded, block)
        hashes[start : start + step] = _mixed(block.view(np.uint64) ^ keys).sum(axis=1)
    return hashes


def _rounded(values: Float, digits: int, shift: float) -> Float:
    """Round to significant digits; a shift other than a half moves the rounding edges."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(values)))
        scale = _POWERS[
            np.fmin(np.fmax(places, -_MAX_EXPONENT), _MAX_EXPONENT).astype(np.int64) + _MAX_EXPONENT
        ]
        return np.floor(values * scale + shift) / scale


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix every bit into all 64 (the last step of SplitMix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _notes(n: int, equal: int, rounded: int, whole: int, ignored: Sequence[object]) -> tuple[str, ...]:
    notes = []
    if equal < n:
        notes.append(f"{_rows(n - equal, n, 'repeat')} an earlier row; copies are kept in the same part.")
    if rounded < equal:
        notes.append(
            f"{_rows(equal - rounded, n, 'equal')} an earlier row after rounding to {SIGNIFICANT_DIGITS} significant "
            "digits; such near-copies are kept in the same part."
        )
    if whole < rounded:
        notes.append(
            f"{_rows(rounded - whole, n, 'equal')} an earlier row except for identifiers or dates "
            f"({listed(ignored)}); such near-copies are kept in the same part."
        )
    return tuple(notes)


def _rows(some: int, n: int, verb: str) -> str:
    return f"{some:,} of {n:,} rows {verb}{'s' * (some == 1)}"


def _few_note(distinct: int, n: int) -> str:
    return (
        f"The {n:,} rows have only {distinct} distinct values, too few to keep copies of a row in the same part; "
        "held-out rows repeat rows that the model was trained on."
    )
