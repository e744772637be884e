"""Vector, matrix and Dirichlet: one loss, one search."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import log_softmax, softmax

from selfcal import metrics
from selfcal.calibrators import (
    DirichletCalibration,
    MatrixScaling,
    TemperatureScaling,
    VectorScaling,
    _multinomial,
)
from selfcal.errors import ConfigError

from .data import overconfident, weights


def vector_loss(parameters, z, y, weight, l2):
    w, b = parameters.reshape(2, -1)
    loss = -np.average(log_softmax(w * z + b, axis=1)[np.arange(len(y)), y], weights=weight)
    return loss + l2 * (np.sum((w - 1) ** 2) + np.sum(b**2))


def matrix_loss(parameters, z, y, weight, penalties):
    k, (l2, odir) = z.shape[1], penalties
    table = parameters.reshape(k + 1, k)
    loss = -np.average(log_softmax(z @ table[:k] + table[k], axis=1)[np.arange(len(y)), y], weights=weight)
    off = table[:k][~np.eye(k, dtype=bool)]
    towards_identity = np.sum((table[:k] - np.eye(k)) ** 2) + np.sum(table[k] ** 2)
    return loss + l2 * towards_identity + odir * (np.sum(off**2) + np.sum(table[k] ** 2))


@pytest.mark.parametrize("l2", [0.0, 0.02])
@pytest.mark.parametrize("k", [2, 3])
def test_vector_is_the_lowest_point(k, l2):
    z, y = overconfident(n_classes=k)
    weight = weights(len(y))
    found = VectorScaling(l2, safeguard=False).fit(z, y, weight)
    arguments = (z, y, weight, l2)
    reference = minimize(vector_loss, [1.0] * k + [0.0] * k, arguments, method="BFGS", options={"gtol": 1e-6})
    at_found = vector_loss(found.parameters_.ravel(), *arguments)
    assert at_found <= reference.fun + 1e-9
    np.testing.assert_allclose(
        approx_fprime(found.parameters_.ravel(), vector_loss, 1e-6, *arguments), 0, atol=1e-5
    )
    w, b = reference.x.reshape(2, k)
    np.testing.assert_allclose(found.predict_proba(z), softmax(w * z + b, axis=1), atol=1e-4)


@pytest.mark.parametrize(("l2", "odir"), [(0.0, 0.1), (0.02, 0.0), (1e-4, 0.5)])
@pytest.mark.parametrize("make", [MatrixScaling, DirichletCalibration])
def test_matrix_is_the_lowest_point(make, l2, odir):
    z, y = overconfident()
    weight = weights(len(y))
    found = make(l2=l2, odir=odir, safeguard=False).fit(z, y, weight).parameters_.ravel()
    arguments = (z if make is MatrixScaling else log_softmax(z, axis=1), y, weight, (l2, odir))
    np.testing.assert_allclose(approx_fprime(found, matrix_loss, 1e-7, *arguments), 0, atol=1e-5)
    start = np.vstack([np.eye(3), np.zeros(3)]).ravel()
    assert matrix_loss(found, *arguments) <= minimize(matrix_loss, start, arguments).fun + 1e-9


def test_curvature_by_its_diagonal_leads_to_the_same_place(monkeypatch):
    z, y = overconfident()
    expected = MatrixScaling(safeguard=False).fit(z, y).predict_proba(z)
    monkeypatch.setattr(_multinomial, "MAX_BLOCK_ELEMENTS", 0)
    np.testing.assert_allclose(MatrixScaling(safeguard=False).fit(z, y).predict_proba(z), expected, atol=1e-6)


def test_very_strong_odir_leaves_only_factors():
    z, y = overconfident()
    table = MatrixScaling(odir=1e6, safeguard=False).fit(z, y).parameters_
    np.testing.assert_allclose(table[:3][~np.eye(3, dtype=bool)], 0, atol=1e-5)
    np.testing.assert_allclose(table[3], 0, atol=1e-5)
    assert np.diag(table[:3]).max() < 0.8


def test_very_strong_l2_leaves_the_softmax():
    z, y = overconfident()
    for make in (VectorScaling, MatrixScaling, DirichletCalibration):
        np.testing.assert_allclose(
            make(l2=1e6, safeguard=False).fit(z, y).predict_proba(z), softmax(z, axis=1), atol=1e-4
        )


def test_dirichlet_does_not_see_a_shift_of_the_rows():
    z, y = overconfident()
    shifted = z + np.random.default_rng(0).normal(0, 5, size=(len(z), 1))
    probs = DirichletCalibration(safeguard=False).fit(z, y).predict_proba(z)
    np.testing.assert_allclose(
        DirichletCalibration(safeguard=False).fit(shifted, y).predict_proba(shifted), probs, atol=1e-6
    )


def test_more_freedom_fits_closer():
    z, y = overconfident(1000, 5)
    calibrators = (
        TemperatureScaling(),
        VectorScaling(0, safeguard=False),
        MatrixScaling(0, 0, safeguard=False),
    )
    losses = [metrics.log_loss(y, c.fit(z, y).predict_proba(z)) for c in calibrators]
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize(
    "calibrator",
    [
        VectorScaling(l2=-1, safeguard=False),
        MatrixScaling(l2="a", safeguard=False),
        DirichletCalibration(odir=-1, safeguard=False),
    ],
)
def test_bad_penalty(calibrator):
    with pytest.raises(ConfigError, match=r"must be a number in \[0.0, inf\)"):
        calibrator.fit(*overconfident())
