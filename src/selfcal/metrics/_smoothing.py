"""Gaussian smoothing of point masses on [0, 1] in linear time: on a grid, by the fast Fourier transform."""

from __future__ import annotations

import numpy as np

from selfcal._support.checks import Float

FINEST_GRID = 1 << 16
COARSEST_GRID = 1 << 10
CELLS_PER_BANDWIDTH = 64
"""Grids are at least this fine, if `FINEST_GRID` allows: smoothed values are then good to about 1e-5."""
MIN_BANDWIDTH = 1e-4
"""The narrowest bandwidth; under it the finest grid would no longer show the kernel."""

_CUBIC_CELLS_PER_BANDWIDTH = 32
_KERNEL_REACH = 9  # in bandwidths: exp(-9^2 / 2) is 2.6e-18


def linear_masses(points: Float, masses: Float) -> Float:
    """Split each mass between the two nearest of the `FINEST_GRID + 1` grid points, which keeps the mean."""
    place = points * FINEST_GRID
    left = np.minimum(place.astype(np.int64), FINEST_GRID - 1)
    upper = masses * (place - left)
    grid = np.bincount(left, masses - upper, minlength=FINEST_GRID + 1).astype(np.float64, copy=False)
    grid[1:] += np.bincount(left, upper, minlength=FINEST_GRID)
    return grid


def coarsened(masses: Float, bandwidth: float) -> Float:
    """Return the masses on the coarsest grid that is fine enough for the bandwidth.

    Halving a grid again and again equals placing the points on the coarse grid at once, since the split is linear.
    """
    while len(masses) - 1 > max(COARSEST_GRID, 2 * CELLS_PER_BANDWIDTH / bandwidth):
        odd = masses[1::2] / 2
        masses = masses[::2].copy()
        masses[:-1] += odd
        masses[1:] += odd
    return masses


def reflected_density(masses: Float, bandwidth: float) -> Float:
    """Smooth masses on a grid over [0, 1] with a Gaussian that is reflected at 0 and 1, so that no mass is lost.

    The reflection is the even periodic extension of the masses, whose Fourier coefficients the kernel
    multiplies by `exp(-(pi k bandwidth)^2 / 2)`.
    """
    cells = len(masses) - 1
    extended = np.concatenate([masses, masses[-2:0:-1]])
    extended[[0, cells]] *= 2
    frequency = np.arange(cells + 1)
    spectrum = np.fft.rfft(extended) * np.exp(-((np.pi * bandwidth * frequency) ** 2) / 2)
    return np.fft.irfft(spectrum, 2 * cells)[: cells + 1] * cells


def integral(values: Float) -> float:
    """Return the integral over [0, 1] of a function known on a grid (trapezoidal rule)."""
    return float(values.sum() - (values[0] + values[-1]) / 2) / (len(values) - 1)


def gauss_transform(points: Float, masses: Float, bandwidth: float) -> Float:
    """Return `sum_j m_j exp(-(x_i - x_j)^2 / 2 b^2)` at each point x_i, for each row of `masses`.

    Cubic interpolation to and from a grid of b / 32: the sum is good to six digits.
    """
    step = bandwidth / _CUBIC_CELLS_PER_BANDWIDTH
    place = points / step
    left = place.astype(np.int64)
    taps = _cubic_taps(place - left)  # at the grid points left - 1 to left + 2, stored one further right
    cells = int(1 / step) + 5
    size = 1 << (cells + _KERNEL_REACH * _CUBIC_CELLS_PER_BANDWIDTH).bit_length()
    distance = np.minimum(np.arange(size), size - np.arange(size)) / _CUBIC_CELLS_PER_BANDWIDTH
    kernel = np.fft.rfft(np.exp(-(distance**2) / 2))
    smoothed = np.empty(masses.shape)
    for row, out in zip(masses, smoothed, strict=True):
        grid = np.zeros(size)
        for shift, tap in enumerate(taps):
            grid[shift : shift + cells] += np.bincount(left, row * tap, minlength=cells)[:cells]
        field = np.fft.irfft(np.fft.rfft(grid) * kernel, size)
        out[:] = sum(field[shift:].take(left) * tap for shift, tap in enumerate(taps))
    return smoothed


def _cubic_taps(f: Float) -> tuple[Float, Float, Float, Float]:
    """Lagrange weights at -1, 0, 1, 2 of a point at 0 <= f < 1 between the middle two."""
    return (
        -f * (f - 1) * (f - 2) / 6,
        (f + 1) * (f - 1) * (f - 2) / 2,
        -(f + 1) * f * (f - 2) / 2,
        (f + 1) * f * (f - 1) / 6,
    )
