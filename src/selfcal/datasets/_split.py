"""Cutting a table into parts that keep the class proportions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfcal._checks import Float, Int, in_range, positive_int, same_length
from selfcal.errors import ConfigError, DataError

FRACTION_SUM_TOLERANCE = 1e-5
"""How far fractions may be from one in sum: thirds written with six digits pass, a forgotten part fails."""


class Part(NamedTuple):
    """Rows of a table with their labels."""

    X: NDArray[Any]
    y: NDArray[Any]


class ThreeWaySplit(NamedTuple):
    """The three parts of an experiment; no row is in two of them."""

    train: Part
    validation: Part
    test: Part


def three_way_split(
    X: ArrayLike, y: ArrayLike, sizes: tuple[int, int, int] = (700, 300, 1000), seed: int = 0
) -> ThreeWaySplit:
    """Cut a table into train, validation and test rows of exact sizes, stratified by class.

    Args:
        X: the table, one row per sample.
        y: one label per row, of any type that sorts.
        sizes: rows of train, validation and test; rows beyond their sum are left out.
        seed: which rows go where.

    Returns:
        A `ThreeWaySplit`, each part with its `X` and `y` in the order of the table.

    Example:
        >>> from selfcal.datasets import Blobs
        >>> split = three_way_split(*Blobs().sample(2000, seed=0))
        >>> split.train.X.shape, split.validation.X.shape, split.test.y.shape
        ((700, 2), (300, 2), (1000,))
    """
    table, labels = np.asarray(X), np.asarray(y)
    same_length(X=table, y=labels)
    if len(sizes) != 3:
        raise ConfigError(f"sizes must hold three whole numbers (train, validation, test); got {sizes!r}.")
    whole = [positive_int(f"sizes[{k}]", size) for k, size in enumerate(sizes)]
    return ThreeWaySplit(*(Part(table[rows], labels[rows]) for rows in stratified_split(labels, whole, seed)))


def stratified_split(y: ArrayLike, sizes_or_fractions: Sequence[float], seed: int) -> list[Int]:
    """Cut rows into disjoint parts that keep the class proportions as closely as whole rows allow.

    Fractions share out every class by itself: part k of a class with n_c rows gets floor(n_c f_k), and the
    rows that are left go to the largest remainders n_c f_k - floor(n_c f_k). A class with at least as many
    rows as there are parts is in every part; a smaller class puts one row in the first part, one in the
    second, and so on. Since each class is rounded by itself, the size of a part can be off by a row per class.
    Whole numbers give parts of exactly those sizes, filled in turn: the rows of each are shared out over what
    is left of the classes, again by largest remainder.

    Args:
        y: one label per row, of any type that sorts.
        sizes_or_fractions: fractions that sum to one, or whole numbers of rows (the rest is left out).
        seed: which rows go where; how many of each class does not depend on it.

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
        table = _share_sizes(counts, [positive_int("size of a part", size) for size in sizes])
    else:
        table = _share_fractions(counts, _checked_fractions(sizes_or_fractions))

    rng = np.random.default_rng(positive_int("seed", seed, low=0))
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    table = np.column_stack([table, counts - table.sum(axis=1)])  # the last column is left out
    part = np.repeat(np.tile(np.arange(table.shape[1]), len(counts)), table.ravel())
    return [np.sort(by_class[part == k]) for k in range(len(sizes_or_fractions))]


def _checked_fractions(fractions: Sequence[float]) -> Float:
    checked = np.array([in_range("fraction of a part", f, 0.0, 1.0, open_low=True) for f in fractions])
    if abs(checked.sum() - 1) > FRACTION_SUM_TOLERANCE:
        raise ConfigError(
            f"fractions must sum to one; {tuple(fractions)} sums to {checked.sum():g}. "
            "For parts of fixed size pass whole numbers."
        )
    fractions_of_one: Float = checked / checked.sum()
    return fractions_of_one


def _share_fractions(counts: Int, fractions: Float) -> Int:
    """Return how many rows of each class (row) go to each part (column), class by class."""
    table = _largest_remainder(counts[:, None] * fractions, counts)
    for _ in range(len(fractions) - 1):  # each pass fills one empty part of every class that can fill all
        rows = np.flatnonzero((table == 0).any(axis=1))
        table[rows, table[rows].argmax(axis=1)] -= 1
        table[rows, (table[rows] == 0).argmax(axis=1)] += 1
    few = counts < len(fractions)
    table[few] = np.arange(len(fractions)) < counts[few, None]
    return table


def _share_sizes(counts: Int, sizes: Sequence[int]) -> Int:
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
