import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal.errors import ConfigError
from selfcal.metrics import (
    confidence_calibration_error,
    kde_calibration_error,
    mmce,
    sece,
    smooth_calibration_error,
)

from .strategies import predictions, weights_for

KERNEL_METRICS = [smooth_calibration_error, kde_calibration_error, sece, mmce]
MIDPOINTS = (np.arange(40_000) + 0.5) / 40_000


def top_label(y, p, w):
    return p.max(axis=1), (p.argmax(axis=1) == y).astype(float), w / w.sum()


def reflected_gaussian(centre, bandwidth):
    """The kernel at the midpoints of a fine grid, from its images on both sides."""
    images = np.concatenate([centre + 2 * np.arange(-4, 5), -centre + 2 * np.arange(-4, 5)])
    scaled = (MIDPOINTS[:, None] - images[np.abs(images - 0.5) < 1 + 10 * bandwidth]) / bandwidth
    return np.exp(-(scaled**2) / 2).sum(axis=1) / bandwidth / math.sqrt(2 * math.pi)


def direct_smooth_error(y, p, w, bandwidth):
    c, a, weight = top_label(y, p, w)
    return np.abs(
        sum(s * (x - t) * reflected_gaussian(t, bandwidth) for t, x, s in zip(c, a, weight, strict=True))
    ).mean()


def direct_kde_error(y, p, w, bandwidth):
    c, a, weight = top_label(y, p, w)
    terms = (
        s * (x - MIDPOINTS) * reflected_gaussian(t, bandwidth) for t, x, s in zip(c, a, weight, strict=True)
    )
    return np.abs(sum(terms)).mean()


def all_pairs_sece(y, p, w, bandwidth):
    c, a, weight = top_label(y, p, w)
    c, a, weight = c[w > 0], a[w > 0], weight[w > 0]
    kernel = np.exp(-((c[:, None] - c) ** 2) / (2 * bandwidth**2))
    return weight @ np.abs(kernel @ (weight * a) / (kernel @ weight) - c)


def all_pairs_mmce(y, p, w, bandwidth):
    c, a, weight = top_label(y, p, w)
    residual = weight * (a - c)
    return math.sqrt(max(0.0, residual @ np.exp(-np.abs(c[:, None] - c) / bandwidth) @ residual))


def calibrated(n, rng):
    """Two classes, right with exactly the probability claimed."""
    p1 = rng.random(n)
    return (rng.random(n) < p1).astype(int), np.column_stack([1 - p1, p1])


@settings(max_examples=25)
@given(predictions(), st.sampled_from([0.002, 0.03, 0.5]))
def test_smooth_error_equals_the_integral(data, bandwidth):
    y, p = data
    w = weights_for(len(y))
    value = smooth_calibration_error(y, p, bandwidth=bandwidth, sample_weight=w)
    assert value == pytest.approx(direct_smooth_error(y, p, w, bandwidth), abs=1e-5)


@settings(max_examples=25)
@given(predictions())
def test_automatic_bandwidth_is_where_the_error_equals_it(data):
    y, p = data
    w = weights_for(len(y))
    value = smooth_calibration_error(y, p, sample_weight=w)
    if value > 1e-3:
        assert direct_smooth_error(y, p, w, value) == pytest.approx(value, abs=1e-5)


def test_automatic_bandwidth_on_a_fine_grid():
    """A nearly calibrated model has a narrow bandwidth, which the first grid cannot show."""
    y, p = calibrated(20_000, np.random.default_rng(0))
    value = smooth_calibration_error(y, p)
    assert 0.004 < value < 0.025
    assert smooth_calibration_error(y, p, bandwidth=value) == pytest.approx(value, abs=1e-9)


@settings(max_examples=40)
@given(predictions())
def test_smooth_error_falls_with_the_bandwidth_from_the_error_of_each_confidence(data):
    y, p = data
    values = [smooth_calibration_error(y, p, bandwidth=b) for b in (0.003, 0.03, 0.3, 1.0)]
    assert np.all(np.diff(values) <= 1e-5)
    residual = (p.argmax(axis=1) == y) - p.max(axis=1)
    of_each = np.bincount(np.unique(p.max(axis=1), return_inverse=True)[1], residual / len(y))
    assert abs(residual.mean()) - 1e-12 <= values[-1]
    assert values[0] <= np.abs(of_each).sum() + 1e-5


def test_smooth_error_of_a_constant_gap():
    """All residuals are -.1, and a reflected kernel loses no mass: .1 at any bandwidth."""
    p = np.tile([0.6, 0.4], (10, 1))
    y = np.repeat([0, 1], 5)
    for bandwidth in (None, 0.0001, 0.01, 1.0):
        assert smooth_calibration_error(y, p, bandwidth=bandwidth) == pytest.approx(0.1, abs=1e-9)


@settings(max_examples=25)
@given(predictions(), st.sampled_from([0.005, 0.05]))
def test_kde_error_equals_the_integral(data, bandwidth):
    y, p = data
    w = weights_for(len(y))
    if np.ptp(p.max(axis=1)[w > 0]) > 0:
        value = kde_calibration_error(y, p, bandwidth=bandwidth, sample_weight=w)
        assert value == pytest.approx(direct_kde_error(y, p, w, bandwidth), abs=1e-4)


@given(predictions())
def test_kde_error_takes_weights_as_repeated_rows_at_the_same_bandwidth(data):
    y, p = data
    w = weights_for(len(y))
    times = w.astype(int)
    weighted = kde_calibration_error(y, p, bandwidth=0.05, sample_weight=w)
    repeated = kde_calibration_error(np.repeat(y, times), np.repeat(p, times, axis=0), bandwidth=0.05)
    assert weighted == pytest.approx(repeated, abs=1e-12)


def test_kde_bandwidth_is_silvermans():
    y, p = calibrated(500, np.random.default_rng(1))
    bandwidth = 1.06 * p.max(axis=1).std() * 500**-0.2
    assert kde_calibration_error(y, p) == pytest.approx(kde_calibration_error(y, p, bandwidth=bandwidth))


def test_kde_error_of_a_known_miscalibration():
    """Confidence c, right with probability c^2: the error is the mean of c - c^2."""
    rng = np.random.default_rng(2)
    c = rng.uniform(0.5, 1, 200_000)
    y = (rng.random(len(c)) > c**2).astype(int)
    value = kde_calibration_error(y, np.column_stack([c, 1 - c]))
    assert value == pytest.approx(3 / 4 - 7 / 12, abs=0.01)


def test_equal_confidences_have_the_error_of_their_one_value():
    p = np.tile([0.6, 0.4], (10, 1))
    y = np.repeat([0, 1], 5)
    assert kde_calibration_error(y, p) == pytest.approx(0.1, abs=1e-12)


@given(predictions(max_rows=60), st.sampled_from([0.0003, 0.01, 0.4, 1.0]))
def test_sece_equals_all_pairs(data, bandwidth):
    y, p = data
    w = weights_for(len(y))
    value = sece(y, p, bandwidth=bandwidth, sample_weight=w)
    assert value == pytest.approx(all_pairs_sece(y, p, w, bandwidth), abs=1e-6)


@pytest.mark.parametrize("bandwidth", [0.001, 0.01, 0.1])
def test_sece_equals_all_pairs_on_many_rows(bandwidth):
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.full(4, 0.3), size=2000)
    y, w = rng.integers(0, 4, 2000), rng.random(2000)
    value = sece(y, p, bandwidth=bandwidth, sample_weight=w)
    assert value == pytest.approx(all_pairs_sece(y, p, w, bandwidth), abs=1e-7)


def test_sece_of_rows_far_apart_is_the_error_of_each_row():
    p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    assert sece([0, 1, 1], p) == pytest.approx((0.1 + 0.2 + 0.6) / 3, abs=1e-6)
    assert sece([0, 1, 1], p, bandwidth=1.0) < 0.25


@given(predictions(max_rows=60), st.sampled_from([0.0001, 0.001, 0.4, 1.0]))
def test_mmce_equals_all_pairs(data, bandwidth):
    y, p = data
    w = weights_for(len(y))
    value = mmce(y, p, bandwidth=bandwidth, sample_weight=w)
    assert value**2 == pytest.approx(all_pairs_mmce(y, p, w, bandwidth) ** 2, abs=1e-14)


@pytest.mark.parametrize("bandwidth", [0.0005, 0.4])
def test_mmce_equals_all_pairs_on_many_rows(bandwidth):
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.full(4, 0.3), size=2000)
    y, w = rng.integers(0, 4, 2000), rng.random(2000)
    value = mmce(y, p, bandwidth=bandwidth, sample_weight=w)
    assert value == pytest.approx(all_pairs_mmce(y, p, w, bandwidth), abs=1e-12)


def test_mmce_is_zero_where_residuals_cancel():
    """A sum of squares: no rounding under the root, which would turn 1e-17 into 3e-9."""
    p = np.tile([[0.5, 0.5], [0.8, 0.2]], (500, 1))
    y = np.where(np.arange(1000) % 2 == 0, np.arange(1000) % 4 // 2, np.arange(1000) % 10 == 1).astype(int)
    assert [np.mean(y[::2] == 0), np.mean(y[1::2] == 0)] == [0.5, 0.8]
    assert mmce(y, p) < 1e-14


def test_mmce_by_hand():
    p = [[0.9, 0.1], [0.6, 0.4]]
    by_hand = math.sqrt(0.1**2 + 0.6**2 - 2 * 0.1 * 0.6 * math.exp(-0.3 / 0.4)) / 2
    assert mmce([0, 1], p) == pytest.approx(by_hand, abs=1e-15)


@pytest.mark.parametrize("metric", KERNEL_METRICS, ids=lambda metric: metric.__name__)
def test_a_calibrated_model_scores_little_and_an_overconfident_one_more(metric):
    rng = np.random.default_rng(5)
    y, p = calibrated(20_000, rng)
    sharper = p**3 / (p**3).sum(axis=1, keepdims=True)
    assert metric(y, p) < 0.02
    assert metric(y, sharper) > 4 * metric(y, p)


@pytest.mark.parametrize("metric", [smooth_calibration_error, kde_calibration_error, sece])
def test_kernel_and_binned_errors_agree_where_the_gap_has_one_sign(metric):
    rng = np.random.default_rng(6)
    c = rng.uniform(0.6, 1, 50_000)
    y = (rng.random(len(c)) > c - 0.1).astype(int)
    binned = confidence_calibration_error(y == 0, c)
    assert metric(y, np.column_stack([c, 1 - c]), bandwidth=0.01) == pytest.approx(binned, abs=0.003)


@pytest.mark.parametrize("metric", KERNEL_METRICS, ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("bandwidth", [0, 1e-5, -1, 1.1, math.nan, "wide"])
def test_bad_bandwidth(metric, bandwidth):
    with pytest.raises(ConfigError, match="bandwidth must be a number in"):
        metric([0], [[0.5, 0.5]], bandwidth=bandwidth)
