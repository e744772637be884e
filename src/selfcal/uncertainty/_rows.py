"""Training rows that distances are measured to: standardised, a bounded number of them, in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from selfcal._support.checks import Float, Int

DISTANCES = 2**17
"""Distances that are in memory at a time, which fit into the caches."""

MIN_BLOCK = 64
"""Fewer rows at a time would make matrix products slow."""


def scaling(x: Float) -> tuple[Float, Float]:
    """Return the mean and the standard deviation of each column; 1 for a constant one."""
    scale = x.std(axis=0)
    return x.mean(axis=0), np.where(scale > 0, scale, 1.0)


def drawn(codes: Int, max_rows: int | None, seed: int) -> Int:
    """Return row numbers, at most `max_rows`, as equally from each class as there are rows."""
    if max_rows is None or len(codes) <= max_rows:
        return np.arange(len(codes))
    order = np.random.default_rng(seed).permutation(len(codes))
    place = np.empty(
        len(codes), dtype=np.int64
    )  # of each row among those of its class, in the order of the draw
    for code in np.unique(codes):
        of_class = order[codes[order] == code]
        place[of_class] = np.arange(len(of_class))
    return np.sort(order[np.argsort(place[order], kind="stable")[:max_rows]])


def nearest(x: Float, rows: Float, starts: Int, k: int) -> Float:
    """Return the distance of each row of `x` to the k-th nearest of each part of `rows`.

    Args:
        x: Rows to score.
        rows: Training rows, those of one part next to each other.
        starts: The first row of each part.
        k: The rank of the neighbour; in a part of fewer rows, the last one.
    """
    found = np.empty((len(x), len(starts)))
    ends = [*starts[1:].tolist(), len(rows)]
    size = max(MIN_BLOCK, DISTANCES // len(rows))
    # half the squared distance, but for the part that the new row does not change: one matrix product, whose columns
    # are the new rows, so that the smallest of each part is found for many of them at once
    sides = np.column_stack([-rows, np.einsum("ij,ij->i", rows, rows) / 2])
    for first in range(0, len(x), size):
        block = x[first : first + size]
        products = sides @ np.column_stack([block, np.ones(len(block))]).T
        own = np.einsum("ij,ij->i", block, block)
        for part, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
            kth = _kth_smallest(products[start:end], k)
            found[first : first + size, part] = np.maximum(2 * kth + own, 0.0)
    return np.sqrt(found)


def _kth_smallest(values: Float, k: int) -> NDArray[np.float64]:
    """The k-th smallest of each column."""
    if k == 1:
        return values.min(axis=0)
    rank = min(k, len(values)) - 1
    return np.partition(values.T, rank, axis=1)[:, rank]
