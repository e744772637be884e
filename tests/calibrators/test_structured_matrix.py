"""Structured matrix scaling, and the same penalty for vectors."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import log_softmax, logit, softmax

from selfcal.calibrators import (
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)

from .data import overconfident, weights


def published(make, **settings):
    return make(**settings, safeguard=False)


def penalised(parameters, x, y, weight):
    """The loss as it is written in the docstring, part by part."""
    n, k = weight.sum(), x.shape[1]
    v, b = parameters[:k], parameters[k : 2 * k]
    off = np.zeros((k, k))
    off[~np.eye(k, dtype=bool)] = parameters[2 * k :]
    log_p = log_softmax(x + v * x + x @ off + b, axis=1)[np.arange(len(y)), y]
    return -np.average(log_p, weights=weight) + k / n * (v @ v + b @ b) + k * (k - 1) / n * np.sum(off**2)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_it_is_the_lowest_point(k):
    z, y = overconfident(n_classes=k)
    weight = weights(len(y))
    found = published(StructuredMatrixScaling).fit(z, y, weight)
    temperature = TemperatureScaling().fit(z, y, weight).temperature_
    assert found.temperature_ == pytest.approx(temperature, rel=1e-4)
    arguments = (log_softmax(z / found.temperature_, axis=1), y, weight)
    table = found.parameters_
    diagonal = np.eye(k, dtype=bool)
    at = np.concatenate([np.diag(table) - 1, table[k], table[:k][~diagonal]])
    np.testing.assert_allclose(approx_fprime(at, penalised, 1e-7, *arguments), 0, atol=1e-5)
    assert penalised(at, *arguments) <= minimize(penalised, np.zeros(len(at)), arguments).fun + 1e-9


def constant_logits(p, penalty):
    """Zero logits and weights for which p is the best probability of the second class.

    With the log odds D = logit(p) and the penalty ``penalty * D**2 / n``, the slope in D of the penalised loss,
    ``p - q + 2 * penalty * D / n``, is zero if q is the frequency of the class.
    """
    n = 100.0
    q = p + 2 * penalty * logit(p) / n
    return np.zeros((2, 2)), [0, 1], [n * (1 - q), n * q]


@pytest.mark.parametrize("p", [0.25, 0.6, 0.9])
def test_a_vector_by_hand(p):
    """The bias (-D/2, D/2) costs ``k / n * D**2 / 2``, k = 2; factors of zero logits do nothing."""
    z, y, weight = constant_logits(p, penalty=1.0)
    probs = published(VectorScaling).fit(z, y, weight).predict_proba(z)
    np.testing.assert_allclose(probs[:, 1], p, atol=1e-6)


@pytest.mark.parametrize("p", [0.25, 0.6, 0.9])
def test_a_structured_matrix_by_hand(p):
    """All features are -log 2: two factors and two off-diagonal numbers change D by log 2 each, two biases by one."""
    z, y, weight = constant_logits(p, penalty=2 / (4 * np.log(2) ** 2 + 2))
    probs = published(StructuredMatrixScaling).fit(z, y, weight).predict_proba(z)
    np.testing.assert_allclose(probs[:, 1], p, atol=1e-6)


@pytest.mark.parametrize(
    "make", [VectorScaling, MatrixScaling, DirichletCalibration, StructuredMatrixScaling]
)
def test_no_weight_is_the_temperature_and_much_is_the_truth(make):
    """The penalties are of the order of one over the weight, and the network prefers the first class by a half."""
    z, y = overconfident(5000)
    light = published(make).fit(z, y, np.full(len(y), 1e-9))
    scaled = TemperatureScaling().fit(z, y).predict_proba(z)
    np.testing.assert_allclose(light.predict_proba(z), scaled, atol=1e-4)
    heavy = published(make).fit(z, y, np.full(len(y), 100.0)).predict_proba(z)
    np.testing.assert_allclose(heavy, softmax((z - [0.5, 0.25, 0.0]) / 2, axis=1), atol=0.1)


def test_it_does_not_see_a_shift_of_the_rows():
    z, y = overconfident()
    shifted = z + np.random.default_rng(0).normal(0, 5, size=(len(z), 1))
    probs = StructuredMatrixScaling().fit(z, y).predict_proba(z)
    np.testing.assert_allclose(
        StructuredMatrixScaling().fit(shifted, y).predict_proba(shifted), probs, atol=1e-6
    )


def test_every_row_right_leaves_the_scale():
    """A temperature would be 0: from rows that are all right nobody can tell how sure to be."""
    z = 3 * np.eye(3)[[0, 1, 2] * 10]
    assert published(StructuredMatrixScaling).fit(z, [0, 1, 2] * 10).temperature_ == 1.0
