"""A test of all probabilities at once: the kernel calibration error of the whole vectors."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.metrics.significance import CalibrationTest, resampling_p_value, standardised

RESAMPLED_ROWS = 1000
"""Up to this many rows the p-value is from resampling; beyond, the normal approximation is good."""


def kernel_calibration_test(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    bandwidth: float | None = None,
    block_size: int = 200,
    n_resamples: int = 500,
    seed: int = 0,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> CalibrationTest:
    """Test whether whole rows of probabilities are calibrated, not only the top label.

    The statistic is the unbiased squared kernel calibration error, the mean over pairs of rows of
    `w_i w_j exp(-|p_i - p_j| / h) (e_i - p_i) . (e_j - p_j)`, with e the one-hot labels: rows with
    similar probabilities should not have similar errors. It is 0 on average for a calibrated model and may be
    negative. Only pairs within random blocks of rows are taken, which costs n times the block size and keeps more
    power than pairs of neighbours alone. Up to 1,000 rows the p-value is from resampled labels from the
    probabilities; beyond, the statistic divided by its exact standard deviation for a calibrated model is taken as
    normal.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        bandwidth: The distance h; the median distance of the pairs in the first block if None.
        block_size: Number of rows of which all pairs are taken.
        n_resamples: Number of label sets drawn, if there are at most 1,000 rows.
        seed: Seed of the blocks and of the labels.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The squared kernel calibration error and its one-sided p-value.

    >>> rng = np.random.default_rng(0)
    >>> probs = rng.dirichlet([0.5, 0.5, 0.5], size=300)
    >>> fair = [rng.choice(3, p=p) for p in probs]
    >>> kernel_calibration_test(fair, probs).p_value > 0.1
    True
    >>> kernel_calibration_test([(y + 1) % 3 for y in fair], probs).p_value < 0.01
    True

    Reference: Widmann, Lindsten, Zachariah, Calibration Tests in Multi-Class Classification, NeurIPS 2019.
    """
    checks.positive_int("block_size", block_size, low=2)
    checks.positive_int("n_resamples", n_resamples)
    if bandwidth is not None:
        checks.in_range("bandwidth", bandwidth, 0.0, open_low=True)
    p = checks.probabilities(probs)
    y = checks.label_codes(y_true, p.shape[1], classes)
    n = checks.same_length(y_true=y, probs=p)
    w = checks.sample_weights(sample_weight, n)
    w = None if w is None else checks.relative_weights(w)
    rng = np.random.default_rng(seed)
    resampled = np.zeros(n_resamples if n <= RESAMPLED_ROWS else 0)
    total = variance = weight_of_pairs = 0.0
    for rows in np.array_split(rng.permutation(n), math.ceil(n / block_size)):
        distance = _distances(p[rows])
        if bandwidth is None:
            apart = distance[np.triu_indices(len(rows), 1)]
            bandwidth = float(np.median(apart)) or 1.0 if len(apart) else 1.0
        pair_weight = np.ones_like(distance) if w is None else np.outer(w[rows], w[rows])
        np.fill_diagonal(pair_weight, 0.0)
        weight_of_pairs += float(pair_weight.sum())
        kernel = pair_weight * np.exp(-distance / bandwidth)
        if len(resampled):
            resampled += _sums_over_pairs(kernel, p[rows], _drawn_labels(p[rows], len(resampled), rng))
        else:
            variance += _variance_of_sum(kernel, p[rows])
        total += float(_sums_over_pairs(kernel, p[rows], y[rows][None])[0])
    statistic = total / weight_of_pairs if weight_of_pairs else 0.0
    if len(resampled):
        return CalibrationTest(statistic, resampling_p_value(total, resampled))
    z = standardised(total, variance)
    return CalibrationTest(statistic, float(erfc(z / math.sqrt(2)) / 2))


def _distances(p: Float) -> Float:
    squares = np.einsum("nk,nk->n", p, p)
    return np.sqrt(np.maximum(squares[:, None] + squares - 2 * (p @ p.T), 0.0))


def _sums_over_pairs(kernel: Float, p: Float, label_sets: Int) -> Float:
    """Return `sum_ij K_ij (e_i - p_i) . (e_j - p_j)` for each set of labels.

    Multiplied out, only `sum_ij K_ij [y_i = y_j] - 2 sum_i (K p)_i,y_i` depends on the labels.
    """
    smoothed = kernel @ p
    constant = float(np.vdot(smoothed, p))
    rows = np.arange(len(p))
    same = ((y[:, None] == y).astype(np.float64) for y in label_sets.astype(np.int32))
    agreeing = np.array([np.vdot(kernel, agree) for agree in same])
    return agreeing - 2 * smoothed[rows, label_sets].sum(axis=1) + constant


def _variance_of_sum(kernel: Float, p: Float) -> float:
    """Return the variance of the sum over pairs for labels drawn from p: `2 sum_ij K_ij^2 tr(C_i C_j)`.

    C = diag(p) - p p^T is the covariance of a one-hot label; different pairs are uncorrelated.
    """
    product, mixed = p @ p.T, p @ (p**2).T
    return float(2 * np.sum(kernel**2 * (product - mixed - mixed.T + product**2)))


def _drawn_labels(p: Float, n_sets: int, rng: np.random.Generator) -> Int:
    """Draw sets of labels from the rows of p, by one search in all cumulative sums, row i shifted by i."""
    n, k = p.shape
    shift = np.arange(n)
    reached = np.cumsum(p, axis=1)
    reached = reached / reached[:, -1:] + shift[:, None]
    place = np.searchsorted(reached.ravel(), rng.random((n_sets, n)) + shift, side="right")
    return np.clip(place - shift * k, 0, k - 1)
