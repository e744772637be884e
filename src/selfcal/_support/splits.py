"""Splits of rows: stratified by class, whole groups at a time, and into folds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support.checks import Float, Int, in_range, positive_int
from selfcal.errors import ConfigError, DataError

FRACTION_SUM_TOLERANCE = 1e-5
"""Tolerance for the sum of fractions: thirds with six digits pass, a missing part fails."""


def stratified_split(y: ArrayLike, sizes_or_fractions: Sequence[float], seed: int) -> list[Int]:
    """Split rows into disjoint parts that keep the class proportions as closely as whole rows allow.

    With fractions, every class is split separately: part k of a class with n_c rows gets floor(n_c f_k) rows, and
    the remaining rows go to the largest remainders n_c f_k - floor(n_c f_k). A class with at least as many rows as
    there are parts is in every part; a smaller class puts one row in the first part, one in the second, and so on.
    Since each class is rounded separately, the size of a part can be off by one row per class. Whole numbers give
    parts of exactly those sizes, filled one after the other: the rows of each are allocated to the remaining rows of
    the classes, again by largest remainder.

    Args:
        y: One label per row, of any type that sorts.
        sizes_or_fractions: Fractions that sum to one, or whole numbers of rows (other rows are left out).
        seed: Seed of the random assignment; the number of rows per class does not depend on it.

    Returns:
        Sorted row numbers for each part; with fractions they cover all rows.

    Example:
        >>> train, outer, selection = stratified_split([0] * 20 + [1] * 20, (0.7, 0.15, 0.15), seed=0)
        >>> len(train), len(outer), len(selection)
        (28, 6, 6)
        >>> [len(part) for part in stratified_split([0] * 20 + [1] * 20, (10, 5), seed=0)]
        [10, 5]

    Reference:
        M. Balinski and H. P. Young, Fair Representation, 1982 (Hamilton's method of largest remainders).
    """
    labels = np.asarray(y)
    if len(sizes_or_fractions) == 0:
        raise ConfigError("sizes_or_fractions must name at least one part; got none. Try (0.8, 0.2).")
    if labels.ndim != 1 or labels.size == 0:
        raise DataError(f"y must be a vector with at least one label; got shape {labels.shape}.")
    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    sizes = [size for size in sizes_or_fractions if isinstance(size, (int, np.integer))]
    if len(sizes) == len(sizes_or_fractions):
        table = _allocate_sizes(counts, [positive_int("size of a part", size) for size in sizes])
    else:
        table = _allocate_fractions(counts, _checked_fractions(sizes_or_fractions))

    rng = np.random.default_rng(positive_int("seed", seed, low=0))
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    table = np.column_stack([table, counts - table.sum(axis=1)])  # the last column is left out
    part = np.repeat(np.tile(np.arange(table.shape[1]), len(counts)), table.ravel())
    return [np.sort(by_class[part == k]) for k in range(len(sizes_or_fractions))]


def split_groups(codes: Int, groups: Int, fractions: Sequence[float], *, seed: int) -> list[Int]:
    """Split rows stratified by class, whole groups at a time; every class has a row in the first part.

    Where every row is a group, numbered in order, this is `stratified_split`.

    Example:
        >>> codes, groups = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 2, 3])
        >>> [part.tolist() for part in split_groups(codes, groups, (0.5, 0.5), seed=0)]
        [[0, 1, 3], [2, 4]]
    """
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    part = np.zeros(len(first), dtype=np.int64)
    for number, units in enumerate(stratified_split(codes[first], fractions, seed=seed)):
        part[units] = number
    lost = np.setdiff1d(codes, codes[part[member] == 0])  # a group may hold rows of several classes
    part[member[np.isin(codes, lost)]] = 0
    return [np.flatnonzero(part[member] == number) for number in range(len(fractions))]


def fold_numbers(codes: Int, folds: int, groups: Int | None = None, *, seed: int) -> Int:
    """Return the fold of each row, stratified by class, whole groups at a time; -1 for classes within one fold.

    Such a class is never held out, since a network cannot predict a class that it has not seen.

    Example:
        >>> fold_numbers(np.array([0, 0, 0, 0, 1]), 2, seed=0).tolist()
        [1, 0, 0, 1, -1]
    """
    groups = np.arange(len(codes)) if groups is None else groups
    _, first, member = np.unique(groups, return_index=True, return_inverse=True)
    fold, start, stream = np.full(len(first), -1), 0, np.random.default_rng(seed)
    for code in np.unique(codes):
        units = stream.permutation(np.flatnonzero(codes[first] == code))
        if len(units) > 1:
            # the next class continues where this one ends
            fold[units] = (start + np.arange(len(units))) % folds
            start += len(units)
    for code in np.unique(codes):  # a group may hold rows of several classes
        units = member[codes == code]
        if len(np.unique(fold[units])) == 1:
            fold[units] = -1
    if len(np.unique(fold[fold >= 0])) < folds:
        raise DataError(
            f"Too few rows for {folds} folds: got {len(codes)} rows, of which {int(np.sum(fold[member] >= 0))} can "
            "be held out (a class with a single row or group cannot). Pass more rows, or fewer folds."
        )
    numbers: Int = fold[member]
    return numbers


def _checked_fractions(fractions: Sequence[float]) -> Float:
    checked = np.array([in_range("fraction of a part", f, 0.0, 1.0, open_low=True) for f in fractions])
    if abs(checked.sum() - 1) > FRACTION_SUM_TOLERANCE:
        raise ConfigError(
            f"fractions must sum to one; {tuple(fractions)} sums to {checked.sum():g}. "
            "For parts of fixed size pass whole numbers."
        )
    fractions_of_one: Float = checked / checked.sum()
    return fractions_of_one


def _allocate_fractions(counts: Int, fractions: Float) -> Int:
    """Return how many rows of each class (row) go to each part (column), class by class."""
    table = _largest_remainder(counts[:, None] * fractions, counts)
    for _ in range(len(fractions) - 1):  # each pass fills one empty part of every class that can fill all
        rows = np.flatnonzero((table == 0).any(axis=1))
        table[rows, table[rows].argmax(axis=1)] -= 1
        table[rows, (table[rows] == 0).argmax(axis=1)] += 1
    few = counts < len(fractions)
    table[few] = np.arange(len(fractions)) < counts[few, None]
    return table


def _allocate_sizes(counts: Int, sizes: Sequence[int]) -> Int:
    """Return how many rows of each class (row) go to each part (column), part by part."""
    if sum(sizes) > counts.sum():
        raise DataError(
            f"The parts need {' + '.join(map(str, sizes))} = {sum(sizes)} rows; got {counts.sum()}. "
            "Pass smaller sizes, more rows, or fractions."
        )
    left, columns = counts.copy(), []
    for size in sizes:
        quota = left * (size / left.sum())
        columns.append(_largest_remainder(quota[None, :], np.array([size]))[0])
        left -= columns[-1]
    return np.column_stack(columns)


def _largest_remainder(quota: Float, totals: Int) -> Int:
    """Round each row of `quota` up or down to whole numbers with the given sum; ties go to the left."""
    floor = np.floor(quota).astype(np.int64)
    rank = np.argsort(np.argsort(floor - quota, axis=1, kind="stable"), axis=1)
    rounded: Int = floor + (rank < (totals - floor.sum(axis=1))[:, None])
    return rounded
