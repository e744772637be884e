"""Validated rows in cache-sized blocks: the input of every metric of `(y_true, probs)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfcal._support import checks
from selfcal._support.binning import Chunk, joined, row_blocks
from selfcal._support.checks import Float, Int


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows of predictions, one class after the other, which makes sums and maxima over classes fast.

    Attributes:
        columns: One row per class, in float64 or, if that holds the input exactly, in float32.
        top: The largest probability of each row.
        codes: The number of the true class of each row.
        weight: The weight of each row; None for equal ones.
    """

    columns: NDArray[np.floating]
    top: NDArray[np.floating]
    codes: Int
    weight: Float | None

    @cached_property
    def place(self) -> Int:
        """Where the true class of each row is among all numbers of `columns`."""
        n = len(self.codes)
        place = self.codes * n
        place += np.arange(n)
        return place

    @cached_property
    def true_class(self) -> Float:
        """The predicted probability of the true class of each row."""
        return self.columns.ravel().take(self.place).astype(np.float64)

    @cached_property
    def choice(self) -> Int:
        """The first argmax of each row."""
        k = len(self.columns)
        ranks = np.arange(k, 0, -1, dtype=np.min_scalar_type(k))[
            :, None
        ]  # of ties, the first has the highest
        return k - ((self.columns == self.top) * ranks).max(axis=0).astype(np.int64)

    def top_label(self) -> Chunk:
        """Confidence max(p) of each row, and whether its first argmax is the true class."""
        return Chunk(self.top, self.choice == self.codes, self.weight)

    def of_class(self, code: int) -> Chunk:
        """Probability of one class in each row, and whether it is the true one."""
        return Chunk(self.columns[code], self.codes == code, self.weight)


def blocks(
    y_true: ArrayLike,
    probs: ArrayLike,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Iterator[Block]:
    """Check the input of a metric and yield it in blocks, without a copy of the whole."""
    p: NDArray[Any] = (
        checks.as_array(probs) if hasattr(probs, "__array__") else checks.numbers(probs, "probs")
    )
    if p.ndim != 2 or p.shape[0] == 0 or p.shape[1] < 2 or p.dtype.kind not in "fiub":
        p = checks.probabilities(probs)
    codes = _codes(checks.as_array(y_true), p.shape[1], classes)
    checks.same_length(y_true=codes, probs=p)
    weight = checks.sample_weights(sample_weight, len(p))
    for rows in row_blocks(*p.shape):
        columns, top = _columns(p, rows)
        numbers = codes[rows].astype(np.int64, copy=False)
        yield Block(columns, top, numbers, None if weight is None else weight[rows])


def top_labels(
    y_true: ArrayLike, probs: ArrayLike, classes: ArrayLike | None, sample_weight: ArrayLike | None
) -> Iterator[Chunk]:
    """Check the input of a metric and yield the confidence of each row and whether it was correct."""
    return (block.top_label() for block in blocks(y_true, probs, classes, sample_weight))


def each_class(rows: Iterable[Block]) -> Iterator[Chunk]:
    """Yield the whole column of each class in turn; keeps every row."""
    kept = list(rows)
    for code in range(len(kept[0].columns)):
        yield joined(block.of_class(code) for block in kept)


def normalized_weights(chunk: Chunk) -> tuple[Float, Float, Float]:
    """Return confidence, correctness and normalised weight, in float64, of the rows with positive weight."""
    c, a, w = chunk.confidence.astype(np.float64), chunk.correct.astype(np.float64), chunk.weight
    if w is None:
        return c, a, np.full(len(c), 1 / len(c))
    some = w > 0
    return c[some], a[some], w[some] / w.sum()


def mean_over_rows(
    per_row: Callable[[Block], NDArray[Any]],
    y_true: ArrayLike,
    probs: ArrayLike,
    classes: ArrayLike | None,
    sample_weight: ArrayLike | None,
) -> float:
    """Return the weighted mean of a value per row."""
    total = weight = 0.0
    for block in blocks(y_true, probs, classes, sample_weight):
        values = per_row(block)
        total += float(values.sum() if block.weight is None else block.weight @ values)
        weight += float(len(values) if block.weight is None else block.weight.sum())
    return total / weight


def values_per_row(
    per_row: Callable[[Block], NDArray[Any]], y_true: ArrayLike, probs: ArrayLike, classes: ArrayLike | None
) -> Float:
    """Return a value per row, for all rows."""
    values = [per_row(block) for block in blocks(y_true, probs, classes)]
    return np.concatenate(values).astype(np.float64, copy=False)


def claims(
    y_true: ArrayLike,
    probs: ArrayLike,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    *,
    of_class: Any = None,
) -> Chunk:
    """Return the confidence of each row in its top label (or in one class), and whether it was correct."""

    def claim(block: Block) -> Chunk:
        if of_class is None:
            return block.top_label()
        code = checks.label_codes([of_class], len(block.columns), classes, name="of_class")[0]
        return block.of_class(int(code))

    every = joined(claim(block) for block in blocks(y_true, probs, classes, sample_weight))
    return Chunk(every.confidence.astype(np.float64), every.correct.astype(np.float64), every.weight)


def _columns(p: NDArray[Any], rows: slice) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    dtype = np.float32 if p.dtype in (np.float16, np.float32) else np.float64
    columns: NDArray[np.floating] = np.array(p[rows].T, dtype=dtype, order="C")
    # the bits of numbers in [0, 1] are in the order of the numbers, and below those of all others and of NaN
    bits = columns.view(f"u{columns.itemsize}").max(axis=0)
    top = bits.view(dtype)
    with np.errstate(invalid="ignore"):
        off = np.abs(columns.sum(axis=0) - 1).max()
    if not (bits.max() <= dtype(1).view(bits.dtype) and off <= checks.rounding_tolerance(p)):
        checks.probabilities(p)  # beyond rounding: names the first bad row of the whole table
        np.clip(columns, 0, 1, out=columns)
        top = columns.max(axis=0)
    return columns, top


def _codes(y: NDArray[Any], n_classes: int, classes: ArrayLike | None) -> NDArray[np.integer]:
    ready = classes is None and y.ndim == 1 and y.size > 0 and y.dtype.kind in "iu"
    if ready and y.min() >= 0 and y.max() < n_classes:
        return y
    return checks.label_codes(y, n_classes, classes)
