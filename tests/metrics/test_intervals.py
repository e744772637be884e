import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, t

from selfcal import metrics
from selfcal.errors import ConfigError, DataError
from selfcal.metrics import clopper_pearson_interval, mean_interval, score_interval, wilson_interval

from .strategies import predictions, weights_for
from .truth import drawn

SHARES = {"wilson": wilson_interval, "exact": clopper_pearson_interval}
each_share = pytest.mark.parametrize("method", SHARES)


def test_known_values():
    low, high = wilson_interval([0.5, 0.0, 1.0], [10, 10, 10])
    np.testing.assert_allclose(low, [0.236593, 0.0, 0.722467], atol=1e-6)
    np.testing.assert_allclose(high, [0.763407, 0.277533, 1.0], atol=1e-6)


@each_share
def test_equal_to_scipy(method):
    for successes in range(0, 21, 4):
        expected = binomtest(successes, 20).proportion_ci(0.9, method=method)
        low, high = SHARES[method](successes / 20, 20, level=0.9)
        np.testing.assert_allclose([low, high], [expected.low, expected.high], atol=1e-12)


@each_share
def test_nothing_is_known_without_observations(method):
    low, high = SHARES[method]([0.3], [0])
    assert (low[0], high[0]) == (0, 1)


@each_share
@given(st.floats(0, 1), st.floats(0.1, 1e7), st.floats(0.5, 0.999))
def test_holds_the_rate_and_stays_in_range(method, rate, count, level):
    low, high = SHARES[method](rate, count, level=level)
    assert 0 <= low <= rate + 1e-9
    assert rate - 1e-9 <= high <= 1


@pytest.mark.parametrize("true", [0.02, 0.3, 0.9])
def test_the_exact_interval_covers_at_any_count(true):
    hits = np.random.default_rng(0).binomial(15, true, size=5000)
    low, high = clopper_pearson_interval(hits / 15, np.full(5000, 15))
    assert np.mean((low <= true) & (true <= high)) >= 0.945


@pytest.mark.parametrize("level", [0, 1, 1.1, "high"])
@pytest.mark.parametrize("interval", [wilson_interval, clopper_pearson_interval])
def test_bad_level(interval, level):
    with pytest.raises(ConfigError, match="level must be"):
        interval([0.5], [10], level=level)


def test_mean_is_the_student_interval():
    values = np.random.default_rng(0).normal(3, 2, size=12)
    found = mean_interval(values, level=0.9)
    expected = t.interval(0.9, 11, loc=values.mean(), scale=values.std(ddof=1) / math.sqrt(12))
    assert (found.low, found.high) == pytest.approx(expected)
    assert found.value == pytest.approx(values.mean())


def test_equal_weights_change_nothing_and_zero_weights_drop_rows():
    values = np.random.default_rng(0).normal(size=20)
    plain = mean_interval(values[:10])
    half = np.r_[np.full(10, 7.0), np.zeros(10)]
    for field in ("value", "low", "high"):
        assert getattr(mean_interval(values, sample_weight=half), field) == pytest.approx(
            getattr(plain, field)
        )


def test_one_row_tells_nothing_but_the_bounds():
    assert mean_interval([0.3], bounds=(0, 2)).high == 2
    assert mean_interval([0.3, 5.0], sample_weight=[1, 0]).low == -math.inf


def test_weighted_intervals_cover():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        w = rng.exponential(size=60)
        hits += 1.0 in mean_interval(rng.exponential(size=60), sample_weight=w)
    assert 0.9 <= hits / 400 <= 0.98


@pytest.mark.parametrize("values", [[], [np.nan], [[1.0]]])
def test_bad_values(values):
    with pytest.raises(DataError, match="values must be a vector"):
        mean_interval(values)


@given(predictions(), st.sampled_from(["accuracy", "log_loss", "brier_score"]))
def test_the_value_is_the_metric_and_lies_inside(data, score):
    w = weights_for(len(data[0]))
    found = score_interval(*data, score=score, sample_weight=w)
    assert found.value == pytest.approx(getattr(metrics, score)(*data, sample_weight=w), abs=1e-12)
    assert max(0, found.low) <= found.value + 1e-12
    assert found.value <= found.high + 1e-12


def test_accuracy_near_one_has_width():
    assert score_interval([0] * 50, [[0.9, 0.1]] * 50, score="accuracy").low == pytest.approx(
        0.9287, abs=1e-4
    )


def test_classes_by_name_and_unknown_scores():
    y, p, _ = drawn(50, k=3)
    names = np.array(["a", "b", "c"])
    assert score_interval(names[y], p, classes=names) == score_interval(y, p)
    with pytest.raises(ConfigError, match="Did you mean 'log_loss'"):
        score_interval(y, p, score="logloss")
