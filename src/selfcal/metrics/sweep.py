"""The calibration error as the number of bins grows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support.binning import (
    Bins,
    Chunk,
    Closed,
    Norm,
    Strategy,
    bins_from_sums,
    check_binning,
    joined,
    quantile_edges,
    uniform_edges,
)
from selfcal._support.checks import Float, Int
from selfcal.errors import ConfigError
from selfcal.metrics._norms import check_norm, error_of_bins
from selfcal.metrics._rows import top_labels

LOG_SPACED = (10, 13, 16, 20, 25, 32, 40, 50, 63, 79, 100, 126, 158, 200, 251, 316, 398, 501, 631, 794, 1000)
"""Ten numbers of bins per decade."""


@dataclass(frozen=True, eq=False)
class BinSweep:
    """Calibration errors of the same rows over different numbers of bins.

    Attributes:
        n_bins: Numbers of bins.
        error: The calibration error with each.
    """

    n_bins: Int
    error: Float


def calibration_error_by_bins(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: Iterable[int] = LOG_SPACED,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    debias: bool = False,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> BinSweep:
    """Top-label calibration error for each of several numbers of bins.

    `expected_calibration_error` of each number, from one pass over the probabilities and one sort. An error that
    climbs with the number of bins is mostly noise; `debias` shows how much.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        n_bins: The numbers of bins; by default 21 from 10 to 1,000.
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1", "l2" or "max", as in `confidence_calibration_error`.
        closed: "right" for bins (a, b], "left" for [a, b).
        debias: Whether to subtract the expected contribution of label noise; for "l1" and "l2".
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The numbers of bins and the error with each.

    >>> sweep = calibration_error_by_bins([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], n_bins=[1, 15])
    >>> sweep.n_bins, sweep.error.round(6)
    (array([ 1, 15]), array([0.1, 0.3]))

    Reference: Nixon et al., Measuring Calibration in Deep Learning, CVPR Workshops 2019.
    """
    check_norm(norm, debias)
    numbers = list(n_bins)
    if not numbers:
        raise ConfigError(
            "n_bins must hold at least one number of bins; got none. Leave it out for 10 to 1,000."
        )
    for number in numbers:
        check_binning(number, strategy, closed)
    rows = _sorted(joined(top_labels(y_true, probs, classes, sample_weight)))
    errors = []
    for number in numbers:
        edges = uniform_edges(number)
        if strategy == "quantile":
            edges = quantile_edges(rows.confidence, number, sample_weight=rows.weight, closed=closed)
        errors.append(error_of_bins(_bins(rows, edges, closed), norm, debias=debias))
    return BinSweep(np.array(numbers, dtype=np.int64), np.array(errors))


def _sorted(rows: Chunk) -> Chunk:
    order = np.argsort(rows.confidence, kind="stable")
    weight = None if rows.weight is None else rows.weight[order]
    return Chunk(rows.confidence[order].astype(np.float64), rows.correct[order].astype(np.float64), weight)


def _bins(rows: Chunk, edges: Float, closed: Closed) -> Bins:
    """Bin sorted rows: each bin is a slice."""
    inner = np.searchsorted(rows.confidence, edges[1:-1], side="right" if closed == "right" else "left")
    starts, stops = np.r_[0, inner], np.r_[inner, len(rows.confidence)]
    filled = stops > starts
    c, a, w = rows
    sums = np.zeros((5, len(starts)))
    sums[:3] = stops - starts
    values = [None, None, None, c, a] if w is None else [w, w > 0, w * w, w * c, w * a]
    for row, value in zip(sums, values, strict=True):
        if value is not None:
            row[filled] = np.add.reduceat(value, starts[filled], dtype=np.float64)
    return bins_from_sums(sums, edges, closed)
