"""The grid: masses keep their total and place, and coarse grids equal placing the points there at once."""

import numpy as np
import pytest

from selfcal.metrics._smoothing import (
    FINEST_GRID,
    coarsened,
    gauss_transform,
    integral,
    linear_masses,
    reflected_density,
)

POINTS = np.array([0.0, 1.0, 0.5, 0.123456, 0.99999, 1e-9])
MASSES = np.array([1.0, 2.0, -3.0, 0.5, 1.5, -0.25])


def test_masses_keep_their_total_and_their_mean_place():
    grid = linear_masses(POINTS, MASSES)
    places = np.arange(FINEST_GRID + 1) / FINEST_GRID
    assert grid.sum() == pytest.approx(MASSES.sum(), abs=1e-12)
    assert grid @ places == pytest.approx(MASSES @ POINTS, abs=1e-12)


@pytest.mark.parametrize("bandwidth", [0.001, 0.02, 1.0])
def test_a_coarse_grid_holds_what_hat_functions_give(bandwidth):
    coarse = coarsened(linear_masses(POINTS, MASSES), bandwidth)
    cells = len(coarse) - 1
    hats = np.maximum(0, 1 - np.abs(POINTS[:, None] * cells - np.arange(cells + 1)))
    np.testing.assert_allclose(coarse, MASSES @ hats, atol=1e-12)
    assert cells * bandwidth >= 64


@pytest.mark.parametrize("bandwidth", [0.003, 0.1, 1.0])
def test_reflection_loses_no_mass(bandwidth):
    density = reflected_density(coarsened(linear_masses(POINTS, MASSES), bandwidth), bandwidth)
    assert integral(density) == pytest.approx(MASSES.sum(), abs=1e-9)


@pytest.mark.parametrize("bandwidth", [0.0001, 0.01, 1.0])
def test_gauss_transform_equals_all_pairs(bandwidth):
    rng = np.random.default_rng(0)
    points = np.concatenate([POINTS, rng.random(200), 0.5 + bandwidth * rng.random(20) / 2])
    masses = rng.random((2, len(points)))
    kernel = np.exp(-(((points[:, None] - points) / bandwidth) ** 2) / 2)
    np.testing.assert_allclose(gauss_transform(points, masses, bandwidth), masses @ kernel, rtol=1e-6)
