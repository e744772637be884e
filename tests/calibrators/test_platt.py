import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.calibration import _SigmoidCalibration

from selfcal.calibrators import PlattScaling
from selfcal.errors import CalibrationWarning

from .data import overconfident, weights


@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes_equal_scikit_learn(weighted):
    z, y = overconfident(n_classes=2)
    weight = weights(len(y)) if weighted else None
    score = z[:, 1] - z[:, 0]
    expected = _SigmoidCalibration().fit(score, y, weight).predict(score)
    np.testing.assert_allclose(
        PlattScaling(safeguard=False).fit(z, y, weight).predict_proba(z)[:, 1], expected, atol=1e-5
    )


def test_more_classes_are_normalised_sigmoids_of_the_log_odds():
    z, y = overconfident()
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    columns = [_SigmoidCalibration().fit(s, y == c).predict(s) for c, s in enumerate(logit(p).T)]
    expected = np.column_stack(columns)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(PlattScaling(safeguard=False).fit(z, y).predict_proba(z), expected, atol=1e-5)


def test_separable_scores_give_the_smoothed_frequencies():
    z = np.array([[0.0, 1e4], [0.0, 1e4], [1e4, 0.0]])
    with pytest.warns(CalibrationWarning, match="raises the log loss"):  # the network was right, and sure
        curve = PlattScaling(safeguard=False).fit(z, [1, 1, 0]).curves_[0]
    np.testing.assert_allclose(curve(z[:, 1] - z[:, 0]), [3 / 4, 3 / 4, 1 / 3])


def test_one_class_present():
    z, _ = overconfident(10, 2)
    curve = PlattScaling(safeguard=False).fit(z, [1] * 10).curves_[0]
    assert curve.slope == pytest.approx(0, abs=1e-9)
    assert expit(curve.intercept) == pytest.approx(11 / 12)
