"""Structured matrix scaling against `sms` of probmetrics 1.3."""

import numpy as np
import pytest
from probmetrics.calibrators import get_calibrator
from scipy.special import log_softmax, softmax

from selfcal.calibrators import StructuredMatrixScaling

DRAWS = 8


def network(n, k, seed, confused=0.0):
    """Log probabilities of an over-confident network, and labels.

    A `confused` network favours some classes, and takes some for their neighbours.
    """
    rng = np.random.default_rng([seed, k])
    z = rng.normal(0, 1, size=(n, k))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    shown = z + confused * (0.3 * np.roll(z, 1, axis=1) + np.linspace(-0.3, 0.3, k))
    return log_softmax(1.8 * shown, axis=1), y


def sms(z, y):
    calibrator = get_calibrator("sms")
    calibrator.fit(softmax(z, axis=1), y)
    return lambda new: calibrator.predict_proba(softmax(new, axis=1))


def loss(y, probs):
    return -np.mean(np.log(probs[np.arange(len(y)), y]))


def differences(n, k, confused):
    """Our log loss on new rows less theirs."""
    new, new_y = network(20_000, k, 0, confused)
    found = []
    for seed in range(1, DRAWS + 1):
        z, y = network(n, k, seed, confused)
        ours = StructuredMatrixScaling().fit(z, y).predict_proba(new)
        found.append(loss(new_y, ours) - loss(new_y, sms(z, y)(new)))
    return np.array(found)


@pytest.mark.parametrize(("n", "k"), [(1000, 3), (5000, 3), (5000, 10)])
def test_without_the_safeguard_it_is_the_same(n, k):
    """Theirs adds a uniform share of 1 / (n + 1) before the map: the difference goes like one over the rows."""
    z, y = network(n, k, 0, confused=1.0)
    new, new_y = network(20_000, k, 1, confused=1.0)
    ours = StructuredMatrixScaling(safeguard=False).fit(z, y).predict_proba(new)
    expected = sms(z, y)(new)
    assert np.abs(ours - expected).mean() < 5 / n
    assert loss(new_y, ours) == pytest.approx(loss(new_y, expected), abs=1 / n)


@pytest.mark.parametrize("n", [50, 200, 500])
@pytest.mark.parametrize("k", [3, 10])
def test_it_is_better_where_a_temperature_is_right(n, k):
    assert differences(n, k, confused=0.0).mean() < 0


@pytest.mark.parametrize("n", [50, 200, 500, 2000])
@pytest.mark.parametrize("k", [3, 10])
def test_the_safeguard_costs_little_where_a_matrix_is_right(n, k):
    found = differences(n, k, confused=1.0)
    assert found.mean() < found.std(ddof=1) / np.sqrt(DRAWS) + 2 / n
