import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcal.errors import ConfigError, DataError
from selfcal.metrics import (
    binary_calibration_error,
    classwise_calibration_error,
    confidence_calibration_error,
    expected_calibration_error,
    top_label_conditional_calibration_error,
)

from .strategies import binnings, predictions, weights_for


def combined(errors, weights, norm):
    if norm == "max":
        return max(errors)
    power = 1 if norm == "l1" else 2
    return sum(s * e**power for s, e in zip(weights, errors, strict=True)) ** (1 / power)


@given(predictions(), binnings(), st.booleans())
def test_classwise_is_the_mean_over_one_against_the_rest(data, options, weighted):
    y, p = data
    w = weights_for(len(y)) if weighted else np.ones(len(y))
    k = p.shape[1]
    errors = [confidence_calibration_error(y == j, p[:, j], sample_weight=w, **options) for j in range(k)]
    value = classwise_calibration_error(y, p, sample_weight=w if weighted else None, **options)
    assert value == pytest.approx(combined(errors, [1 / k] * k, options["norm"]), abs=1e-12)


@given(predictions(), binnings(), st.booleans())
def test_top_label_conditional_is_the_weighted_mean_over_predicted_classes(data, options, weighted):
    y, p = data
    w = weights_for(len(y)) if weighted else np.ones(len(y))
    predicted = p.argmax(axis=1)
    errors, weights = [], []
    for j in np.unique(predicted[w > 0]):
        rows = predicted == j
        right, confidence = y[rows] == j, p[rows, j]
        errors.append(confidence_calibration_error(right, confidence, sample_weight=w[rows], **options))
        weights.append(w[rows].sum() / w.sum())
    value = top_label_conditional_calibration_error(y, p, sample_weight=w if weighted else None, **options)
    assert value == pytest.approx(combined(errors, weights, options["norm"]), abs=1e-12)


@given(predictions())
def test_conditioning_on_the_label_never_hides_an_error(data):
    assert top_label_conditional_calibration_error(*data) >= expected_calibration_error(*data) - 1e-12


def test_errors_that_cancel_over_predicted_classes():
    """Class 0 is claimed with .75 and always right, class 1 with .75 and right half of the time."""
    p = np.repeat([[0.75, 0.25], [0.25, 0.75]], 2, axis=0)
    y = np.array([0, 0, 1, 0])
    assert expected_calibration_error(y, p) == 0
    assert top_label_conditional_calibration_error(y, p) == 0.25
    assert top_label_conditional_calibration_error(y, p, norm="l2") == 0.25


@given(predictions(), binnings())
def test_binary_error_is_that_of_one_column(data, options):
    y, p = data
    names = np.array(["cat", "dog", "eel", "fox", "gnu"])[: p.shape[1]]
    for j, name in enumerate(names):
        expected = confidence_calibration_error(y == j, p[:, j], **options)
        assert binary_calibration_error(y, p, positive=j, **options) == pytest.approx(expected, abs=1e-12)
        value = binary_calibration_error(names[y], p[:, ::-1], positive=name, classes=names[::-1], **options)
        assert value == pytest.approx(expected, abs=1e-12)
    assert binary_calibration_error(y, p, **options) == pytest.approx(expected, abs=1e-12)


def test_binary_error_is_not_the_top_label_error():
    p1 = np.array([0.1, 0.9])  # right about both: max(p) is .9 twice, P(y=1) is .1 and .9
    probs = np.column_stack([1 - p1, p1])
    assert binary_calibration_error([0, 1], probs, n_bins=1) == pytest.approx(0)
    assert expected_calibration_error([0, 1], probs, n_bins=1) == pytest.approx(0.1)


def test_two_classes_share_their_classwise_error_off_the_edges():
    rng = np.random.default_rng(0)
    p1 = rng.random(500)
    probs, y = np.column_stack([1 - p1, p1]), rng.integers(0, 2, 500)
    assert classwise_calibration_error(y, probs) == pytest.approx(binary_calibration_error(y, probs))


def test_a_class_absent_from_the_labels_stays():
    """Probmetrics drops the column of a class that no row has."""
    probs = [[0.5, 0.1, 0.4], [0.2, 0.2, 0.6]]
    by_hand = ((0.5 + 0.8) + (0.1 + 0.2) + (0.4 + 0.6)) / 2 / 3
    assert classwise_calibration_error([0, 0], probs) == pytest.approx(by_hand)


def test_debiased_classwise_error_of_a_calibrated_model_is_near_zero():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=2000)
    y = (rng.random((len(p), 1)) > p.cumsum(axis=1)).sum(axis=1)
    for metric in (classwise_calibration_error, top_label_conditional_calibration_error):
        for norm in ("l1", "l2"):
            assert metric(y, p, norm=norm, debias=True) < 0.6 * metric(y, p, norm=norm)


def test_debiased_classwise_error_by_hand():
    """Both columns hold one bin of two rows with mean .5 and one hit: 0 - .25 / (2 - 1), which counts as 0."""
    p = np.array([[0.5, 0.5], [0.5, 0.5]])
    assert classwise_calibration_error([0, 1], p, norm="l2", debias=True) == 0
    p = np.array([[0.9, 0.1], [0.9, 0.1]])
    gap_squared_less_noise = 0.4**2 - 0.25
    assert gap_squared_less_noise < 0
    assert classwise_calibration_error([0, 1], p, norm="l2", debias=True) == 0
    assert classwise_calibration_error([1, 1], p, norm="l2", debias=True) == pytest.approx(0.9)
    assert math.isclose(classwise_calibration_error([0, 1], p, norm="l2"), 0.4)


def test_memory_of_the_classwise_error_is_constant():
    probs = np.full((300_000, 10), 0.1, dtype=np.float32)
    y = np.zeros(300_000, dtype=np.int64)
    tracemalloc.start()
    classwise_calibration_error(y, probs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


@pytest.mark.parametrize(
    "metric",
    [classwise_calibration_error, top_label_conditional_calibration_error, binary_calibration_error],
    ids=lambda metric: metric.__name__,
)
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"norm": "L1"}, "Did you mean 'l1'"),
        ({"strategy": "equal"}, "strategy must be one of"),
        ({"closed": "none"}, "closed must be one of"),
        ({"n_bins": 0}, "n_bins must be"),
        ({"debias": "yes"}, "debias must be True or False"),
        ({"norm": "max", "debias": True}, "debias=True needs norm 'l1' or 'l2'"),
    ],
    ids=lambda option: ",".join(option) if isinstance(option, dict) else None,
)
def test_bad_options(metric, option, message):
    with pytest.raises(ConfigError, match=message):
        metric([0, 1], [[0.5, 0.5], [0.3, 0.7]], **option)


def test_an_unknown_positive_class():
    with pytest.raises(DataError, match=r"positive must hold labels from .*'dog'"):
        binary_calibration_error(["cat"], [[0.5, 0.5]], positive="cow", classes=["cat", "dog"])
