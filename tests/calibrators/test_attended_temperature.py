import numpy as np
import pytest
from scipy.special import softmax

from selfcal import metrics
from selfcal.calibrators import AttendedTemperatureScaling, TemperatureScaling
from selfcal.errors import ConfigError

from .data import overconfident, weights

# Many thresholds are bad ones, and rolled back.
pytestmark = pytest.mark.filterwarnings("ignore::selfcal.errors.CalibrationWarning")


def attended_loss(z, y, weight, threshold, temperature):
    """Row by row and class by class, as it is defined."""
    before, after, loss = softmax(z, axis=1), softmax(z / temperature, axis=1), 0.0
    for i, label in enumerate(y):
        for k, s in enumerate(after[i]):
            if k == label:
                loss -= weight[i] * np.log(s)
            elif before[i, k] > threshold or z[i].argmax() == k:
                loss -= weight[i] * np.log(s**2 / (1 - s))
    return loss


@pytest.mark.parametrize("threshold", [0.1, 0.01])
def test_temperature_is_the_best_of_a_grid(threshold):
    z, y = overconfident(100, 5)
    weight = weights(len(y))
    found = AttendedTemperatureScaling(threshold, safeguard=False).fit(z, y, weight).temperature_
    temperatures = np.geomspace(0.3, 30, 150)
    losses = [attended_loss(z, y, weight, threshold, t) for t in temperatures]
    assert attended_loss(z, y, weight, threshold, found) <= min(losses) + 1e-9
    assert found == pytest.approx(temperatures[np.argmin(losses)], rel=0.05)


def test_threshold_of_one_borrows_only_what_is_misclassified():
    z, y = overconfident(5000)
    right = z.argmax(axis=1) == y
    attended = AttendedTemperatureScaling(1.0, safeguard=False).fit(z[right], y[right]).temperature_
    assert attended == pytest.approx(np.exp(-2.25), rel=0.01)  # every row is right: as sure as it can be


def test_without_a_threshold_takes_that_of_the_lowest_log_loss():
    z, y = overconfident(2000, 5)
    chosen = AttendedTemperatureScaling(safeguard=False).fit(z, y)
    loss = metrics.log_loss(y, chosen.predict_proba(z))
    for threshold in (1e-3, 1e-2, 0.1):
        other = AttendedTemperatureScaling(threshold, safeguard=False).fit(z, y)
        assert loss <= metrics.log_loss(y, other.predict_proba(z)) + 1e-3
    assert chosen.temperature_ == pytest.approx(TemperatureScaling().fit(z, y).temperature_, rel=0.4)


def test_bad_threshold():
    with pytest.raises(ConfigError, match="threshold must be a number"):
        AttendedTemperatureScaling(2.0, safeguard=False).fit(*overconfident())
