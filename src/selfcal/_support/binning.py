"""Bin edges and weighted bin sums, used by metrics, calibrators and plots.

A bin is `(a, b]` and the first one also holds 0; with `closed="left"` it is `[a, b)` and the last one also
holds 1. There are never more bins than requested. Values are compared with the edges in float64 without
rounding: the float32 nearest to 0.2 is a little more than 0.2 and lies above that edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selfcal._support import checks
from selfcal._support.checks import Float, Int

Closed = Literal["right", "left"]
Strategy = Literal["uniform", "quantile"]
Norm = Literal["l1", "l2", "max"]

BLOCK_ELEMENTS = 1 << 17
"""Elements per block: half a megabyte of float32, so that a block stays in the processor's cache."""


class Chunk(NamedTuple):
    """Rows to bin: the confidence of each, whether it is correct (or the probability of that), and its weight."""

    confidence: NDArray[np.floating]
    correct: NDArray[np.floating] | NDArray[np.bool_]
    weight: Float | None = None


@dataclass(frozen=True, eq=False)
class Bins:
    """Weighted sums of confidence and correctness over bins of confidence.

    An empty bin has weight and count 0, and its midpoint as both confidence and accuracy: its gap is zero and
    nothing is NaN.

    Attributes:
        edges: The n + 1 edges, from 0 to 1.
        weight: Sum of the sample weights in each bin.
        count: Number of rows with positive weight in each bin.
        effective_count: `(sum w)^2 / sum w^2` in each bin; equals `count` when all weights are equal.
        confidence: Weighted mean confidence in each bin.
        accuracy: Weighted mean correctness in each bin.
        closed: The side on which the bins are closed.
    """

    edges: Float
    weight: Float
    count: Int
    effective_count: Float
    confidence: Float
    accuracy: Float
    closed: Closed = "right"

    @property
    def gap(self) -> Float:
        """Accuracy minus confidence: negative where the model is over-confident."""
        return self.accuracy - self.confidence

    @property
    def share(self) -> Float:
        """Fraction of the total weight in each bin."""
        return self.weight / float(self.weight.sum())

    @property
    def mean_confidence(self) -> float:
        """Weighted mean confidence over all rows."""
        return float(self.share @ self.confidence)

    @property
    def mean_accuracy(self) -> float:
        """Weighted mean correctness over all rows."""
        return float(self.share @ self.accuracy)


def row_blocks(n_rows: int, n_columns: int = 1) -> Iterator[slice]:
    """Yield slices over the rows, each of about `BLOCK_ELEMENTS` numbers."""
    step = max(1, BLOCK_ELEMENTS // n_columns)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def uniform_edges(n_bins: int) -> Float:
    """Return the edges `k / n_bins`, each the float nearest to that fraction (linspace is not).

    >>> uniform_edges(10)[3] == 0.3, np.linspace(0, 1, 11)[3] == 0.3
    (np.True_, np.False_)
    """
    return np.arange(n_bins + 1) / n_bins


def quantile_edges(
    confidence: NDArray[np.floating],
    n_bins: int,
    *,
    sample_weight: Float | None = None,
    closed: Closed = "right",
) -> Float:
    """Return edges of bins of equal weight; equal confidences are always in one bin, so there may be fewer bins.

    The j-th inner edge is the smallest observed v with `weight(c <= v) >= j / n_bins` of the whole or, with
    `closed="left"`, the largest with `weight(c < v) <= j / n_bins`. No bin is empty.

    >>> quantile_edges(np.array([0.5, 0.6, 0.7, 0.8]), 2)
    array([0. , 0.6, 1. ])
    >>> quantile_edges(np.array([0.9, 0.9, 0.9, 0.9]), 2)
    array([0., 1.])
    """
    if sample_weight is not None:
        confidence, sample_weight = confidence[sample_weight > 0], sample_weight[sample_weight > 0]
        order = np.argsort(confidence, kind="stable")
        values, mass = confidence[order], np.cumsum(sample_weight[order])
    else:
        values = np.sort(confidence)
        mass = np.arange(1.0, len(values) + 1)
    target = np.arange(1, n_bins) * mass[-1] / n_bins
    if closed == "right":
        inner = values[np.searchsorted(mass, target, side="left")]
        inner = inner[inner < values[-1]]
    else:
        inner = values[np.searchsorted(mass, target, side="right")]
        inner = inner[inner > values[0]]
    return np.unique(np.concatenate([[0.0], inner, [1.0]]))


def bin_index(confidence: NDArray[np.floating], edges: Float, closed: Closed = "right") -> Int:
    """Return the bin of each confidence, from 0 to `len(edges) - 2`.

    >>> bin_index(np.array([0.0, 0.25, 0.26, 1.0]), uniform_edges(4))
    array([0, 0, 1, 3])
    >>> bin_index(np.array([0.0, 0.25, 0.26, 1.0]), uniform_edges(4), closed="left")
    array([0, 1, 1, 3])
    """
    c = checks.as_array(confidence, np.float64)
    n_bins = len(edges) - 1
    if closed == "right" and np.array_equal(edges, uniform_edges(n_bins)):
        # eight times faster than a search; rounding can only make the guess one too high
        guess = (c * n_bins).astype(np.int64)
        guarded = np.concatenate([[-np.inf], edges[1:]])
        guess -= c <= guarded.take(guess)
        return guess
    return np.searchsorted(edges[1:-1], c, side="left" if closed == "right" else "right")


def check_binning(n_bins: int, strategy: str, closed: str) -> None:
    """Raise ConfigError for invalid settings of the bins."""
    checks.positive_int("n_bins", n_bins)
    checks.one_of("strategy", strategy, ("uniform", "quantile"))
    checks.one_of("closed", closed, ("right", "left"))


def bin_chunks(
    chunks: Iterable[Chunk], *, n_bins: int = 15, strategy: Strategy = "uniform", closed: Closed = "right"
) -> Bins:
    """Bin rows given in chunks; "uniform" keeps only the sums, "quantile" must keep every row.

    Args:
        chunks: Rows with confidences and correctness in [0, 1], already checked.
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for equal width, "quantile" for equal weight.
        closed: The side on which a bin holds its edge.

    Returns:
        The sums and means per bin.
    """
    check_binning(n_bins, strategy, closed)
    edges = uniform_edges(n_bins)
    if strategy == "quantile":
        kept = joined(chunks)
        edges = quantile_edges(kept.confidence, n_bins, sample_weight=kept.weight, closed=closed)
        chunks = [kept]
    sums = np.zeros((5, len(edges) - 1))
    for chunk in chunks:
        sums += chunk_sums(chunk, edges, closed)
    return bins_from_sums(sums, edges, closed)


def bins_from_sums(sums: Float, edges: Float, closed: Closed) -> Bins:
    """Return the bins for the total of `chunk_sums` over all rows."""
    weight, count, squared, confidence, accuracy = sums
    filled = weight > 0
    middle = (edges[1:] + edges[:-1]) / 2
    divisor = np.where(filled, weight, 1.0)
    return Bins(
        edges=edges,
        weight=weight,
        count=count.astype(np.int64),
        effective_count=effective_counts(weight, squared, count),
        confidence=np.where(filled, confidence / divisor, middle),
        accuracy=np.where(filled, accuracy / divisor, middle),
        closed=closed,
    )


def effective_counts(weight: Float, squared: Float, count: Float) -> Float:
    """Return `(sum w)^2 / sum w^2`; the number of rows where the squared weights underflow."""
    known = squared > 0
    return np.where(known, weight**2 / np.where(known, squared, 1.0), count)


def gap_norm(weight: Float, gap: Float, norm: Norm) -> Float:
    """Return a norm of the gaps of (rows of) bins; the weights sum to one for each row."""
    checks.one_of("norm", norm, ("l1", "l2", "max"))
    distance = np.abs(gap)
    if norm == "max":
        return np.asarray(distance.max(axis=-1))
    total = np.sum(weight * (distance if norm == "l1" else distance**2), axis=-1)
    return np.asarray(total if norm == "l1" else np.sqrt(total))


def array_chunks(correct: Float, confidence: Float, sample_weight: Float | None = None) -> Iterator[Chunk]:
    """Split arrays into chunks that fit the processor's cache."""
    for rows in row_blocks(len(confidence)):
        yield Chunk(confidence[rows], correct[rows], None if sample_weight is None else sample_weight[rows])


def chunk_sums(chunk: Chunk, edges: Float, closed: Closed) -> Float:
    """Weight, count, squared weight, weighted confidence and weighted correctness of each bin."""
    return indexed_sums(bin_index(chunk.confidence, edges, closed), chunk, len(edges) - 1)


def indexed_sums(index: Int, chunk: Chunk, n_bins: int) -> Float:
    """The same sums, for bins that are given by the index of each row."""

    def total(values: NDArray[np.floating] | NDArray[np.bool_] | None = None) -> NDArray[np.number]:
        return np.bincount(index, weights=values, minlength=n_bins)

    w = chunk.weight
    if w is None and chunk.correct.dtype == bool:  # whole numbers are counted faster than weights are summed
        wrong, right = np.bincount(index + n_bins * chunk.correct, minlength=2 * n_bins).reshape(2, n_bins)
        count = wrong + right
        return np.array([count, count, count, total(chunk.confidence), right], dtype=np.float64)
    if w is None:
        rows, sums = total(), (total(chunk.confidence), total(chunk.correct))
        return np.array([rows, rows, rows, *sums], dtype=np.float64)
    return np.stack(
        [total(w), total(w > 0), total(w * w), total(w * chunk.confidence), total(w * chunk.correct)]
    )


def joined(chunks: Iterable[Chunk]) -> Chunk:
    """Return all chunks as one."""
    confidence, correct, weight = zip(*chunks, strict=True)
    return Chunk(
        np.concatenate(confidence),
        np.concatenate(correct),
        None if weight[0] is None else np.concatenate(weight),
    )
