from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from selfcal.datasets import BloodAlcohol
from selfcal.errors import DataError

ROWS = np.array(
    [
        # weight, gender, meal, duration, units
        [80, 0, 0, 120, 7.6],
        [80, 0, 0, 120, 7.7],
        [62, 1, 1, 90, 6.6],
        [70, 1, 2, 200, 13.5],
        [95, 0, 2, 60, 15.5],
    ]
)
FACTOR, FACTOR_SPREAD = [0.68, 0.55], [0.085, 0.055]
RATE, RATE_SPREAD = [0.189, 0.214], [0.048, 0.053]
MEAL = [1.0, 0.72, 0.50]


def concentration(row, factor, rate):
    """Widmark's equation by hand, in grams per litre."""
    weight, _, meal, duration, units = row
    return MEAL[int(meal)] * units * 7.9 / (factor * weight) * 1.055 - rate * duration / 60


@pytest.mark.parametrize("noise", [0.15, 0.5, 1.0])
def test_posterior_agrees_with_monte_carlo(noise):
    n, rng = 400_000, np.random.default_rng(0)
    for row, p in zip(ROWS, BloodAlcohol(noise).posterior(ROWS)[:, 1], strict=True):
        g = int(row[1])
        factor = rng.normal(FACTOR[g], noise * FACTOR_SPREAD[g], n)
        rate = rng.normal(RATE[g], noise * RATE_SPREAD[g], n)
        over = np.mean(concentration(row, factor, rate) > 0.8)
        assert over == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / n) + 1e-5)


@pytest.mark.parametrize("noise", [0.15, 1.0])
def test_posterior_agrees_with_adaptive_integration(noise):
    """Swap the order: the elimination rate in closed form, the Widmark factor by quadrature."""
    for row, p in zip(ROWS, BloodAlcohol(noise).posterior(ROWS)[:, 1], strict=True):
        g = int(row[1])
        factor = norm(FACTOR[g], noise * FACTOR_SPREAD[g])
        rate = norm(RATE[g], noise * RATE_SPREAD[g])
        expected, _ = quad(
            lambda r, row=row, rate=rate, factor=factor: (
                rate.cdf((concentration(row, r, 0.0) - 0.8) / (row[3] / 60)) * factor.pdf(r)
            ),
            *factor.interval(1 - 1e-14),
            epsabs=1e-12,
            limit=400,
        )
        assert p == pytest.approx(expected, abs=1e-9)


def test_a_mean_person_at_the_limit_is_a_toss_up():
    units = (0.8 + 0.189 * 2) * 0.68 * 80 / (7.9 * 1.055)
    assert BloodAlcohol().posterior([[80, 0, 0, 120, units]])[0, 1] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("column", "sign"),
    [("weight", -1), ("gender", 1), ("meal", -1), ("duration", -1), ("units", 1)],
)
def test_the_chance_to_be_over_moves_as_physiology_says(column, sign):
    bac = BloodAlcohol(noise=1.0)
    k = [feature.name for feature in bac.features].index(column)
    row = np.array([75.0, 0, 1, 150, 9])
    values = (
        np.arange(bac.features[k].high + 1) if bac.features[k].whole else row[k] * np.linspace(0.5, 1.5, 9)
    )
    X = np.tile(row, (len(values), 1))
    X[:, k] = values
    assert np.all(sign * np.diff(bac.posterior(X)[:, 1]) > 0)


def test_nothing_drunk_is_under_the_limit():
    p = BloodAlcohol().posterior([[70, 1, 0, 60, 0.0]])
    assert p[0, 0] == 1
    assert 0 < p[0, 1] < 1e-100


def test_strangers_are_harder_to_judge():
    accuracy = []
    for noise in (0.15, 0.5, 1.0):
        bac = BloodAlcohol(noise)
        accuracy.append(bac.posterior(bac.sample(20_000, seed=0)[0]).max(axis=1).mean())
    assert accuracy == sorted(accuracy, reverse=True)
    assert accuracy[-1] == pytest.approx(0.94, abs=0.01)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, 0.0, r"weight must be finite within \[1, inf\]; row 2 is 0"),
        (1, 2, r"gender must be a whole number within \[0, 1\]; row 2 is 2"),
        (2, 0.5, r"meal must be a whole number within \[0, 2\]; row 2 is 0.5"),
        (3, -1, r"duration must be finite within \[0, inf\]; row 2 is -1"),
        (4, -0.5, r"units must be finite within \[0, inf\]; row 2 is -0.5"),
    ],
)
def test_impossible_people_are_named(column, value, message):
    X = ROWS.copy()
    X[2, column] = value
    with pytest.raises(DataError, match=message):
        BloodAlcohol().posterior(X)


def test_sampled_people_are_possible():
    X, _ = BloodAlcohol().sample(50_000, seed=0)
    assert 30 < X[:, 0].min() < X[:, 0].max() < 200
    assert np.median(X[X[:, 1] == 0, 0]) == pytest.approx(84, abs=0.5)
    assert np.median(X[X[:, 1] == 1, 0]) == pytest.approx(71, abs=0.5)
    for column, values in ((1, {0, 1}), (2, {0, 1, 2})):
        assert set(X[:, column]) == values


def test_name_tells_other_noise():
    assert BloodAlcohol().name == "bac"
    assert BloodAlcohol(noise=1.0).name == "bac-1"
