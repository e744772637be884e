import numpy as np
import pytest

from selfcal import metrics
from selfcal.calibrators import ScalingBinning, TemperatureScaling
from selfcal.errors import ConfigError


def overconfident(n=3000, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, n_classes))
    return 3 * logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def test_predicts_the_mean_scaled_confidence_of_each_bin():
    logits, y = overconfident()
    calibrator = ScalingBinning(n_bins=10).fit(logits, y)
    scaled = TemperatureScaling().fit(logits, y).confidence(logits)
    order = np.argsort(scaled)
    expected = scaled[order].reshape(10, -1).mean(axis=1)
    chosen = calibrator.predict_proba(logits)[np.arange(len(y)), logits.argmax(axis=1)]
    np.testing.assert_allclose(chosen[order], np.repeat(expected, 300), rtol=1e-12)


def test_others_keep_the_ratios_of_temperature_scaling():
    logits, y = overconfident()
    after = ScalingBinning().fit(logits, y).predict_proba(logits)
    before = TemperatureScaling().fit(logits, y).predict_proba(logits)
    second, third = np.argsort(before, axis=1)[:, [-2, -3]].T
    rows = np.arange(len(y))
    np.testing.assert_allclose(
        after[rows, second] * before[rows, third], after[rows, third] * before[rows, second], atol=1e-14
    )


def test_choice_of_two_classes_is_kept():
    logits, y = overconfident(n_classes=2)
    calibrator = ScalingBinning(n_bins=3).fit(logits, y)
    np.testing.assert_array_equal(calibrator.predict(logits), logits.argmax(axis=1))
    assert len(np.unique(calibrator.confidence(logits).round(12))) == 3


def test_new_rows_are_nearly_as_well_explained_as_by_temperature_scaling():
    (logits, y), (new, new_y) = overconfident(), overconfident(seed=1)
    binned, scaled = (
        metrics.log_loss(new_y, c.fit(logits, y).predict_proba(new))
        for c in (ScalingBinning(), TemperatureScaling())
    )
    assert binned == pytest.approx(scaled, abs=0.01)


def test_bad_settings():
    with pytest.raises(ConfigError, match="n_bins"):
        ScalingBinning(n_bins=0).fit([[0.0, 1.0]], [0])
