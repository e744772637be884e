import numpy as np
import pytest
from scipy.special import softmax

from selfcal import metrics
from selfcal.calibrators import EnsembleTemperatureScaling, TemperatureScaling

from .data import overconfident, weights


def test_weights_are_the_best_of_a_grid():
    z, y = overconfident(500)
    y[:80] = (y[:80] + 1) % 3  # wrong labels, for which the uniform part is the remedy
    weight = weights(len(y))
    calibrator = EnsembleTemperatureScaling(safeguard=False).fit(z, y, weight)
    parts = (
        TemperatureScaling().fit(z, y, weight).predict_proba(z),
        softmax(z, axis=1),
        np.full(z.shape, 1 / 3),
    )
    grid = [(i / 40, j / 40) for i in range(41) for j in range(41 - i)]
    mixed = [i * parts[0] + j * parts[1] + (1 - i - j) * parts[2] for i, j in grid]
    best = min(metrics.log_loss(y, np.abs(p), sample_weight=weight) for p in mixed)
    found = metrics.log_loss(y, calibrator.predict_proba(z), sample_weight=weight)
    assert best - 1e-3 < found <= best + 1e-9
    assert calibrator.weights_.sum() == pytest.approx(1)
    assert calibrator.weights_.min() >= 0


def test_is_never_worse_than_temperature_scaling():
    z, y = overconfident()
    ensemble, single = EnsembleTemperatureScaling(safeguard=False).fit(z, y), TemperatureScaling().fit(z, y)
    assert ensemble.scaling_.temperature_ == single.temperature_
    assert (
        metrics.log_loss(y, ensemble.predict_proba(z)) <= metrics.log_loss(y, single.predict_proba(z)) + 1e-9
    )
