import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binom

from selfcal.calibrators import PolynomialCalibration
from selfcal.calibrators.polynomial import rising_coefficients, tails
from selfcal.errors import ConfigError


def bernstein(u, degree):
    return binom.pmf(np.arange(degree + 1), degree, u[:, None])


def sample(n=80, seed=0):
    rng = np.random.default_rng(seed)
    u = rng.beta(0.5, 0.5, n)
    return u, rng.random(n) < np.sqrt(u), rng.integers(1, 4, n) / n


@pytest.mark.parametrize("degree", [1, 3, 6])
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_a_general_constrained_optimiser(degree, seed):
    u, y, weight = sample(seed=seed)
    basis = bernstein(u, degree)

    def error(beta):
        return weight @ (basis @ beta - y) ** 2

    rising = {"type": "ineq", "fun": np.diff}
    expected = minimize(
        error,
        np.full(degree + 1, 0.5),
        method="SLSQP",
        bounds=[(0, 1)] * (degree + 1),
        constraints=rising,
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    beta = rising_coefficients(u, y, weight, degree)
    assert error(beta) == pytest.approx(expected.fun, rel=1e-7)
    np.testing.assert_allclose(basis @ beta, basis @ expected.x, atol=1e-4)


def test_straight_line_through_two_frequencies():
    u = np.repeat([0.25, 0.75], 8)
    y = np.array([1] * 3 + [0] * 5 + [1] * 5 + [0] * 3, dtype=bool)
    np.testing.assert_allclose(rising_coefficients(u, y, np.ones(16), 1), [0.25, 0.75], atol=1e-12)


def test_falling_data_give_a_constant():
    u = np.repeat([0.25, 0.75], 4)
    y = np.array([1, 1, 1, 0, 1, 0, 0, 0], dtype=bool)
    np.testing.assert_allclose(rising_coefficients(u, y, np.ones(8), 4), 0.5)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), degree=st.integers(1, 20))
def test_coefficients_rise_within_the_unit_interval(seed, degree):
    beta = rising_coefficients(*sample(30, seed), degree)
    assert beta[0] >= 0
    assert beta[-1] <= 1 + 1e-12
    assert (np.diff(beta) >= 0).all()


def test_tails_are_the_cumulated_basis():
    u = np.array([0.0, 0.3, 1.0])
    np.testing.assert_allclose(tails(u, 4), bernstein(u, 4)[:, ::-1].cumsum(axis=1)[:, ::-1], atol=1e-15)


def test_curve_rises_and_is_pulled_in_by_one_shared_row():
    rng = np.random.default_rng(0)
    score = 3 * rng.normal(size=300)
    y = (score + rng.logistic(size=300) * 2 > 0).astype(int)
    calibrator = PolynomialCalibration(safeguard=False).fit(np.column_stack([0 * score, score]), y)
    grid = np.linspace(-500, 500, 1001)
    probs = calibrator.predict_proba(np.column_stack([0 * grid, grid]))[:, 1]
    assert (np.diff(probs) >= 0).all()
    assert probs[0] >= 0.5 / 301 - 1e-12
    assert probs[-1] <= 300.5 / 301 + 1e-12


def test_bad_settings():
    with pytest.raises(ConfigError, match="degree"):
        PolynomialCalibration(degree=0, safeguard=False).fit([[0.0, 1.0]], [0])
