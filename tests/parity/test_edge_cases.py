"""Where peers give another value than we do, and why ours is the one we stand by.

Peers of the development group are asked here; the others in `heavy`. Versions: torchmetrics 1.9, netcal 1.4,
relplot 1.0.3; probmetrics, MAPIE and the reference code of temperature scaling are not installed and only named.
"""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torchmetrics.functional.classification import multiclass_calibration_error

from selfcal import calibrators, metrics
from tests.parity import edge_cases, torchmetrics64


def brute_force_error(correct, confidence, n_bins):
    """The definition, bin by bin: (a, b], the first one with 0."""
    total = 0.0
    for k in range(n_bins):
        inside = (confidence > k / n_bins) & (confidence <= (k + 1) / n_bins) | (confidence == 0) & (k == 0)
        total += abs((correct[inside].astype(float) - confidence[inside]).sum())
    return total / len(confidence)


def torchmetrics_error(y, probs):
    """The public function, in the type of its input."""
    y, probs = torch.from_numpy(y), torch.from_numpy(probs)
    return multiclass_calibration_error(probs, y, num_classes=probs.shape[1]).item()


def test_a_confidence_on_an_edge_is_in_the_bin_below():
    """torchmetrics, relplot, netcal and probmetrics put it above: [a, b)."""
    correct, confidence = edge_cases.at_the_edges()
    y, probs = edge_cases.two_columns(correct, confidence)
    ours = metrics.expected_calibration_error(y, probs, n_bins=8)
    assert ours == pytest.approx(brute_force_error(correct, confidence, 8), abs=1e-12)
    theirs = torchmetrics64.top_label_error(y, probs, n_bins=8)
    assert abs(ours - theirs) > 0.001
    left = metrics.expected_calibration_error(y, probs, n_bins=8, closed="left")
    assert left == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("closed", ["left", "right"])
def test_confidence_one_is_in_the_last_bin(closed):
    """torchmetrics and relplot open another bin for it, where errors of both signs no longer cancel."""
    correct, confidence = edge_cases.half_of_them_one()
    y, probs = edge_cases.two_columns(correct, confidence)
    ours = metrics.expected_calibration_error(y, probs, n_bins=10, closed=closed)
    assert ours == pytest.approx(abs(np.mean(correct - confidence)), abs=1e-12)
    assert torchmetrics64.top_label_error(y, probs, n_bins=10) > ours + 0.02


def test_ten_million_float32_rows_are_summed_in_float64():
    """torchmetrics sums in float32, where adding .995 to a million adds 1."""
    y, probs = edge_cases.many_confident_rows(10_000_000)
    ours = metrics.expected_calibration_error(y, probs)
    assert ours == pytest.approx(abs(np.mean((y == 0) - probs[:, 0], dtype=np.float64)), abs=1e-12)
    assert ours < 0.0001
    assert torchmetrics_error(y, probs) > 0.003


def test_a_probability_that_rounds_above_one_is_clipped():
    """torchmetrics takes the whole table for logits and applies softmax."""
    y, probs = edge_cases.a_little_above_one()
    ours = metrics.expected_calibration_error(y, probs)
    clipped = np.clip(probs, 0, 1)
    assert ours == metrics.expected_calibration_error(y, clipped)
    assert torchmetrics_error(y, clipped) == pytest.approx(ours, abs=1e-6)
    assert torchmetrics_error(y, probs) < ours - 0.1


def test_the_temperature_of_float32_logits_is_the_optimum():
    """netcal returns 1 exactly, the reference code (gpleiss) and probmetrics stop before they are there."""
    y, logits = edge_cases.float32_logits()
    rows = np.arange(len(y))

    def loss(log_beta):
        return -log_softmax(np.exp(log_beta) * logits.astype(np.float64), axis=1)[rows, y].mean()

    best = np.exp(-minimize_scalar(loss, bounds=(-3, 3), options={"xatol": 1e-10}).x)
    assert best == pytest.approx(1.8, abs=0.05)
    assert calibrators.TemperatureScaling().fit(logits, y).temperature_ == pytest.approx(best, abs=1e-6)


def test_a_class_nobody_has_counts():
    """probmetrics drops it from the mean over classes; uncertainty-calibration counts it as we do."""
    y, probs = edge_cases.a_class_nobody_has()
    errors = [brute_force_error(y == k, probs[:, k], 15) for k in range(5)]
    ours = metrics.classwise_calibration_error(y, probs)
    assert ours == pytest.approx(np.mean(errors), abs=1e-12)
    assert abs(np.mean(errors[:4]) - ours) > 0.01


@pytest.mark.parametrize("test", [metrics.kolmogorov_smirnov_test, metrics.kuiper_test])
def test_p_values_lie_between_zero_and_one(test):
    """MAPIE subtracts a series from 1 and gives -2.7e-12 where the value should be 0."""
    top = np.linspace(0.5, 0.5001, 1000)
    wrong = np.flatnonzero(np.arange(1000) % 2)
    p_values = []
    for surplus in range(0, 501, 10):
        y = np.zeros(1000, dtype=int)
        y[wrong[surplus:]] = 1
        p_values.append(test(y, np.column_stack([top, 1 - top])).p_value)
    assert all(0 <= p <= 1 for p in p_values)
    assert p_values == sorted(p_values, reverse=True)
    assert p_values[0] > 0.999
    assert p_values[-1] < 1e-40
