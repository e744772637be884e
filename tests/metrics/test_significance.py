"""What every test of calibration keeps, and the known values of each."""

import inspect
import math

import numpy as np
import pytest
from hypothesis import given
from scipy.stats import norm

from selfcal import metrics
from selfcal._support.binning import bin_chunks
from selfcal.errors import ConfigError, DataError
from selfcal.metrics import (
    consistency_test,
    ece_noise_floor,
    expected_calibration_error,
    kolmogorov_smirnov_test,
    kuiper_test,
    spiegelhalter_test,
)
from selfcal.metrics._rows import claims
from selfcal.metrics.significance import brownian_maximum_tail, brownian_range_tail, resampled_errors

from .strategies import predictions, weights_for
from .truth import distance_to_uniform, drawn

TESTS = {name: getattr(metrics, name) for name in metrics.__all__ if name.endswith("_test")}
every_test = pytest.mark.parametrize("test", TESTS.values(), ids=TESTS.keys())


def quick(test):
    """Few resamples, for those that resample."""
    return {"n_resamples": 99} if "n_resamples" in inspect.signature(test).parameters else {}


def test_the_family_is_complete():
    assert len(TESTS) == 5


@every_test
@given(predictions())
def test_p_values_are_probabilities(test, data):
    w = weights_for(len(data[0]))
    for options in ({}, {"sample_weight": w}):
        found = test(*data, **quick(test), **options)
        assert 0 <= found.p_value <= 1
        assert not math.isnan(found.statistic)


@every_test
def test_p_values_of_a_calibrated_model_are_uniform(test):
    rows = 60 if quick(test) else 4000  # resampling is exact, the others have p-values for many rows
    p = [test(*drawn(rows, seed=seed)[:2], **quick(test)).p_value for seed in range(200)]
    assert distance_to_uniform(p) < 0.115  # 1 % of uniform samples are beyond 0.115


@every_test
def test_p_values_of_weighted_rows_are_uniform(test):
    def p_value(seed):
        rows = 100 if quick(test) else 2000
        y, p, _ = drawn(rows, seed=seed)
        w = np.random.default_rng(seed).exponential(size=rows)
        return test(y, p, sample_weight=w, **quick(test)).p_value

    assert distance_to_uniform([p_value(seed) for seed in range(150)]) < 0.15


@every_test
def test_an_overconfident_model_is_found(test):
    found = [test(*drawn(500, sharper=2.0, seed=seed)[:2], **quick(test)).p_value for seed in range(10)]
    assert max(found) < 0.05


@every_test
def test_certain_rows(test):
    """Confidences of exactly 1 leave no room for chance: all right fits, all wrong cannot be."""
    sure = [[1.0, 0.0]] * 8
    assert test([0] * 8, sure, **quick(test)).p_value == 1
    assert test([1] * 8, sure, **quick(test)).p_value <= 0.01


@every_test
@pytest.mark.parametrize("probs", [[0.3, 0.7], [0.5, 0.5], [0.0, 1.0]], ids=str)
def test_one_row(test, probs):
    assert test([1], [probs], **quick(test)).p_value > 0.05


@every_test
def test_class_names_scale_of_weights_and_bad_input(test):
    y, p, _ = drawn(60, k=3)
    names = np.array(["x", "y", "z"])
    w = weights_for(60)
    found = test(y, p, sample_weight=w, **quick(test))
    same = test(names[y], p, classes=names, sample_weight=8 * w, **quick(test))
    assert same.p_value == pytest.approx(found.p_value)
    with pytest.raises(DataError, match="sum to one"):
        test([0, 1], [[0.5, 0.5], [0.5, 0.6]])
    with pytest.raises(DataError, match="row 1 is 7"):
        test([0, 7], [[0.5, 0.5], [0.5, 0.5]])


@every_test
def test_the_same_seed_gives_the_same_result(test):
    y, p, _ = drawn(80)
    assert test(y, p, **quick(test)) == test(y, p, **quick(test))


ORDERLESS = pytest.mark.parametrize(
    "test", [consistency_test, spiegelhalter_test, kolmogorov_smirnov_test, kuiper_test]
)


@ORDERLESS
@given(predictions())
def test_order_of_rows_does_not_matter_even_with_ties(test, data):
    y, p = data
    again = test(y[::-1], p[::-1], **quick(test))
    found = test(y, p, **quick(test))
    assert again.statistic == pytest.approx(found.statistic, abs=1e-9)


@ORDERLESS
def test_of_a_class_is_the_test_of_its_probability(test):
    y, p, _ = drawn(200, k=3)
    two = np.column_stack([1 - p[:, 2], p[:, 2]])
    assert test(y, p, of_class=2).statistic == pytest.approx(
        test(y == 2, two, of_class=True, classes=[False, True]).statistic
    )
    with pytest.raises(DataError, match="of_class must hold labels"):
        test(y, p, of_class="dog")


def test_consistency_statistic_is_the_error_and_p_counts_draws():
    y, p, _ = drawn(100)
    found = consistency_test(y, p, n_bins=7, norm="l2", n_resamples=19)
    assert found.statistic == pytest.approx(expected_calibration_error(y, p, n_bins=7, norm="l2"))
    assert (found.p_value * 20) == pytest.approx(round(found.p_value * 20))
    with pytest.raises(ConfigError, match="n_resamples"):
        consistency_test(y, p, n_resamples=0)


@pytest.mark.parametrize("weighted", [False, True])
def test_resampled_errors_have_the_distribution_of_the_noise_floor(weighted):
    """Rows drawn together against rows drawn one by one."""
    y, p, _ = drawn(3000)
    w = np.random.default_rng(0).exponential(size=3000) if weighted else None
    claimed = claims(y, p, None, w)
    errors = resampled_errors(claimed, bin_chunks([claimed]), norm="l1", n_resamples=2000, seed=1)
    floor = ece_noise_floor(claimed.confidence, n_resamples=2000, seed=2, sample_weight=w)
    assert errors.mean() == pytest.approx(floor.mean, rel=0.03)
    assert np.quantile(errors, [0.05, 0.95]) == pytest.approx([floor.low, floor.high], rel=0.06)


def test_spiegelhalter_by_hand():
    found = spiegelhalter_test([1, 0], [[0.2, 0.8], [0.6, 0.4]])
    z = ((1 - 0.8) * (1 - 1.6) + (1 - 0.6) * (1 - 1.2)) / math.sqrt(0.36 * 0.16 + 0.04 * 0.24)
    assert found.statistic == pytest.approx(z)
    assert found.p_value == pytest.approx(2 * norm.sf(abs(z)))


@given(predictions(max_classes=2))
def test_spiegelhalter_is_the_same_for_either_of_two_classes(data):
    values = [spiegelhalter_test(*data, of_class=c).statistic for c in (None, 0, 1)]
    assert values == pytest.approx([values[0]] * 3, abs=1e-9)


def test_cumulative_statistics_by_hand():
    y, p = [1, 0, 1], [[0.2, 0.8], [0.6, 0.4], [0.3, 0.7]]  # sorted: .6 right, .7 right, .8 right
    scale = math.sqrt(0.24 + 0.21 + 0.16)
    assert kolmogorov_smirnov_test(y, p).statistic == pytest.approx(0.9 / scale)
    assert kuiper_test(y, p).statistic == pytest.approx(0.9 / scale)
    y = [0, 0, 1]  # .6 right, .7 right, .8 wrong: the sums are 0, .4, .7, -.1
    assert kolmogorov_smirnov_test(y, p).statistic == pytest.approx(0.7 / scale)
    assert kuiper_test(y, p).statistic == pytest.approx(0.8 / scale)


def test_kuiper_sees_errors_that_cancel():
    """Over-confident above 0.75, under-confident below: the sum over all rows is zero."""
    rng = np.random.default_rng(0)
    c = rng.uniform(0.5, 1, size=2000)
    right = rng.random(2000) < np.where(c > 0.75, c - 0.1, c + 0.1)
    y, p = np.where(right, 1, 0), np.column_stack([1 - c, c])
    assert kuiper_test(y, p).p_value < 1e-6


@pytest.mark.parametrize("x", [0.3, 0.6, 0.99, 1.0, 1.01, 1.49, 1.51, 3.0, 6.0, 12.0])
def test_brownian_tails_are_their_reflection_series(x):
    k = np.arange(400)
    sign = np.where(k % 2, -1.0, 1.0)
    assert brownian_maximum_tail(x) == pytest.approx(4 * np.sum(sign * norm.sf((2 * k + 1) * x)), rel=1e-9)
    assert brownian_range_tail(x) == pytest.approx(8 * np.sum(-sign * k * norm.sf(k * x)), rel=1e-9)


@pytest.mark.parametrize("tail", [brownian_maximum_tail, brownian_range_tail])
def test_brownian_tails_fall_from_one_to_zero(tail):
    """MAPIE gives -2.7e-12 for a large statistic."""
    values = [tail(x) for x in [0.0, 1e-9, *np.linspace(0.01, 50, 3000), math.inf]]
    assert values[0] == 1
    assert values[-1] == 0
    assert min(values) >= 0
    assert max(np.diff(values)) <= 1e-12
