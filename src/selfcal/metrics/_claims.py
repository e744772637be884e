"""Sums over claims, a confidence and whether it was right, in every partition of the confidences at once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfcal._support.binning import Chunk, Closed, uniform_edges
from selfcal._support.checks import Float, Int

N_CELLS = 4096
"""Cells of the histogram of confidences: 128 for each halving of the doubt 1 - c, down to 2^-32."""
_SHIFT = 16
_LOWEST = ((127 - 32) << 23) >> _SHIFT  # of the bits of 2^-32 as a float32
N_PERCENTS = 100
DEGREES = (1, 0, 2, 1, 1, 2)
"""The power of the weights in each row of the totals: weight, count, squared weight, weighted doubt d, weighted
squared doubt, and squared weight times d (1 - d)."""


def doubt_cell(doubt: NDArray[np.floating]) -> Int:
    """Return the cell of each doubt, 1 - confidence; cell 0 is the most confident.

    The bits of a positive float32 are in the order of its value, so that a shift gives cells of equal relative
    width: fine where confidences are high and most predictions are. A cell holds its upper end.

    >>> doubt_cell(np.array([0.0, 0.25, 0.5, 1.0]))
    array([   0, 3839, 3967, 4095])
    """
    bits = doubt.astype(np.float32).view(np.int32)
    return np.maximum(((bits - 1) >> _SHIFT) - _LOWEST, 0).astype(np.int64)


def thresholds() -> Float:
    """Return the lowest confidence in each cell, in falling order.

    >>> thresholds()[[3839, 3967, 4095]]
    array([0.75, 0.5 , 0.  ])
    """
    upper = ((np.arange(1, N_CELLS + 1) + _LOWEST) << _SHIFT).astype(np.int32).view(np.float32)
    return 1 - upper.astype(np.float64)


class ClaimMoments:
    """Sums over claims in the bins of the calibration error, in those of one percent, and in the cells of doubt.

    Rows are counted once for all three: in the cells of doubt, divided at the edges of the others.

    Args:
        n_bins: Number of bins of the calibration error.
        closed: The side on which they are closed.
        weighted: Whether the rows have weights.
    """

    def __init__(self, n_bins: int, closed: Closed, *, weighted: bool) -> None:
        self._cells = _divided_cells(n_bins, closed)
        # of claims that are wrong, then of those that are right; without weights, only count, doubt and squared doubt
        self._sums = np.zeros((len(DEGREES) if weighted else 3, 2 * self._cells.size))

    def add(self, claim: Chunk) -> Int:
        """Add rows, and return the cell of the doubt of each."""
        confidence = claim.confidence.astype(np.float64, copy=False)
        doubt, w = 1 - confidence, claim.weight
        cell = doubt_cell(doubt)
        index = self._cells.index(confidence, cell)
        index += self._cells.size * claim.correct.astype(np.int64)
        values: tuple[NDArray[Any] | float, ...] = (1.0, doubt, doubt * doubt)
        if w is not None:
            values = (
                w,
                (w > 0).astype(np.float64),
                w * w,
                w * doubt,
                w * doubt * doubt,
                w * w * (doubt - doubt * doubt),
            )
        for sums, of_each in zip(self._sums, values, strict=True):
            np.add.at(sums, index, of_each)
        return cell

    def totals(self) -> Float:
        """The sums in the divided cells, as rows: those of `DEGREES`, whether there are weights or not."""
        if len(self._sums) == len(DEGREES):
            return self._sums
        n, doubt, squared = self._sums
        return np.stack([n, n, n, doubt, squared, doubt - squared])


def partition_sums(totals: Float, n_bins: int, closed: Closed) -> dict[str, Float]:
    """The sums of `chunk_sums` in each partition, and the squares of correctness minus confidence per bin.

    The second row of the squares has the squared weights times c (1 - c).
    """
    cells = _divided_cells(n_bins, closed)
    moments = totals.reshape(len(DEGREES), 2, cells.size)
    bins = cells.joined(moments, "bins")
    wrong, right = bins[:, 0], bins[:, 1]
    squares = right[4] + wrong[0] - 2 * wrong[3] + wrong[4]  # c is one minus the doubt
    return {
        "top_label": _chunk_sums(bins),
        "percent": _chunk_sums(cells.joined(moments, "percents")),
        "histogram": _chunk_sums(cells.joined(moments, "cells")),
        "claim_squares": np.maximum([squares, bins[5].sum(axis=0)], 0.0),
    }


def no_totals(n_bins: int, closed: Closed) -> Float:
    """The totals of no claims."""
    return np.zeros((len(DEGREES), 2 * _divided_cells(n_bins, closed).size))


def _chunk_sums(moments: Float) -> Float:
    """Weight, count, squared weight, weighted confidence and weighted correctness, as `chunk_sums` returns them."""
    weight, count, squared, doubt = moments[:4].sum(axis=1)
    return np.stack([weight, count, squared, weight - doubt, moments[0, 1]])


class _DividedCells:
    """The cells of doubt, divided at the edges of bins and percents, in the order of falling confidence."""

    def __init__(self, n_bins: int, closed: Closed) -> None:
        bins, percents = uniform_edges(n_bins)[1:-1], uniform_edges(N_PERCENTS)[1:-1]
        if closed == "left":
            bins = np.nextafter(bins, 0)  # the last number of [a, b)
        edges = np.unique(np.concatenate([bins, percents]))[::-1]
        cell = doubt_cell(1 - edges)
        per_cell = np.bincount(cell, minlength=N_CELLS)
        before = np.cumsum(per_cell) - per_cell
        self._first = np.arange(N_CELLS) + before
        self._edges = np.full((per_cell.max(), N_CELLS), -np.inf)
        self._edges[np.arange(len(edges)) - before[cell], cell] = edges
        self.size = N_CELLS + len(edges)
        below = (
            self._first[cell] + np.arange(len(edges)) - before[cell] + 1
        )  # the divided cell below each edge
        self._starts = {
            "cells": self._first,
            "bins": np.append(0, below[np.isin(edges, bins)]),
            "percents": np.append(0, below[np.isin(edges, percents)]),
        }

    def index(self, confidence: Float, cell: Int) -> Int:
        """The divided cell of each confidence, given its cell."""
        index = self._first.take(cell)
        for edges in self._edges:
            index += confidence <= edges.take(cell)
        return index

    def joined(self, sums: Float, partition: str) -> Float:
        """The sums of each cell, or of each bin or percent in the order of rising confidence."""
        found = np.add.reduceat(sums, self._starts[partition], axis=-1)
        return found if partition == "cells" else found[..., ::-1]


_divided_cells = lru_cache(_DividedCells)
