"""The guarantees hold with the stated probability, for distributions with a known risk."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from selfcal import metrics
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, DataError
from selfcal.reject import risk_bound, rows_needed, threshold_for_coverage, threshold_for_risk
from selfcal.reject.thresholds import _starts

from .worlds import PLAIN, WORLDS

SETS = 1000
LEVEL = 0.9


def at_most(rate, sets=SETS):
    """How often something of at most this probability may happen in so many sets, but for one run in 10,000."""
    return binom.ppf(1 - 1e-4, sets, rate) / sets


def thresholds(world, n, sets, seed, **options):
    rng = np.random.default_rng(seed)
    return np.array([threshold_for_risk(*world.draw(n, rng), **options) for _ in range(sets)])


@pytest.mark.parametrize("max_risk", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("n", [200, 1000, 3000])
def test_the_risk_guarantee_holds_with_the_stated_probability(n, max_risk):
    found = thresholds(PLAIN, n, SETS, seed=n, max_risk=max_risk, level=LEVEL)
    broken = PLAIN.risk_at(PLAIN.coverage(found)) > max_risk
    assert broken.mean() <= at_most(1 - LEVEL)


@pytest.mark.parametrize("world", [name for name in WORLDS if name != "plain"])
@pytest.mark.parametrize("max_risk", [0.05, 0.1])
def test_the_guarantee_does_not_need_a_good_confidence(world, max_risk):
    found = thresholds(WORLDS[world], 600, 500, seed=1, max_risk=max_risk, level=LEVEL)
    broken = WORLDS[world].risk_at(WORLDS[world].coverage(found)) > max_risk
    assert broken.mean() <= at_most(1 - LEVEL, sets=500)


def test_a_threshold_at_the_measured_risk_has_no_guarantee():
    """Choosing the largest coverage whose measured risk is low enough is not enough."""
    rng = np.random.default_rng(0)
    found = np.empty(200)
    for i in range(200):
        wrong, c = PLAIN.draw(1000, rng)
        found[i] = metrics.confidence_risk_coverage_curve(~wrong, c).coverage_at_risk(0.05)
    assert np.mean(PLAIN.risk_at(found) > 0.05) > 0.4


def test_the_bound_is_not_wasted():
    """A method that fails far more rarely than allowed has less coverage than possible."""
    found = thresholds(PLAIN, 2000, SETS, seed=0, max_risk=0.05, level=LEVEL)
    assert np.mean(PLAIN.risk_at(PLAIN.coverage(found)) > 0.05) > 0.04


@pytest.mark.parametrize(
    ("world", "max_risk"),
    [("plain", 0.05), ("plain", 0.1), ("never confident", 0.1), ("most confident are wrong", 0.1)],
)
def test_coverage_is_near_the_best_possible_with_many_rows(world, max_risk):
    """Even where the most confident rows are wrong: a later start skips them."""
    world = WORLDS[world]
    found = world.coverage(thresholds(world, 10_000, 40, seed=0, max_risk=max_risk))
    assert found.mean() >= 0.95 * world.best_coverage(max_risk)


@pytest.mark.parametrize("max_risk", [0.05, 0.1])
def test_coverage_is_near_the_best_possible_on_blobs(max_risk):
    """With the true posterior as confidence, whose risk at each coverage is the mean of what it leaves open."""
    X, y = Blobs(std=1.7).sample(200_000, seed=0)
    probs = Blobs(std=1.7).posterior(X)
    confidence, wrong = probs.max(axis=1), probs.argmax(axis=1) != y
    falling = np.sort(confidence)[::-1]
    best = np.max(np.flatnonzero(np.cumsum(1 - falling) <= max_risk * np.arange(1, len(falling) + 1)))
    found = [
        np.sum(confidence >= threshold_for_risk(w, c, max_risk=max_risk))
        for w, c in zip(wrong.reshape(20, -1), confidence.reshape(20, -1), strict=True)
    ]
    assert np.mean(found) >= 0.95 * best


def brute_force(wrong, confidence, max_risk, level):
    """The same procedure candidate by candidate, as in its docstring."""
    starts, alpha = _starts(len(wrong), max_risk, level)
    falling, laxest, budget, alive = np.append(np.sort(confidence)[::-1], -1.0), math.inf, 0.0, True
    for k in range(starts[0], len(wrong) + 1):
        if k in starts:
            budget, alive = (budget if alive else 0.0) + alpha, True
        accepted = confidence > falling[k]
        if alive and accepted.sum() >= starts[0]:
            bound = risk_bound(int(wrong[accepted].sum()), int(accepted.sum()), 1 - budget)
            alive = bound <= max_risk
            laxest = confidence[accepted].min() if alive else laxest
    return laxest


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(20, 700), st.sampled_from([None, 5, 20]))
def test_against_the_definition(seed, n, ties):
    """With one start up to 115 rows, and four from 560 rows on."""
    rng = np.random.default_rng(seed)
    c = rng.random(n) if ties is None else rng.integers(0, ties, n) / ties
    wrong = rng.random(n) < 0.06 + 0.14 * (1 - c)
    found, expected = threshold_for_risk(wrong, c, max_risk=0.12), brute_force(wrong, c, 0.12, 0.95)
    np.testing.assert_array_equal(c >= found, c >= expected)


def test_what_a_failed_start_had_left_is_lost():
    """The first error ends the first start; the second then has its own error probability only, not both."""
    (first, second), alpha = _starts(200, 0.08, 0.95)
    few = next(e for e in range(second) if risk_bound(e, second, 1 - 2 * alpha) > 0.08) - 1
    assert risk_bound(few, second, 1 - 2 * alpha) <= 0.08 < risk_bound(few, second, 1 - alpha)
    wrong, confidence = np.zeros(200, dtype=bool), np.linspace(1, 0, 200)
    wrong[:few] = wrong[second:] = True
    assert threshold_for_risk(wrong, confidence, max_risk=0.08) == math.inf
    wrong[:few] = False
    assert first < np.sum(confidence >= threshold_for_risk(wrong, confidence, max_risk=0.08)) >= second


def test_ties_stand_or_fall_together():
    wrong = np.zeros(1000, dtype=bool)
    wrong[600:] = True
    found = threshold_for_risk(wrong, np.where(np.arange(1000) < 600, 1.0, 0.7), max_risk=0.05)
    assert 0.7 < found <= 1.0
    assert threshold_for_risk(wrong, np.ones(1000), max_risk=0.05) == math.inf
    assert threshold_for_risk(wrong, np.ones(1000), max_risk=0.45) == 0


def test_all_right_accepts_everything_and_all_wrong_nothing():
    c = np.linspace(0, 1, 500)
    assert threshold_for_risk(np.zeros(500), c, max_risk=0.05) == 0
    assert threshold_for_risk(np.ones(500), c, max_risk=0.05) == math.inf


@pytest.mark.parametrize("max_risk", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_rows_needed_is_the_first_number_with_a_guarantee(max_risk, level):
    n = rows_needed(max_risk, level)
    assert risk_bound(0, n, level) <= max_risk < risk_bound(0, n - 1, level)
    assert threshold_for_risk(np.zeros(n), np.ones(n), max_risk=max_risk, level=level) == 0
    assert threshold_for_risk(np.zeros(n - 1), np.ones(n - 1), max_risk=max_risk, level=level) == math.inf


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(0, 500), st.floats(0.01, 0.99))
def test_risk_bound_inverts_the_binomial_test(accepted, errors, level):
    errors = min(errors, accepted)
    bound = risk_bound(errors, accepted, level)
    if errors == accepted:
        assert bound == 1
    else:
        assert binom.cdf(errors, accepted, bound) == pytest.approx(1 - level, rel=1e-6)


@pytest.mark.parametrize("min_coverage", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("n", [30, 200, 1000])
@pytest.mark.parametrize("ties", [None, 20])
def test_the_coverage_guarantee_holds_with_the_stated_probability(n, min_coverage, ties):
    rng = np.random.default_rng(n)
    c = rng.random((SETS, n)) if ties is None else rng.integers(0, ties, (SETS, n)) / ties
    found = np.array([threshold_for_coverage(row, min_coverage=min_coverage, level=LEVEL) for row in c])
    coverage = 1 - found if ties is None else 1 - np.ceil(found * ties - 1e-9) / ties
    assert np.mean(coverage < min_coverage - 1e-9) <= at_most(1 - LEVEL)
    assert coverage.mean() <= min_coverage + 2 / np.sqrt(n) + (0 if ties is None else 1 / ties)


@settings(deadline=None)
@given(st.integers(1, 300), st.floats(0.01, 1), st.floats(0.01, 0.99))
def test_coverage_by_the_beta_distribution_of_order_statistics(n, min_coverage, level):
    c = np.arange(1, n + 1) / n
    found = threshold_for_coverage(c, min_coverage=min_coverage, level=level)
    k = np.arange(1, n + 1)
    kept = beta.sf(min_coverage, k, n - k + 1)
    assume(np.all(np.abs(kept - level) > 1e-9))
    enough = k[kept >= level]
    assert found == (c[n - enough[0]] if len(enough) else 0)


@pytest.mark.parametrize(
    ("wrong", "confidence", "options", "error", "message"),
    [
        ([0, 1], [0.5], {}, DataError, "wrong has 2, confidence has 1"),
        ([0, 0.5], [0.5, 0.5], {}, DataError, "wrong must hold labels from"),
        ([0, 1], [0.5, np.nan], {}, DataError, "confidence must lie in"),
        ([0, 1], [0.5, 0.5], {"max_risk": 0}, ConfigError, "max_risk must be between 0 and 1"),
        ([0, 1], [0.5, 0.5], {"max_risk": 1.0}, ConfigError, "max_risk must be between 0 and 1"),
        ([0, 1], [0.5, 0.5], {"max_risk": "low"}, ConfigError, "max_risk must be between 0 and 1"),
        ([0, 1], [0.5, 0.5], {"level": 1}, ConfigError, "level must be a number in"),
    ],
)
def test_bad_input(wrong, confidence, options, error, message):
    with pytest.raises(error, match=message):
        threshold_for_risk(wrong, confidence, **{"max_risk": 0.1, **options})
