"""Splitting a table into parts that keep the class proportions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfcal._support.checks import positive_int, same_length
from selfcal._support.splits import stratified_split
from selfcal.errors import ConfigError


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
    """Split a table into train, validation and test rows of exact sizes, stratified by class.

    Args:
        X: the table, one row per sample.
        y: One label per row, of any type that sorts.
        sizes: Rows of train, validation and test; rows beyond their sum are left out.
        seed: Seed of the split.

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
