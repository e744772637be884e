"""Tensors of a network that is being trained, given to metrics and calibrators as they are."""

import inspect
import warnings

import numpy as np
import pytest

from selfcal import Predictions, calibrators, metrics
from selfcal.errors import CalibrationWarning

torch = pytest.importorskip("torch")

LOGITS = 3 * np.random.default_rng(0).normal(size=(60, 2))
Y = (LOGITS[:, 1] + np.random.default_rng(1).normal(size=60) > 0).astype(np.int64)
JUDGES = {
    name: judge
    for name, judge in ((name, getattr(metrics, name)) for name in metrics.__all__)
    if inspect.isfunction(judge) and [*inspect.signature(judge).parameters][:2] == ["y_true", "probs"]
}


@pytest.mark.fault("D32")
@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES.keys())
def test_metrics_take_tensors_with_a_gradient(judge):
    logits = torch.tensor(LOGITS, requires_grad=True)
    probs, weight = logits.softmax(dim=1), torch.ones(60, dtype=torch.float64, requires_grad=True)
    given = judge(torch.tensor(Y), probs, sample_weight=weight)
    assert repr(given) == repr(judge(Y, probs.detach().numpy(), sample_weight=np.ones(60)))


@pytest.mark.fault("D32")
@pytest.mark.parametrize("name", calibrators.__all__)
def test_calibrators_take_tensors_with_a_gradient(name):
    logits = torch.tensor(LOGITS, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # few rows
        calibrator = getattr(calibrators, name)().fit(logits, torch.tensor(Y))
    assert np.array_equal(calibrator.predict_proba(logits), calibrator.predict_proba(LOGITS))


@pytest.mark.fault("D32")
def test_streams_and_predictions_take_tensors_with_a_gradient():
    probs = torch.tensor(LOGITS, requires_grad=True).softmax(dim=1)
    streamed = metrics.CalibrationAccumulator(2).update(torch.tensor(Y), probs)
    assert streamed.compute().log_loss == pytest.approx(metrics.log_loss(Y, probs.detach().numpy()))
    assert len(Predictions.from_probabilities(torch.tensor(Y), probs).confidence) == 60
