import math

import numpy as np
import pytest
from hypothesis import given
from sklearn.metrics import brier_score_loss

from selfcal.errors import ConfigError, DataError
from selfcal.metrics import accuracy, brier_score, expected_calibration_error, log_loss

from .strategies import predictions, weights_for

Y = [0, 1, 2]
PROBS = [[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.0, 0.0, 1.0]]


def test_values_by_hand():
    assert accuracy(Y, PROBS) == pytest.approx(2 / 3)
    assert log_loss(Y, PROBS) == pytest.approx(-(math.log(0.7) + math.log(0.3)) / 3)
    assert brier_score(Y, PROBS) == pytest.approx((0.14 + 0.78 + 0.0) / 3)


@given(predictions())
def test_equal_to_the_plain_formula(data):
    y, p = data
    w = weights_for(len(y))
    one_hot = np.eye(p.shape[1])[y]
    right = p.argmax(axis=1) == y
    true = p[np.arange(len(y)), y]
    assert accuracy(y, p, sample_weight=w) == pytest.approx(np.average(right, weights=w))
    assert log_loss(y, p, sample_weight=w) == pytest.approx(
        np.average(-np.log(np.maximum(true, 2.0**-52)), weights=w)
    )
    assert brier_score(y, p, sample_weight=w) == pytest.approx(
        np.average(((p - one_hot) ** 2).sum(axis=1), weights=w)
    )


def test_perfect_and_worst_predictors():
    y = np.array([0, 1, 2, 1])
    perfect, worst = np.eye(3)[y], np.eye(3)[(y + 1) % 3]
    assert (accuracy(y, perfect), log_loss(y, perfect), brier_score(y, perfect)) == (1.0, 0.0, 0.0)
    assert (accuracy(y, worst), brier_score(y, worst)) == (0.0, 2.0)


def test_log_loss_of_a_zero_is_the_log_of_the_float64_epsilon():
    assert log_loss([1], [[1.0, 0.0]]) == pytest.approx(52 * math.log(2))
    assert log_loss([1], np.array([[1.0, 0.0]], dtype=np.float16)) == pytest.approx(52 * math.log(2))


def test_accuracy_takes_the_first_of_tied_classes():
    probs = [[0.4, 0.4, 0.2], [0.4, 0.4, 0.2], [0.1, 0.2, 0.7]]
    assert accuracy([0, 1, 2], probs) == pytest.approx(2 / 3)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("scale_by_half", [True, False, "auto"])
def test_the_scale_of_the_brier_score_is_that_of_scikit_learn(k, scale_by_half):
    rng = np.random.default_rng(0)
    p, y, w = rng.dirichlet(np.ones(k), size=50), rng.integers(0, k, 50), rng.random(50)
    expected = brier_score_loss(y, p, sample_weight=w, labels=range(k), scale_by_half=scale_by_half)
    found = brier_score(y, p, sample_weight=w, scale_by_half=scale_by_half)
    assert found == pytest.approx(expected, rel=1e-12)


def test_an_unknown_scale_of_the_brier_score():
    with pytest.raises(ConfigError, match="scale_by_half must be True, False or"):
        brier_score([0], [[1.0, 0.0]], scale_by_half="half")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("row", [[-0.5, 1.5], [np.nan, 1.0], [np.inf, -np.inf], [1.0, 1e-2]])
def test_rows_that_are_no_probabilities_are_refused_in_every_precision(dtype, row):
    with pytest.raises(DataError, match="row 1 is"):
        brier_score([0, 1], np.array([[0.5, 0.5], row], dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_negative_zero_is_a_zero(dtype):
    probs = np.array([[-0.0, 1.0], [1.0, -0.0]], dtype)
    assert brier_score([1, 1], probs) == 1.0
    assert expected_calibration_error([1, 1], probs) == 0.5
