"""Ours against uncertainty-calibration 0.1.4, whose bins are (a, b] too."""

import calibration as uncal
import numpy as np
import pytest
from scipy.special import softmax

from selfcal import calibrators, metrics
from tests.parity import edge_cases

SCHEMES = {"uniform": uncal.get_equal_prob_bins, "quantile": uncal.get_equal_bins}
POWERS = {"l1": 1, "l2": 2}
MODES = {
    "top-label": metrics.expected_calibration_error,
    "marginal": metrics.classwise_calibration_error,
}


@pytest.mark.parametrize("strategy", SCHEMES)
@pytest.mark.parametrize("error", [("l1", False), ("l2", False), ("l2", True)], ids=str)
@pytest.mark.parametrize("n_bins", [5, 15])
@pytest.mark.parametrize("mode", MODES)
def test_top_label_and_classwise_error(data, mode, n_bins, error, strategy):
    y, probs, _ = data
    norm, debias = error
    expected = uncal.lower_bound_scaling_ce(
        probs,
        y,
        p=POWERS[norm],
        debias=debias,
        num_bins=n_bins,
        binning_scheme=SCHEMES[strategy],
        mode=mode,
    )
    ours = MODES[mode](y, probs, n_bins=n_bins, norm=norm, strategy=strategy, debias=debias)
    assert ours == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("norm", POWERS)
@pytest.mark.parametrize("strategy", SCHEMES)
def test_binary_error(data, strategy, norm):
    y, probs, _ = data
    y, first = (y > 0).astype(int), probs[:, 0]
    expected = uncal.lower_bound_scaling_ce(
        1 - first, y, p=POWERS[norm], debias=False, binning_scheme=SCHEMES[strategy]
    )
    ours = metrics.binary_calibration_error(
        y, np.column_stack([first, 1 - first]), strategy=strategy, norm=norm
    )
    assert ours == pytest.approx(expected, abs=1e-9)


def test_debiased_l1_error_is_the_mean_of_their_draws(data, top):
    """They draw the accuracies 1000 times, we take the mean of that distribution."""
    y, probs, _ = data
    ours = metrics.expected_calibration_error(y, probs, n_bins=5, strategy="quantile", debias=True)
    np.random.seed(0)  # noqa: NPY002 their generator
    theirs = [uncal.get_ece_em(probs, y, debias=True, num_bins=5) for _ in range(10)]
    assert ours == pytest.approx(np.mean(theirs), abs=5 * np.std(theirs) / np.sqrt(10))


def test_a_confidence_on_an_edge_goes_to_the_bin_below_as_with_us():
    correct, confidence = edge_cases.at_the_edges()
    ours = metrics.confidence_calibration_error(correct, confidence, n_bins=8)
    assert ours == pytest.approx(uncal.get_ece(confidence, correct.astype(int), num_bins=8), abs=1e-9)


def test_a_class_nobody_has_counts_as_with_us():
    y, probs = edge_cases.a_class_nobody_has()
    ours = metrics.classwise_calibration_error(y, probs)
    assert ours == pytest.approx(uncal.get_ece(probs, y, mode="marginal"), abs=1e-9)


@pytest.mark.parametrize("n_bins", [5, 10])
def test_histogram_binning_with_bins_of_equal_mass(two_classes, n_bins):
    """We add one row, half of each class, to every bin. Their edges lie between the rows, ours on a row."""
    y, z, _ = two_classes
    p = softmax(z, axis=1)[:, 1]
    expected = uncal.get_histogram_calibrator(p, y, uncal.get_equal_bins(p, num_bins=n_bins))(p)
    count = len(y) / n_bins
    ours = calibrators.HistogramBinning(n_bins, safeguard=False).fit(z, y).predict_proba(z)[:, 1]
    np.testing.assert_allclose(ours, (expected * count + 0.5) / (count + 1), atol=1e-9)
