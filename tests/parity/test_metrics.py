"""Our metrics against scikit-learn and torchmetrics, on data where the definitions agree."""

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from selfcal import metrics
from tests.parity import torchmetrics64

NORMS = ["l1", "l2", "max"]


def test_log_loss_equals_scikit_learn(data):
    y, probs, weight = data
    expected = log_loss(y, probs, labels=np.arange(probs.shape[1]), sample_weight=weight)
    assert metrics.log_loss(y, probs, sample_weight=weight) == pytest.approx(expected, abs=1e-9)


def test_brier_score_equals_scikit_learn(data):
    y, probs, weight = data
    labels = np.arange(probs.shape[1])
    expected = brier_score_loss(y, probs, labels=labels, sample_weight=weight, scale_by_half=False)
    assert metrics.brier_score(y, probs, sample_weight=weight) == pytest.approx(expected, abs=1e-9)


def test_accuracy_equals_scikit_learn(data):
    y, probs, weight = data
    expected = accuracy_score(y, probs.argmax(axis=1), sample_weight=weight)
    assert metrics.accuracy(y, probs, sample_weight=weight) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize("n_bins", [5, 15])
def test_reliability_bins_equal_scikit_learn(top, n_bins, strategy):
    """scikit-learn interpolates between order statistics; with n a multiple of the bins that splits them alike."""
    correct, confidence = top
    accuracy, mean_confidence = calibration_curve(correct, confidence, n_bins=n_bins, strategy=strategy)
    ours = metrics.reliability_curve(correct, confidence, n_bins=n_bins, strategy=strategy)
    filled = ours.count > 0
    np.testing.assert_allclose(ours.accuracy[filled], accuracy, atol=1e-9)
    np.testing.assert_allclose(ours.confidence[filled], mean_confidence, atol=1e-9)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n_bins", [5, 15, 100])
def test_calibration_error_equals_torchmetrics(data, n_bins, norm):
    y, probs, _ = data
    value = metrics.expected_calibration_error(y, probs, n_bins=n_bins, norm=norm)
    assert value == pytest.approx(torchmetrics64.top_label_error(y, probs, n_bins, norm), abs=1e-9)


@pytest.mark.parametrize("n_bins", [5, 15, 100])
def test_maximum_calibration_error_equals_torchmetrics(data, n_bins):
    y, probs, _ = data
    expected = torchmetrics64.top_label_error(y, probs, n_bins, "max")
    assert metrics.maximum_calibration_error(y, probs, n_bins=n_bins) == pytest.approx(expected, abs=1e-9)


def test_debiased_calibration_error_equals_torchmetrics(data):
    """Few bins: a row alone in its bin counts as zero with us, as in the paper, but not with torchmetrics."""
    y, probs, _ = data
    value = metrics.expected_calibration_error(y, probs, n_bins=5, norm="l2", debias=True)
    assert value == pytest.approx(torchmetrics64.top_label_error(y, probs, 5, "l2", debias=True), abs=1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_binary_calibration_error_equals_torchmetrics(data, norm):
    y, probs, _ = data
    y, second = (y > 0).astype(int), 1 - probs[:, 0]
    value = metrics.binary_calibration_error(y, np.column_stack([1 - second, second]), norm=norm)
    assert value == pytest.approx(torchmetrics64.binned_error(y, second, norm=norm), abs=1e-9)
    public = binary_calibration_error(torch.from_numpy(second), torch.from_numpy(y), norm=norm)
    assert value == pytest.approx(public.item(), abs=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_classwise_calibration_error_is_the_mean_of_torchmetrics_over_classes(data, norm):
    y, probs, _ = data
    errors = [
        torchmetrics64.binned_error(y == k, probs[:, k].copy(), norm=norm) for k in range(probs.shape[1])
    ]
    expected = {"l1": np.mean(errors), "l2": np.sqrt(np.mean(np.square(errors))), "max": np.max(errors)}
    assert metrics.classwise_calibration_error(y, probs, norm=norm) == pytest.approx(expected[norm], abs=1e-9)


def test_calibration_error_equals_public_torchmetrics_up_to_float32(data):
    y, probs, _ = data
    theirs = multiclass_calibration_error(
        torch.from_numpy(probs), torch.from_numpy(y), num_classes=probs.shape[1]
    )
    assert metrics.expected_calibration_error(y, probs) == pytest.approx(theirs.item(), abs=1e-5)
