"""Debiasing: what the noise of the labels adds to a binned calibration error is taken off."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcal.metrics import adaptive_calibration_error, expected_calibration_error

from .strategies import predictions, weights_for


def calibrated(n, rng, sharpening=1.0):
    """Two classes whose top label is right with a probability of `confidence ** sharpening`."""
    confidence = rng.uniform(0.5, 1, n)
    right = rng.random(n) < confidence**sharpening
    return np.where(right, 0, 1), np.column_stack([confidence, 1 - confidence])


def debiased_square(right, confidence, n_bins):
    """Kumar et al.'s estimator of the squared l2 error, one bin after the other."""
    total = 0.0
    place = np.ceil(confidence * n_bins).astype(int)
    for b in np.unique(place):
        a, c = right[place == b], confidence[place == b]
        if len(a) > 1:
            total += len(a) * ((a.mean() - c.mean()) ** 2 - a.var(ddof=1) / len(a))
    return total / len(right)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 200))
def test_l2_is_the_unbiased_estimator_of_kumar_et_al(seed, n_bins, n):
    y, p = calibrated(n, np.random.default_rng(seed), sharpening=2.0)
    expected = math.sqrt(max(0.0, debiased_square((y == 0).astype(float), p[:, 0], n_bins)))
    value = expected_calibration_error(y, p, n_bins=n_bins, norm="l2", debias=True)
    assert value**2 == pytest.approx(expected**2, abs=1e-12)


def test_l2_is_unbiased_over_many_label_sets():
    rng = np.random.default_rng(1)
    truth = (0.75 - 0.9) ** 2  # one bin of confidence .9, right three times in four
    probs = np.column_stack([np.full(20, 0.9), np.full(20, 0.1)])
    plain, debiased = [], []
    for _ in range(4000):
        y = (rng.random(20) > 0.75).astype(int)
        plain.append(expected_calibration_error(y, probs, norm="l2") ** 2)
        acc = np.mean(y == 0)
        debiased.append((acc - 0.9) ** 2 - acc * (1 - acc) / 19)
    assert np.mean(plain) == pytest.approx(truth + 0.75 * 0.25 / 20, rel=0.05)
    assert np.mean(debiased) == pytest.approx(truth, rel=0.08)


def test_l1_takes_off_the_mean_surplus_of_a_normal_resample():
    """The closed form of what uncertainty-calibration finds by drawing normal accuracies."""
    rng = np.random.default_rng(2)
    y, p = calibrated(400, rng, sharpening=1.3)
    place = np.ceil(p[:, 0] * 10).astype(int)
    weight, gap, deviation = [], [], []
    for b in np.unique(place):
        acc, conf = np.mean(y[place == b] == 0), p[place == b, 0].mean()
        weight.append(np.mean(place == b))
        gap.append(acc - conf)
        deviation.append(math.sqrt(acc * (1 - acc) / np.sum(place == b)))
    draws = rng.normal(gap, deviation, size=(400_000, len(gap)))
    plain = np.dot(weight, np.abs(gap))
    by_drawing = 2 * plain - (np.abs(draws) @ weight).mean()
    value = expected_calibration_error(y, p, n_bins=10, debias=True)
    assert value == pytest.approx(by_drawing, abs=2e-4)
    assert value < plain - 0.005


def mean_of_small_samples(norm, sharpening, rng):
    """Mean of the plain and of the debiased error over 200 samples of 300 rows."""
    small = [calibrated(300, rng, sharpening) for _ in range(200)]
    return [
        np.mean([expected_calibration_error(y, p, norm=norm, debias=debias) for y, p in small])
        for debias in (False, True)
    ]


def test_l2_is_nearer_to_the_truth_in_small_samples():
    rng = np.random.default_rng(3)
    truth = expected_calibration_error(*calibrated(400_000, rng, sharpening=1.5), norm="l2")
    plain, debiased = mean_of_small_samples("l2", 1.5, rng)
    assert abs(debiased - truth) < 0.5 * abs(plain - truth)


def test_l1_takes_off_part_of_what_a_calibrated_model_scores():
    """For one bin with true gap 0 it leaves (2 - sqrt 2) = .59 of the noise."""
    plain, debiased = mean_of_small_samples("l1", 1.0, np.random.default_rng(3))
    assert debiased == pytest.approx((2 - math.sqrt(2)) * plain, rel=0.1)


@given(predictions(), st.sampled_from(["l1", "l2"]))
def test_never_negative_nor_more_than_the_plain_error(data, norm):
    y, p = data
    w = weights_for(len(y))
    for metric in (expected_calibration_error, adaptive_calibration_error):
        plain = metric(y, p, norm=norm, sample_weight=w)
        assert 0 <= metric(y, p, norm=norm, sample_weight=w, debias=True) <= plain + 1e-12


def test_a_weight_is_not_more_data():
    """Scaling all weights changes nothing; repeating rows makes the same gap less likely to be noise."""
    y, p = calibrated(60, np.random.default_rng(4), sharpening=3.0)
    for norm in ("l1", "l2"):
        once = expected_calibration_error(y, p, norm=norm, debias=True)
        twice = expected_calibration_error(y, p, norm=norm, debias=True, sample_weight=np.full(60, 2.0))
        repeated = expected_calibration_error(np.tile(y, 2), np.tile(p, (2, 1)), norm=norm, debias=True)
        assert twice == pytest.approx(once, abs=1e-12)
        assert repeated > once


def test_a_bin_of_one_row_counts_as_zero_in_l2_and_without_noise_in_l1():
    probs = [[0.9, 0.1]]
    assert expected_calibration_error([1], probs, norm="l2", debias=True) == 0
    assert expected_calibration_error([1], probs, norm="l1", debias=True) == pytest.approx(0.9)
