"""Calibration errors of a calibrated model under resampling of its labels."""

from __future__ import annotations

import math

import numpy as np

from selfcal._support import checks
from selfcal._support.binning import Bins, Chunk, Norm, bin_index, gap_norm
from selfcal._support.checks import Float

N_CELLS = 1000
"""Confidences within the same of this many cells of [0, 1] are drawn together."""


def resampled_errors(claimed: Chunk, bins: Bins, *, norm: Norm, n_resamples: int, seed: int) -> Float:
    """Return the calibration errors of label sets drawn from the confidences, in the same bins.

    Rows without weights that have almost the same confidence are drawn together, as one binomial number with their
    mean confidence: exact in the mean and to 1e-3 or better in the variance, and a million rows take no longer
    than a few thousand. With weights each row is drawn.
    """
    checks.positive_int("n_resamples", n_resamples)
    order = np.argsort(claimed.confidence)
    confidence = claimed.confidence[order]
    owner = bin_index(confidence, bins.edges, bins.closed)
    weight, count = (1.0 if claimed.weight is None else claimed.weight[order]), np.ones(len(order), dtype=int)
    if claimed.weight is None:
        cell = owner * (N_CELLS + 1) + (confidence * N_CELLS).astype(np.int64)
        first = np.flatnonzero(np.diff(cell, prepend=-1))
        count = np.diff(first, append=len(cell))
        confidence = np.clip(np.add.reduceat(confidence, first) / count, 0.0, 1.0)
        owner = owner[first]
    start = np.flatnonzero(np.diff(owner, prepend=-1))
    rng = np.random.default_rng(seed)
    gap = np.zeros((n_resamples, len(bins.weight)))
    for rows in np.array_split(np.arange(n_resamples), math.ceil(n_resamples * len(count) / 1e6)):
        size = len(rows), len(count)
        hits = (
            rng.random(size) < confidence
            if claimed.weight is not None
            else rng.binomial(count, confidence, size)
        )
        surplus = weight * (hits - count * confidence)
        gap[rows[0] : rows[-1] + 1, owner[start]] = np.add.reduceat(surplus, start, axis=1)
    return gap_norm(bins.share, gap / np.where(bins.weight > 0, bins.weight, 1.0), norm)
