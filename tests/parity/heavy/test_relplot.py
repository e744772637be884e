"""Ours against relplot 1.0.3."""

import numpy as np
import pytest
from relplot.kernels import ReflectedGaussianKernel
from relplot.metrics import binnedECE, smECE, smECE_sigma

from selfcal import metrics
from tests.parity import edge_cases


@pytest.mark.parametrize("n_bins", [5, 15])
def test_expected_calibration_error(data, top, n_bins):
    correct, confidence = top
    y, probs, _ = data
    ours = metrics.expected_calibration_error(y, probs, n_bins=n_bins)
    assert ours == pytest.approx(binnedECE(confidence, correct, nbins=n_bins), abs=1e-9)


@pytest.fixture
def inside(data):
    """Labels and probabilities, correctness and confidence, of the rows that stay away from confidence 1."""
    y, probs, _ = data
    kept = probs.max(axis=1) < 0.99
    y, probs = y[kept], probs[kept]
    return y, probs, (probs.argmax(axis=1) == y).astype(float), probs.max(axis=1)


def smoothed_with_their_kernel(correct, confidence, bandwidth):
    """Their kernel on a grid so fine that it no longer matters; their own function has 200 points."""
    places = np.linspace(0, 1, 20_001)
    kernel = ReflectedGaussianKernel(bandwidth)
    field = kernel.apply(confidence, correct - confidence, places, eval_points=40_000)
    return np.trapezoid(np.abs(field), places) / len(confidence)


@pytest.mark.parametrize("bandwidth", [0.02, 0.05, 0.1])
def test_smooth_error_at_a_given_bandwidth(inside, bandwidth):
    y, probs, *top = inside
    ours = metrics.smooth_calibration_error(y, probs, bandwidth=bandwidth)
    assert ours == pytest.approx(smoothed_with_their_kernel(*top, bandwidth), abs=1e-6)
    assert ours == pytest.approx(smECE_sigma(*top[::-1], bandwidth), abs=1e-3)


def test_smooth_error_at_its_own_bandwidth(inside):
    """They halve the interval of bandwidths ten times; our bandwidth is the point where error and bandwidth meet."""
    y, probs, correct, confidence = inside
    ours = metrics.smooth_calibration_error(y, probs)
    theirs, bandwidth = smECE(confidence, correct, return_width=True)
    assert ours == pytest.approx(theirs, abs=1.5 / 1024)
    assert ours == pytest.approx(bandwidth, abs=1.5 / 1024)
    assert metrics.smooth_calibration_error(y, probs, bandwidth=ours) == pytest.approx(ours, abs=1e-6)


def test_they_smooth_away_half_of_what_lies_at_one():
    """A mass at the boundary is its own mirror image and counts twice in a reflected kernel; with them, once."""
    correct, confidence = np.arange(100) < 90, np.ones(100)
    ours = metrics.smooth_calibration_error(*edge_cases.two_columns(correct, confidence), bandwidth=0.05)
    assert ours == pytest.approx(0.1, abs=1e-9)
    assert smoothed_with_their_kernel(correct, confidence, 0.05) == pytest.approx(0.05, abs=1e-4)


def test_a_confidence_on_an_edge_goes_to_the_bin_above():
    correct, confidence = edge_cases.at_the_edges()
    theirs = binnedECE(confidence, correct, nbins=8)
    left = metrics.confidence_calibration_error(correct, confidence, n_bins=8, closed="left")
    assert left == pytest.approx(theirs, abs=1e-9)
    assert abs(metrics.confidence_calibration_error(correct, confidence, n_bins=8) - theirs) > 0.001


def test_confidence_one_gets_a_bin_of_its_own():
    correct, confidence = edge_cases.half_of_them_one()
    ours = metrics.confidence_calibration_error(correct, confidence, n_bins=10)
    assert binnedECE(confidence, correct, nbins=10) > ours + 0.02
