"""Sample weights whose sum or square overflows, or vanishes: only their ratios count."""

import json
import warnings

import numpy as np
import pytest

from selfcal import SelfCalibratedClassifier, calibrators, metrics
from selfcal.errors import CalibrationWarning

RNG = np.random.default_rng(0)
LOGITS = 4 * RNG.normal(size=(90, 3))
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
Y = np.array([RNG.choice(3, p=p) for p in 0.5 * PROBS + 0.5 / 3])
WEIGHT = RNG.integers(1, 5, size=90).astype(float)
SCALES = [2.0**-1000, 2.0**-500, 2.0**500, 2.0**1010]


@pytest.mark.fault("D30")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", calibrators.__all__)
def test_calibrators(name, scale):
    """To some, a weight is a number of rows: beyond all rows there are, or next to none, more makes no difference."""

    def fitted(scale):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            return getattr(calibrators, name)().fit(LOGITS, Y, WEIGHT * scale).predict_proba(LOGITS)

    probs = fitted(scale)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    np.testing.assert_allclose(probs, fitted(2.0**130 if scale > 1 else 2.0**-130), atol=1e-4)


@pytest.mark.fault("D30")
@pytest.mark.parametrize("scale", SCALES)
def test_the_classifier(scale):
    extreme, ordinary = (
        SelfCalibratedClassifier("temperature", max_epochs=5, random_state=0)
        .fit(LOGITS, Y, sample_weight=weight)
        .predict_proba(LOGITS)
        for weight in (WEIGHT * scale, WEIGHT)
    )
    assert np.array_equal(extreme, ordinary)


@pytest.mark.fault("D30")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("again", [lambda seen: seen, lambda seen: type(seen).from_dict(_stored(seen))])
def test_streams_whose_parts_have_other_scales(scale, again):
    """Three parts: the second weighs a thousand times the first, the third hardly anything."""
    weight = np.concatenate([WEIGHT[:30], 1024 * WEIGHT[30:60], 2.0**-40 * WEIGHT[60:]])
    parts = [slice(0, 30), slice(30, 60), slice(60, 90)]
    added = metrics.CalibrationAccumulator(3, classwise=True)
    for rows in parts:
        part = metrics.CalibrationAccumulator(3, classwise=True)
        added = again(added + again(part.update(Y[rows], PROBS[rows], scale * weight[rows])))
    found = added.compute()
    assert found.log_loss == pytest.approx(metrics.log_loss(Y, PROBS, sample_weight=weight), rel=1e-12)
    assert found.ece == pytest.approx(
        metrics.expected_calibration_error(Y, PROBS, sample_weight=weight), rel=1e-12
    )
    assert found.classwise_ece == pytest.approx(
        metrics.classwise_calibration_error(Y, PROBS, sample_weight=weight), rel=1e-12
    )
    expected = metrics.CalibrationAccumulator(3).update(Y, PROBS, weight).compute()
    np.testing.assert_allclose(found.bins.effective_count, expected.bins.effective_count, rtol=1e-12)


def _stored(seen):
    return json.loads(json.dumps(seen.to_dict()))
