import numpy as np
import pytest
from scipy.special import logit

from selfcal.calibrators import HistogramBinning
from selfcal.errors import ConfigError


def binary(probs):
    return np.column_stack([np.zeros(len(probs)), logit(probs)])


def test_frequencies_with_one_shared_row():
    logits = binary([0.1, 0.2, 0.3, 0.8, 0.9])
    calibrator = HistogramBinning(n_bins=2, strategy="uniform", safeguard=False).fit(logits, [0, 1, 0, 1, 1])
    np.testing.assert_allclose(calibrator.predict_proba(logits)[:, 1], [1.5 / 4] * 3 + [2.5 / 3] * 2)


def test_empty_bin_predicts_its_midpoint():
    calibrator = HistogramBinning(n_bins=4, strategy="uniform", safeguard=False).fit(
        binary([0.1, 0.2, 0.9]), [1, 1, 0]
    )
    np.testing.assert_allclose(calibrator.predict_proba(binary([0.3, 0.6]))[:, 1], [0.375, 0.625])


def test_more_classes_share_the_added_row_and_are_normalised():
    logits = np.log([[0.6, 0.3, 0.1], [0.6, 0.1, 0.3], [0.2, 0.2, 0.6]])
    calibrator = HistogramBinning(n_bins=1, safeguard=False).fit(logits, [1, 1, 0])
    expected = np.array([1, 2, 0]) + 1 / 3  # each over 3 + 1, which is their sum
    np.testing.assert_allclose(calibrator.predict_proba(logits), np.tile(expected / 4, (3, 1)))


def test_quantile_bins_hold_equal_weight():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 0.3, 600)
    y = (rng.random(600) < p**2).astype(int)
    calibrator = HistogramBinning(n_bins=6, safeguard=False).fit(binary(p), y)
    order = np.argsort(p)
    expected = (y[order].reshape(6, 100).sum(axis=1) + 0.5) / 101
    np.testing.assert_allclose(calibrator.predict_proba(binary(p[order]))[:, 1], np.repeat(expected, 100))


def test_impossible_rows_have_a_bin_of_their_own():
    logits = np.array([[0.0, -1e4]] * 50 + [[0.0, -1.0], [0.0, 1.0]] * 25)
    y = [0] * 50 + [1] * 50
    got = (
        HistogramBinning(n_bins=4, safeguard=False)
        .fit(logits, y)
        .predict_proba([[0.0, -1e4], [0.0, -1.0]])[:, 1]
    )
    np.testing.assert_allclose(got, [0.5 / 51, 25.5 / 26])


@pytest.mark.parametrize(
    ("settings", "message"), [({"n_bins": 0}, "n_bins"), ({"strategy": "even"}, "strategy")]
)
def test_bad_settings(settings, message):
    with pytest.raises(ConfigError, match=message):
        HistogramBinning(**settings, safeguard=False).fit([[0.0, 1.0]], [0])
