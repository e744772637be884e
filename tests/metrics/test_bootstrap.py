import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcal.errors import ConfigError
from selfcal.metrics import (
    accuracy,
    binary_calibration_error,
    bootstrap_interval,
    calibration_error_interval,
    expected_calibration_error,
    log_loss,
    posterior_calibration_error,
    score_interval,
)
from selfcal.metrics.bootstrap import resampled_weights

from .strategies import predictions, weights_for
from .truth import drawn


@pytest.mark.parametrize("method", ["percentile", "basic"])
def test_of_a_mean_it_is_near_the_student_interval(method):
    y, p, _ = drawn(400)
    found = bootstrap_interval(log_loss, y, p, method=method)
    student = score_interval(y, p)
    assert found.value == pytest.approx(student.value)
    assert (found.low, found.high) == pytest.approx((student.low, student.high), abs=0.02)


def test_basic_mirrors_percentile():
    y, p, _ = drawn(60)
    percentile = bootstrap_interval(log_loss, y, p, n_resamples=50)
    basic = bootstrap_interval(log_loss, y, p, n_resamples=50, method="basic")
    assert basic.low == pytest.approx(2 * percentile.value - percentile.high)
    assert basic.high == pytest.approx(2 * percentile.value - percentile.low)


def test_the_seed_decides_and_options_reach_the_metric():
    y, p, _ = drawn(60)
    names = np.array(list("abcd"))
    options = {"classes": names, "n_bins": 3, "n_resamples": 20}
    one = bootstrap_interval(expected_calibration_error, names[y], p, seed=1, **options)
    assert one == bootstrap_interval(expected_calibration_error, names[y], p, seed=1, **options)
    assert one != bootstrap_interval(expected_calibration_error, names[y], p, seed=2, **options)
    assert one.value == expected_calibration_error(y, p, n_bins=3)


def test_a_resample_draws_as_many_rows_as_count():
    weight = np.array([2.0, 0.0, 1.0, 3.0])
    drawn_weights = np.array(list(resampled_weights(4, 3000, 0, weight)))
    assert np.all(drawn_weights[:, 1] == 0)
    times = drawn_weights[:, weight > 0] / weight[weight > 0]
    assert np.all(times.sum(axis=1) == 3)
    assert times.mean(axis=0) == pytest.approx([1, 1, 1], abs=0.05)


def test_one_weighted_row_among_zeros_can_be_resampled():
    found = bootstrap_interval(
        accuracy, [0, 1], [[0.9, 0.1], [0.8, 0.2]], sample_weight=[1, 0], n_resamples=30
    )
    assert (found.low, found.value, found.high) == (1.0, 1.0, 1.0)


@given(
    predictions(),
    st.sampled_from(["l1", "l2", "max"]),
    st.sampled_from(["uniform", "quantile"]),
    st.sampled_from(["right", "left"]),
)
def test_value_of_the_calibration_error_and_range(data, norm, strategy, closed):
    options = {
        "norm": norm,
        "strategy": strategy,
        "closed": closed,
        "sample_weight": weights_for(len(data[0])),
    }
    found = calibration_error_interval(*data, n_resamples=50, **options)
    assert found.value == pytest.approx(expected_calibration_error(*data, **options), abs=1e-12)
    assert 0 <= found.low <= found.high <= 1


def test_the_interval_of_one_class_is_that_of_its_column():
    y, p, _ = drawn(500, sharper=1.5)
    found = calibration_error_interval(y, p, of_class=1, n_resamples=200)
    assert found.value == pytest.approx(binary_calibration_error(y, p, positive=1), abs=1e-12)
    top = calibration_error_interval(y, p, n_resamples=200)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    claim = np.column_stack([1 - confidence, confidence])
    assert calibration_error_interval(right.astype(int), claim, of_class=1, n_resamples=200) == top


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("sharper", [1.0, 1.15, 2.0])
def test_calibration_error_intervals_cover(norm, sharper):
    """The percentile bootstrap never covers zero for a calibrated model; this interval has the stated coverage."""
    _, p, posterior = drawn(200_000, sharper=sharper)
    true = posterior_calibration_error(posterior, p, norm=norm)
    found = [
        calibration_error_interval(*drawn(400, sharper=sharper, seed=seed)[:2], norm=norm, n_resamples=300)
        for seed in range(1, 121)
    ]
    assert np.mean([max(i.low - 1e-4, 0) <= true <= i.high for i in found]) >= 0.89


def test_the_percentile_bootstrap_misses_a_calibrated_model():
    lows = [
        bootstrap_interval(expected_calibration_error, *drawn(300, seed=seed)[:2], n_resamples=100).low
        for seed in range(5)
    ]
    assert min(lows) > 0.02


def test_the_interval_narrows_with_rows_and_finds_the_error():
    wide, narrow = (calibration_error_interval(*drawn(n, sharper=2.0)[:2]) for n in (300, 30_000))
    assert narrow.high - narrow.low < 0.2 * (wide.high - wide.low)
    assert narrow.low > 0.05


def test_the_shares_of_the_bins_are_uncertain_too():
    """A bin that is always wrong beside one that is always right: only how many fall into each is random."""
    n = 400
    y, p = [0] * n, [[0.1, 0.9], [1.0, 0.0]] * (n // 2)
    found = calibration_error_interval(y, p)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.9 * 0.5 / np.sqrt(n), rel=0.15)


def test_perfect_predictions_leave_room_for_few_rows():
    few, many = (calibration_error_interval([0] * n, [[1.0, 0.0]] * n) for n in (5, 5000))
    assert few.value == many.value == few.low == 0
    assert many.high < 0.01 < few.high


def test_bad_settings():
    y, p, _ = drawn(10)
    with pytest.raises(ConfigError, match="method must be"):
        bootstrap_interval(log_loss, y, p, method="bca")
    with pytest.raises(ConfigError, match="n_resamples"):
        calibration_error_interval(y, p, n_resamples=0)
    with pytest.raises(ConfigError, match="norm must be"):
        calibration_error_interval(y, p, norm="l3")
