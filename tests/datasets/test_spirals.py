from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from selfcal.datasets import Spirals
from selfcal.datasets import spirals as module
from selfcal.datasets.spirals import END, PITCH, SPACING


def density(x, sign, std):
    """Integrate the noise along an arm with an adaptive rule; an independent route to the class density."""

    def integrand(t):
        dx, dy = x - sign * PITCH * t * np.array([np.cos(t), np.sin(t)])
        return norm.pdf(dx, scale=std) * norm.pdf(dy, scale=std) * 2 * t / END**2

    pieces = np.linspace(0, END, 30)
    return sum(quad(integrand, a, b, epsabs=0, epsrel=1e-10)[0] for a, b in pairwise(pieces))


@pytest.mark.parametrize("std", [2.5, 3.5])
def test_posterior_agrees_with_adaptive_integration(std):
    spirals = Spirals(std)
    X = np.concatenate([spirals.sample(4, seed=0)[0], [[0.0, 0.0], [0.3, -0.2], [40.0, 10.0]]])
    expected = np.array([[density(x, sign, std) for sign in (1, -1)] for x in X])
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(spirals.posterior(X), expected, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("std", [0.5, 1.0, 2.5, 3.5, 10.0])
def test_quadrature_has_converged(std, monkeypatch):
    spirals = Spirals(std)
    X, _ = spirals.sample(500, seed=0)
    coarse = spirals.posterior(X)
    monkeypatch.setattr(module, "PANEL_LENGTH", module.PANEL_LENGTH / 2)
    np.testing.assert_allclose(coarse, spirals.posterior(X), rtol=0, atol=1e-12)


def test_quadrature_has_the_moments_of_the_sample():
    angle, weight = module._quadrature(2.5)
    arm = module._arm(angle)
    assert weight.sum() == pytest.approx(1, abs=1e-13)
    X, y = Spirals(2.5).sample(100_000, seed=0)
    turned = np.where(y == 0, 1, -1)[:, None] * X
    noise = 5 * turned.std(axis=0) / np.sqrt(len(X))
    assert np.all(np.abs(turned.mean(axis=0) - weight @ arm) < noise)
    np.testing.assert_allclose(
        np.cov(turned.T, ddof=0) - 2.5**2 * np.eye(2), np.cov(arm.T, aweights=weight), atol=3
    )


def test_arms_are_each_other_turned_by_half_a_circle():
    X, _ = Spirals().sample(300, seed=0)
    np.testing.assert_allclose(Spirals().posterior(-X), Spirals().posterior(X)[:, ::-1], rtol=1e-9)


def test_neighbouring_arms_are_one_spacing_apart():
    t = np.array([np.pi, 2.0, 5.0])
    np.testing.assert_allclose(
        np.linalg.norm(module._arm(t + np.pi) + module._arm(t), axis=1), SPACING, rtol=1e-12
    )


def test_narrow_noise_leaves_no_doubt_on_the_arm():
    arm = module._arm(np.linspace(3, END, 50))
    assert Spirals(0.1).posterior(arm)[:, 0].min() > 1 - 1e-12
