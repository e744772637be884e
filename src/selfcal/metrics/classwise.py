"""Binned calibration errors of every class: of each column, of one column, of each predicted class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.binning import (
    Bins,
    Chunk,
    Closed,
    Norm,
    Strategy,
    bin_chunks,
    bin_index,
    bins_from_sums,
    check_binning,
    gap_norm,
    joined,
    uniform_edges,
)
from selfcal._support.checks import Float
from selfcal.metrics._norms import check_norm, error_of_bins
from selfcal.metrics._rows import Block, blocks, each_class


def classwise_calibration_error(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    debias: bool = False,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Calibration error of each column p_k against `1[y = k]`, averaged over all classes with equal weight.

    `1/K sum_k error_k` for norm "l1", `sqrt(1/K sum_k error_k^2)` for "l2", the largest for "max"; classes that
    no row has count as well. Also known as static calibration error, and with `strategy="quantile"` as
    adaptive calibration error.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        n_bins: Number of bins per class (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1", "l2" or "max", as in `confidence_calibration_error`.
        closed: "right" for bins (a, b], "left" for [a, b).
        debias: Whether to subtract the expected contribution of label noise; for "l1" and "l2".
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1].

    >>> round(classwise_calibration_error([0, 1, 2], [[0.8, 0.2, 0.0], [0.5, 0.5, 0.0], [0.1, 0.1, 0.8]]), 6)
    0.2

    References: Nixon et al., Measuring Calibration in Deep Learning, CVPR Workshops 2019; Kull et al., Beyond
    Temperature Scaling, NeurIPS 2019.
    """
    check_norm(norm, debias)
    check_binning(n_bins, strategy, closed)
    rows = blocks(y_true, probs, classes, sample_weight)
    if strategy == "uniform":
        curves = _uniform_columns(rows, n_bins, closed)
    else:
        curves = [
            bin_chunks([column], n_bins=n_bins, strategy=strategy, closed=closed)
            for column in each_class(rows)
        ]
    errors = np.array([error_of_bins(curve, norm, debias=debias) for curve in curves])
    return float(gap_norm(np.full(len(errors), 1 / len(errors)), errors, norm))


def top_label_conditional_calibration_error(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    debias: bool = False,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Top-label calibration error conditional on the predicted class: gaps of different classes do not cancel.

    `sum_k s_k error_k` for norm "l1", with error_k the calibration error of max(p) over the rows whose first
    argmax is k and s_k their fraction of the weight; `sqrt(sum_k s_k error_k^2)` for "l2", the largest for "max".

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        n_bins: Number of bins per predicted class (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1", "l2" or "max", as in `confidence_calibration_error`.
        closed: "right" for bins (a, b], "left" for [a, b).
        debias: Whether to subtract the expected contribution of label noise; for "l1" and "l2".
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1]; with norm "l1" at least the top-label error of the same bins.

    >>> probs = [[0.8, 0.2], [0.8, 0.2], [0.2, 0.8], [0.2, 0.8]]
    >>> round(top_label_conditional_calibration_error([0, 0, 1, 0], probs), 6)
    0.25

    Reference: Gupta, Ramdas, Top-label Calibration and Multiclass-to-Binary Reductions, ICLR 2022.
    """
    check_norm(norm, debias)
    curves = [
        bin_chunks([rows], n_bins=n_bins, strategy=strategy, closed=closed)
        for rows in _by_prediction(blocks(y_true, probs, classes, sample_weight))
    ]
    weight = np.array([curve.weight.sum() for curve in curves])
    errors = np.array([error_of_bins(curve, norm, debias=debias) for curve in curves])
    return float(gap_norm(weight / weight.sum(), errors, norm))


def binary_calibration_error(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    positive: Any = None,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    debias: bool = False,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Calibration error of P(y = positive) over its whole range, whichever class is predicted.

    `sum_b s_b |fraction of positives_b - mean p_b|` over bins of the column p of the positive class. Another
    number than the top-label error, which bins max(p).

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        positive: The label whose probability is evaluated; None for that of the last column, as in P(y=1).
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1", "l2" or "max", as in `confidence_calibration_error`.
        closed: "right" for bins (a, b], "left" for [a, b).
        debias: Whether to subtract the expected contribution of label noise; for "l1" and "l2".
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1].

    >>> round(binary_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.3
    """
    check_norm(norm, debias)

    def claim(block: Block) -> Chunk:
        code = len(block.columns) - 1
        if positive is not None:
            code = int(checks.label_codes([positive], len(block.columns), classes, name="positive")[0])
        return block.of_class(code)

    chunks = (claim(block) for block in blocks(y_true, probs, classes, sample_weight))
    curve = bin_chunks(chunks, n_bins=n_bins, strategy=strategy, closed=closed)
    return error_of_bins(curve, norm, debias=debias)


def _uniform_columns(rows: Iterable[Block], n_bins: int, closed: Closed) -> list[Bins]:
    edges = uniform_edges(n_bins)
    every = (column_sums(block, edges, closed) for block in rows)
    return column_bins(sum(every, start=np.zeros(())), edges, closed)


def column_sums(block: Block, edges: Float, closed: Closed) -> Float:
    """The sums of `chunk_sums` for all columns at once, of shape (5, classes, bins).

    Each class has its own bins, one index serves all sums, and only the true classes are counted as hits.
    """
    (k, n), n_bins, w = block.columns.shape, len(edges) - 1, block.weight
    index = bin_index(block.columns.ravel(), edges, closed).reshape(k, n)
    index += (np.arange(k) * n_bins)[:, None]
    flat, true, size = index.ravel(), index[block.codes, np.arange(n)], k * n_bins
    if w is None:
        count = np.bincount(flat, minlength=size)
        confidence = np.bincount(flat, block.columns.ravel(), minlength=size)
        sums = [count, count, count, confidence, np.bincount(true, minlength=size)]
    else:
        every = (np.tile(w, k), np.tile(w > 0, k), np.tile(w * w, k), (block.columns * w).ravel())
        totals = [np.bincount(flat, values, minlength=size) for values in every]
        sums = [*totals, np.bincount(true, w, minlength=size)]
    return np.stack(sums).astype(np.float64).reshape(5, k, n_bins)


def column_bins(sums: Float, edges: Float, closed: Closed) -> list[Bins]:
    """The bins of each column, of what its `column_sums` add up to."""
    return [bins_from_sums(of_class, edges, closed) for of_class in sums.transpose(1, 0, 2)]


def _by_prediction(rows: Iterable[Block]) -> Iterator[Chunk]:
    """Yield the rows of each class that is predicted at least once with some weight."""
    predictions, chunks = zip(
        *((block.columns.argmax(axis=0), block.top_label()) for block in rows), strict=True
    )
    predicted, every = np.concatenate(predictions), joined(chunks)
    order = np.argsort(predicted, kind="stable")
    starts = np.flatnonzero(np.diff(predicted[order], prepend=-1))
    for group in np.split(order, starts[1:]):
        weight = None if every.weight is None else every.weight[group]
        if weight is None or weight.any():
            yield Chunk(every.confidence[group], every.correct[group], weight)
