"""Ours against netcal 1.4, on data where the definitions agree."""

import netcal.binning
import netcal.metrics
import netcal.scaling
import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from selfcal import calibrators, metrics
from tests.parity import edge_cases
from tests.parity.conftest import too_large_logits

pytestmark = pytest.mark.filterwarnings("ignore:independent is deprecated:DeprecationWarning")  # pyro's

ERRORS = {
    netcal.metrics.ECE: metrics.expected_calibration_error,
    netcal.metrics.MCE: metrics.maximum_calibration_error,
}


def netcal_error(metric, top, n_bins, *, equal_mass=False):
    """Confidences and correctness go in as "detections": netcal turns labels with two values into P(y=1)."""
    correct, confidence = top
    measure = metric(n_bins, equal_intervals=not equal_mass, detection=True).measure
    return measure(confidence[:, None], correct.astype(int))


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize("n_bins", [5, 15])
@pytest.mark.parametrize("metric", ERRORS, ids=lambda metric: metric.__name__)
def test_expected_and_maximum_calibration_error(data, top, metric, n_bins, strategy):
    y, probs, _ = data
    expected = netcal_error(metric, top, n_bins, equal_mass=strategy == "quantile")
    assert ERRORS[metric](y, probs, n_bins=n_bins, strategy=strategy) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("n_bins", [5, 15])
def test_adaptive_calibration_error(data, top, n_bins):
    """netcal's ACE is the plain mean over bins: the same where all bins hold equally many rows."""
    y, probs, _ = data
    expected = netcal_error(netcal.metrics.ACE, top, n_bins, equal_mass=True)
    assert metrics.adaptive_calibration_error(y, probs, n_bins=n_bins) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_binary_calibration_error(data, strategy):
    """With two labels netcal's ECE is that of P(y=1)."""
    y, probs, _ = data
    y = (y > 0).astype(int)
    probs = np.column_stack([probs[:, 0], 1 - probs[:, 0]])
    expected = netcal.metrics.ECE(15, equal_intervals=strategy == "uniform").measure(probs[:, 1], y)
    assert metrics.binary_calibration_error(y, probs, strategy=strategy) == pytest.approx(expected, abs=1e-9)


def test_mmce(data):
    y, probs, _ = data
    assert metrics.mmce(y, probs) == pytest.approx(netcal.metrics.MMCE().measure(probs, y), abs=1e-9)


def test_a_confidence_on_an_edge_goes_to_the_bin_above():
    top = edge_cases.at_the_edges()
    theirs = netcal_error(netcal.metrics.ECE, top, 8)
    left = metrics.confidence_calibration_error(*top, n_bins=8, closed="left")
    assert left == pytest.approx(theirs, abs=1e-9)
    assert abs(metrics.confidence_calibration_error(*top, n_bins=8) - theirs) > 0.001


def test_the_temperature_of_float32_logits_is_one_exactly():
    """The same logits in float64 give the temperature that we find in both."""
    y, logits = edge_cases.float32_logits()
    ours = calibrators.TemperatureScaling().fit(logits, y).temperature_
    single, double = (
        netcal.scaling.TemperatureScaling().fit(softmax(logits.astype(dtype), axis=1), y).temperature[0]
        for dtype in (np.float32, np.float64)
    )
    assert single == 1
    assert 1 / double == pytest.approx(ours, abs=1e-5)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (netcal.scaling.LogisticCalibration, calibrators.BetaCalibration("am", safeguard=False)),
        (netcal.scaling.BetaCalibration, calibrators.BetaCalibration("abm", safeguard=False)),
    ],
    ids=["logistic", "beta"],
)
def test_curves_of_two_classes(two_classes, theirs, ours):
    """netcal's search ends with a log loss that is 1e-9 above ours."""
    y, z, _ = two_classes
    p = softmax(z, axis=1)[:, 1]
    expected = theirs().fit(p, y).transform(p)
    probs = ours.fit(z, y).predict_proba(z)
    np.testing.assert_allclose(probs[:, 1], expected, atol=2e-4)
    loss = metrics.log_loss(y, np.column_stack([1 - expected, expected]))
    assert metrics.log_loss(y, probs) == pytest.approx(loss, abs=1e-7)


@pytest.mark.parametrize("n_classes", [3, 10])
def test_vector_scaling(n_classes):
    """netcal starts from probabilities: its logits are their logarithms. Of two classes it makes one logit."""
    y, z, _ = too_large_logits(n_classes)
    z = log_softmax(z, axis=1)
    expected = netcal.scaling.LogisticCalibration().fit(np.exp(z), y).transform(np.exp(z))
    probs = calibrators.VectorScaling(l2=0.0, safeguard=False).fit(z, y).predict_proba(z)
    np.testing.assert_allclose(probs, expected, atol=1e-3)
    assert metrics.log_loss(y, probs) == pytest.approx(metrics.log_loss(y, expected), abs=1e-7)


def test_histogram_binning(two_classes):
    """We add one row, half of each class, to every bin."""
    y, z, _ = two_classes
    p = softmax(z, axis=1)[:, 1]
    expected = netcal.binning.HistogramBinning(10).fit(p, y).transform(p)
    count = np.bincount(np.ceil(10 * p).astype(int))[np.ceil(10 * p).astype(int)]
    ours = (
        calibrators.HistogramBinning(10, strategy="uniform", safeguard=False).fit(z, y).predict_proba(z)[:, 1]
    )
    np.testing.assert_allclose(ours, (expected * count + 0.5) / (count + 1), atol=1e-9)
