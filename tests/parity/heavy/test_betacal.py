"""Our beta calibration against betacal 1.1."""

import numpy as np
import pytest
from betacal import BetaCalibration
from scipy.special import softmax

from selfcal import calibrators, metrics


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("parameters", ["abm", "am", "ab"])
def test_beta_calibration(two_classes, parameters, weighted):
    """betacal stops its search when the slope is under 1e-4: never a lower log loss than ours, at most 1e-7 above."""
    y, z, weight = two_classes
    weight = weight if weighted else None
    p = softmax(z, axis=1)[:, 1]
    expected = BetaCalibration(parameters).fit(p, y, weight).predict(p)
    ours = calibrators.BetaCalibration(parameters, safeguard=False).fit(z, y, weight).predict_proba(z)
    np.testing.assert_allclose(ours[:, 1], expected, atol=2e-4)
    theirs = metrics.log_loss(y, np.column_stack([1 - expected, expected]), sample_weight=weight)
    assert -1e-12 < theirs - metrics.log_loss(y, ours, sample_weight=weight) < 1e-7
