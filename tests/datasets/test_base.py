"""The contract of every generated data set; a new member of `paper_datasets` is under test at once."""

from __future__ import annotations

import dataclasses
from functools import lru_cache

import numpy as np
import pytest

from selfcal.datasets import GenerativeDataset, paper_datasets
from selfcal.datasets._base import CHUNK_ROWS
from selfcal.errors import ConfigError, DataError

NAMES = list(paper_datasets())
BAYES_ACCURACY = {"blobs-1.3": 0.94, "blobs-1.7": 0.876, "spiral-2.5": 0.92, "spiral-3.5": 0.82, "bac": 0.99}
ACCURACY_TOLERANCE = {"bac": 0.005}
SMALLEST_CLASS = {"bac": 0.3}
MANY = 200_000


@pytest.fixture(params=NAMES, scope="module")
def dataset(request: pytest.FixtureRequest) -> GenerativeDataset:
    return paper_datasets()[request.param]


@lru_cache(maxsize=3)
def many(dataset: GenerativeDataset, seed: int = 0):
    """Return a large sample with its posterior, computed once as pytest runs set by set."""
    X, y = dataset.sample(MANY, seed)
    return X, y, dataset.posterior(X)


def worst_calibration_gap(p, y, n_bins=20):
    """Return the largest |sum of y - p| over classes and bins of p, in units of what chance allows.

    A sum with variance V stays within 5 √V + 10 but for one case in 100,000 (Bernstein's inequality).
    """
    worst = 0.0
    for c, column in enumerate(p.T):
        cell = np.minimum((column * n_bins).astype(int), n_bins - 1)
        gap = np.bincount(cell, (y == c) - column, n_bins)
        variance = np.bincount(cell, column * (1 - column), n_bins)
        worst = max(worst, float(np.max(np.abs(gap) / (5 * np.sqrt(variance) + 10))))
    return worst


def top_label_ece(p, y, n_bins=15):
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == y
    cell = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    return np.abs(np.bincount(cell, correct - confidence, n_bins)).sum() / len(y)


def test_sample_has_the_promised_shape_and_types(dataset):
    X, y = dataset.sample(50, seed=3)
    assert X.shape == (50, dataset.n_features)
    assert X.dtype == np.float64
    assert y.shape == (50,)
    assert y.dtype == np.int64
    assert set(y) <= set(range(dataset.n_classes))


def test_same_seed_same_table_other_seed_other_table(dataset):
    X, y = dataset.sample(500, seed=7)
    again, y_again = dataset.sample(500, seed=7)
    other, _ = dataset.sample(500, seed=8)
    np.testing.assert_array_equal(X, again)
    np.testing.assert_array_equal(y, y_again)
    assert not np.any(X[:, 0] == other[:, 0])


def test_posterior_rows_are_positive_and_sum_to_one(dataset):
    _, _, p = many(dataset)
    assert p.shape == (MANY, dataset.n_classes)
    assert p.dtype == np.float64
    assert np.all((p > 0) & (p <= 1))
    assert np.all(np.isfinite(np.log(p)))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=0, atol=1e-12)


def test_posterior_of_a_row_does_not_depend_on_its_neighbours(dataset):
    X, _ = dataset.sample(2 * CHUNK_ROWS + 1, seed=1)
    p = dataset.posterior(X)
    one_by_one = np.concatenate([dataset.posterior(row[None, :]) for row in X[::97]])
    np.testing.assert_allclose(p[::97], one_by_one, rtol=1e-9, atol=0)


def test_posterior_is_calibrated(dataset):
    _, y, p = many(dataset)
    assert worst_calibration_gap(p, y) < 1


@pytest.mark.parametrize("power", [2 / 3, 1.5])
def test_the_calibration_check_notices_a_wrong_temperature(dataset, power):
    _, y, p = many(dataset)
    wrong = p**power
    assert worst_calibration_gap(wrong / wrong.sum(axis=1, keepdims=True), y) > 1


@pytest.mark.slow
def test_ece_of_the_posterior_is_sampling_noise(dataset):
    """It falls like 1 / √n, where an error of the posterior would stay."""
    sizes = np.array([2_000, 20_000, MANY])
    ece = np.zeros(len(sizes))
    for seed in (0, 1, 2):
        _, y, p = many(dataset, seed)
        for k, n in enumerate(sizes):
            ece[k] += np.mean([top_label_ece(p[i : i + n], y[i : i + n]) for i in range(0, MANY, n)])
    slope, _ = np.polyfit(np.log(sizes), np.log(ece), 1)
    assert slope == pytest.approx(-0.5, abs=0.1)


def test_bayes_accuracy_is_near_the_papers(dataset):
    _, y, p = many(dataset)
    tolerance = ACCURACY_TOLERANCE.get(dataset.name, 0.01)
    assert p.max(axis=1).mean() == pytest.approx(BAYES_ACCURACY[dataset.name], abs=tolerance)
    assert (p.argmax(axis=1) == y).mean() == pytest.approx(p.max(axis=1).mean(), abs=5 * 0.5 / np.sqrt(MANY))


def test_every_class_is_present(dataset):
    _, y, p = many(dataset)
    frequency = np.bincount(y, minlength=dataset.n_classes) / MANY
    noise = 5 * 0.5 / np.sqrt(MANY)
    np.testing.assert_allclose(frequency, p.mean(axis=0), rtol=0, atol=noise)
    if dataset.name in SMALLEST_CLASS:
        assert frequency.min() >= SMALLEST_CLASS[dataset.name]
    else:
        np.testing.assert_allclose(frequency, 1 / dataset.n_classes, rtol=0, atol=noise)


@pytest.mark.parametrize("scale", [1e3, 1e9, 1e150])
def test_far_rows_have_a_finite_posterior(dataset, scale):
    X, _ = dataset.sample(200, seed=0)
    free = [k for k, feature in enumerate(dataset.features) if not feature.whole]
    for columns in (free, free[:1], free[1:]):
        far = X.copy()
        far[:, columns] *= scale
        p = dataset.posterior(far)
        assert np.all(np.isfinite(np.log(p)))
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=0, atol=1e-12)


def test_no_rows_give_no_rows(dataset):
    assert dataset.posterior(np.empty((0, dataset.n_features))).shape == (0, dataset.n_classes)


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "10"])
def test_n_must_be_a_whole_number(dataset, n):
    with pytest.raises(ConfigError, match="n must be a whole number of at least 1"):
        dataset.sample(n, seed=0)


@pytest.mark.parametrize("seed", [-1, 0.5, None])
def test_seed_must_be_a_whole_number(dataset, seed):
    with pytest.raises(ConfigError, match="seed must be a whole number"):
        dataset.sample(5, seed=seed)


def test_wrong_width_names_the_shape(dataset):
    with pytest.raises(DataError, match=rf"\(rows, {dataset.n_features}\).*got shape \(4, 9\)"):
        dataset.posterior(np.zeros((4, 9)))
    with pytest.raises(DataError, match=rf"got shape \({dataset.n_features},\).*X\[None, :\]"):
        dataset.posterior(np.zeros(dataset.n_features))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_a_number_names_the_row_and_column(dataset, value):
    X, _ = dataset.sample(20, seed=0)
    X[7, 0] = value
    with pytest.raises(DataError, match=rf"{dataset.features[0].name} must be finite.*row 7 is -?(nan|inf)"):
        dataset.posterior(X)


def test_text_is_no_table(dataset):
    with pytest.raises(DataError, match="X must be a table of numbers"):
        dataset.posterior([["a"] * dataset.n_features])


def test_settings_are_values(dataset):
    assert dataclasses.replace(dataset) == dataset
    assert hash(dataclasses.replace(dataset)) == hash(dataset)
    setting = dataclasses.fields(dataset)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(dataset, setting, 1.0)
    for wrong in (0, -1.0, np.nan, np.inf, "1", True):
        with pytest.raises(ConfigError, match=f"{setting} must be a number"):
            dataclasses.replace(dataset, **{setting: wrong})
