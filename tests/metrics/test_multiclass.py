import numpy as np
import pytest

from selfcal.errors import ConfigError
from selfcal.metrics import consistency_test, kernel_calibration_test, multiclass

from .truth import distance_to_uniform, drawn


def all_pairs(y, p, bandwidth, weight):
    total = scale = 0.0
    residual = np.eye(p.shape[1])[y] - p
    for i in range(len(y)):
        for j in range(len(y)):
            if i != j:
                kernel = np.exp(-np.linalg.norm(p[i] - p[j]) / bandwidth)
                total += weight[i] * weight[j] * kernel * residual[i] @ residual[j]
                scale += weight[i] * weight[j]
    return total / scale


def test_equal_to_the_loop_over_all_pairs():
    y, p, _ = drawn(30, sharper=2.0)
    w = np.random.default_rng(0).exponential(size=30)
    found = kernel_calibration_test(y, p, bandwidth=0.7, sample_weight=w)
    assert found.statistic == pytest.approx(all_pairs(y, p, 0.7, w))
    assert kernel_calibration_test(y, p, bandwidth=0.7).statistic == pytest.approx(
        all_pairs(y, p, 0.7, np.ones(30))
    )


def test_the_variance_is_that_of_drawn_labels():
    _, p, _ = drawn(40)
    kernel = np.random.default_rng(0).random((40, 40))
    kernel += kernel.T
    np.fill_diagonal(kernel, 0)
    labels = multiclass._drawn_labels(p, 20_000, np.random.default_rng(1))
    sums = multiclass._sums_over_pairs(kernel, p, labels)
    assert sums.var() == pytest.approx(multiclass._variance_of_sum(kernel, p), rel=0.05)
    assert abs(sums.mean()) < 4 * sums.std() / np.sqrt(20_000)


def test_labels_are_drawn_from_their_rows():
    p = np.array([[0.0, 0.3, 0.7, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    labels = multiclass._drawn_labels(p, 20_000, np.random.default_rng(0))
    frequencies = np.array([np.bincount(column, minlength=4) for column in labels.T]) / 20_000
    np.testing.assert_allclose(frequencies, p, atol=0.015)
    assert np.all(frequencies[p == 0] == 0)


def test_p_values_of_many_rows_are_normal_and_uniform(monkeypatch):
    monkeypatch.setattr(multiclass, "RESAMPLED_ROWS", 0)
    p = [kernel_calibration_test(*drawn(1000, seed=seed)[:2], block_size=100).p_value for seed in range(150)]
    assert distance_to_uniform(p) < 0.13


def test_sees_what_the_top_label_does_not():
    """The top label is calibrated, but the second and third probabilities are swapped."""
    y, p, _ = drawn(2000, k=3)
    order = np.argsort(p, axis=1)
    swapped = p.copy()
    rows = np.arange(len(p))
    swapped[rows, order[:, 0]], swapped[rows, order[:, 1]] = p[rows, order[:, 1]], p[rows, order[:, 0]]
    assert consistency_test(y, swapped).p_value > 0.05
    assert kernel_calibration_test(y, swapped).p_value < 1e-4


def test_identical_rows_and_settings():
    same = [[0.5, 0.3, 0.2]] * 30
    assert kernel_calibration_test([0] * 30, same).p_value < 0.01
    for bad in ({"block_size": 1}, {"bandwidth": 0.0}, {"n_resamples": 0}):
        with pytest.raises(ConfigError, match=next(iter(bad))):
            kernel_calibration_test([0, 1], [[0.5, 0.5]] * 2, **bad)
