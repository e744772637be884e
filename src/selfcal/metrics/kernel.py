"""Calibration errors of the top label without bins: confidences are compared through a kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.binning import joined
from selfcal._support.checks import Float
from selfcal.metrics._rows import normalized_weights, top_labels
from selfcal.metrics._smoothing import (
    CELLS_PER_BANDWIDTH,
    FINEST_GRID,
    MIN_BANDWIDTH,
    coarsened,
    gauss_transform,
    integral,
    linear_masses,
    reflected_density,
)


def smooth_calibration_error(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    bandwidth: float | None = None,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """smECE: the residuals smoothed with a Gaussian kernel on [0, 1], in absolute value.

    `smECE_b = integral over [0, 1] of |sum_i w_i (a_i - c_i) K_b(t, c_i)| dt / sum_i w_i` with c the confidence
    max(p), a whether the first argmax is right and K_b a Gaussian of standard deviation b, reflected at 0 and 1.
    It never grows with b, so exactly one b has `smECE_b = b`: that one is the automatic bandwidth and the value.

    Computed on a grid: within 1e-5 of the formula for bandwidths of at least .001 (1e-4 for narrower ones).

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        bandwidth: Standard deviation of the kernel, in [1e-4, 1]; None for the automatic one, at least 1e-4.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1].

    >>> round(smooth_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 3)
    0.166

    Reference: Błasiok, Nakkiran, Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing, ICLR 2024.
    """
    if bandwidth is not None:
        checks.in_range("bandwidth", bandwidth, MIN_BANDWIDTH, 1)
    residuals, total = np.zeros(FINEST_GRID + 1), 0.0
    for chunk in top_labels(y_true, probs, classes, sample_weight):
        c = chunk.confidence.astype(np.float64)
        w = np.ones(len(c)) if chunk.weight is None else chunk.weight
        residuals += linear_masses(c, w * (chunk.correct - c))
        total += float(w.sum())
    residuals /= total
    return (
        _fixed_point(residuals)
        if bandwidth is None
        else _smoothed_size(coarsened(residuals, bandwidth), bandwidth)
    )


def kde_calibration_error(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    bandwidth: float | None = None,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """KDE-ECE: confidence against the accuracy at it, both from kernel density estimates.

    `integral over [0, 1] of |acc(t) - t| f(t) dt` with the density `f(t) = sum_i w_i K_b(t, c_i) / sum_i w_i` of the
    confidences max(p) and `acc(t) = sum_i w_i a_i K_b(t, c_i) / sum_i w_i K_b(t, c_i)`. This is the top-label l1
    error of Zhang et al. with a Gaussian kernel, reflected at 0 and 1, in place of their triweight.

    Confidences that are all equal have no density: the error is then that of their one value.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        bandwidth: Standard deviation b of the kernel, in [1e-4, 1]; None for 1.06 sd(c) n^(-1/5) with the
            effective number of rows `n = (sum w)^2 / sum w^2`, at least 1e-4.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1].

    >>> round(kde_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 3)
    0.182

    Reference: Zhang, Kailkhura, Han, Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration
    in Deep Learning, ICML 2020.
    """
    if bandwidth is not None:
        checks.in_range("bandwidth", bandwidth, MIN_BANDWIDTH, 1)
    c, a, w = normalized_weights(joined(top_labels(y_true, probs, classes, sample_weight)))
    if c.min() == c.max():
        return abs(float(w @ (a - c)))
    if bandwidth is None:
        deviation = float(np.sqrt(w @ (c - w @ c) ** 2))
        bandwidth = max(MIN_BANDWIDTH, 1.06 * deviation * float(w @ w) ** 0.2)
    of_right, of_all = (
        reflected_density(coarsened(linear_masses(c, masses), bandwidth), bandwidth) for masses in (w * a, w)
    )
    return integral(np.abs(of_right - np.linspace(0, 1, len(of_all)) * of_all))


def sece(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    bandwidth: float = 0.01,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """SECE, smooth expected calibration error: each confidence against the accuracy around it.

    `sum_i w_i |acc(c_i) - c_i| / sum_i w_i` with the Nadaraya-Watson estimate
    `acc(t) = sum_j w_j a_j K(t - c_j) / sum_j w_j K(t - c_j)`, c the confidence max(p), a whether the first argmax is
    right and K a Gaussian. Each row counts for itself too: the error is large if few have neighbours within the
    bandwidth.

    Computed in linear time on a grid of bandwidth / 32: within 1e-6 of the sum over all pairs.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        bandwidth: Standard deviation of the kernel, in [1e-4, 1].
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1].

    >>> round(sece([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.3

    Reference: Towards Unbiased Calibration using Meta-Regularization, 2023, equations 5-7.
    """
    checks.in_range("bandwidth", bandwidth, MIN_BANDWIDTH, 1)
    c, a, w = normalized_weights(joined(top_labels(y_true, probs, classes, sample_weight)))
    of_right, of_all = gauss_transform(c, np.stack([w * a, w]), bandwidth)
    return float(w @ np.abs(of_right / of_all - c))


def mmce(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    bandwidth: float = 0.4,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """MMCE, maximum mean calibration error: the residuals in the norm of a Laplacian kernel.

    `sqrt(sum_ij w_i w_j (a_i - c_i) (a_j - c_j) exp(-|c_i - c_j| / b)) / sum_i w_i` with c the confidence max(p) and
    a whether the first argmax is right. Exact in O(n log n): over sorted confidences the double sum is
    `sum_i (1 - exp(-2 (c_i - c_(i-1)) / b)) u_i^2` with `u_i = sum_(j >= i) w_j (a_j - c_j) exp(-(c_j - c_i) / b)`.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        bandwidth: Scale b of the kernel, in [1e-4, 1].
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The calibration error, in [0, 1].

    >>> round(mmce([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.162925

    Reference: Kumar, Sarawagi, Jain, Trainable Calibration Measures for Neural Networks from Kernel Mean
    Embeddings, ICML 2018.
    """
    checks.in_range("bandwidth", bandwidth, MIN_BANDWIDTH, 1)
    c, a, w = normalized_weights(joined(top_labels(y_true, probs, classes, sample_weight)))
    order = np.argsort(c)
    place, residual = c[order] / bandwidth, (w * (a - c))[order]
    fresh = -np.expm1(-2 * np.diff(place, prepend=-np.inf))
    return float(np.sqrt(fresh @ _decaying_tail(place, residual) ** 2))


def _decaying_tail(place: Float, values: Float) -> Float:
    """Return `u_i = sum_(j >= i) v_j exp(-(x_j - x_i))` for sorted x, in pieces in which exp does not overflow."""
    tail, carried = np.empty_like(values), 0.0
    ends = np.searchsorted(place, np.arange(0, place[-1], 500.0)[1:])
    for piece in reversed(np.split(np.arange(len(place)), ends)):
        if len(piece) == 0:
            continue
        here, stop = place[piece[0]], int(piece[-1]) + 1
        if stop < len(place):
            carried = float(tail[stop] * np.exp(here - place[stop]))
        growth = np.exp(place[piece] - here)
        tail[piece] = growth * (carried + np.cumsum((values[piece] / growth)[::-1])[::-1])
    return tail


def _fixed_point(residuals: Float) -> float:
    """Return the smECE at its own bandwidth, on grids that are made finer until they resolve it."""
    bandwidth = 1.0
    while True:
        grid = coarsened(residuals, bandwidth)
        bandwidth, value = _crossing(grid)
        if len(grid) == len(residuals) or bandwidth * (len(grid) - 1) >= CELLS_PER_BANDWIDTH:
            return value


def _crossing(grid: Float) -> tuple[float, float]:
    """Return the bandwidth within [MIN_BANDWIDTH, 1] at which the smoothed size falls under it, and that size."""
    from scipy.optimize import brentq

    for bound, outside in ((1.0, np.greater_equal), (MIN_BANDWIDTH, np.less_equal)):
        size = _smoothed_size(grid, bound)
        if outside(size, bound):
            return bound, size
    crossing = float(brentq(lambda b: _smoothed_size(grid, b) - b, MIN_BANDWIDTH, 1.0, xtol=1e-15))
    return crossing, crossing


def _smoothed_size(grid: Float, bandwidth: float) -> float:
    return integral(np.abs(reflected_density(grid, bandwidth)))
