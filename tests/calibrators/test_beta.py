import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from selfcal.calibrators import BetaCalibration, PlattScaling
from selfcal.errors import ConfigError

from .data import overconfident, weights


def log_loss(data, curve):
    (log_odds, is_class, weight), (a, b, c) = data, curve
    score = -a * np.logaddexp(0, -log_odds) + b * np.logaddexp(0, log_odds) + c
    return np.average(np.logaddexp(0, score) - is_class * score, weights=weight)


FREE = {
    "abm": (3, lambda v: (v[0] ** 2, v[1] ** 2, v[2])),
    "am": (2, lambda v: (v[0] ** 2, v[0] ** 2, v[1])),
    "ab": (2, lambda v: (v[0] ** 2, v[1] ** 2, (v[0] ** 2 - v[1] ** 2) * np.log(2))),
}


@pytest.mark.parametrize("parameters", FREE)
def test_is_the_lowest_point(parameters):
    z, y = overconfident(n_classes=2)
    weight = weights(len(y))
    curve = BetaCalibration(parameters, safeguard=False).fit(z, y, weight).curves_[0]
    data = z[:, 1] - z[:, 0], y, weight
    count, full = FREE[parameters]
    best = minimize(lambda v: log_loss(data, full(v)), [0.7] * count, method="Nelder-Mead", tol=1e-10)
    assert log_loss(data, (curve.a, curve.b, curve.c)) == pytest.approx(best.fun, abs=1e-9)
    np.testing.assert_allclose((curve.a, curve.b, curve.c), full(best.x), atol=1e-3)


def test_ab_goes_through_one_half():
    z, y = overconfident(n_classes=2)
    assert BetaCalibration("ab", safeguard=False).fit(z, y).curves_[0](np.zeros(1)) == pytest.approx(0.5)


@pytest.mark.filterwarnings("ignore::selfcal.errors.CalibrationWarning")
@pytest.mark.parametrize("parameters", FREE)
def test_never_falls_even_where_the_labels_do(parameters):
    z, y = overconfident(n_classes=2)
    curve = BetaCalibration(parameters, safeguard=False).fit(z, 1 - y).curves_[0]
    assert min(curve.a, curve.b) >= 0
    assert (np.diff(curve(np.linspace(-20, 20, 99))) >= 0).all()


def test_one_sided_labels_leave_one_slope_at_zero():
    rng = np.random.default_rng(0)
    log_odds = rng.normal(0, 3, 2000)
    y = rng.random(2000) < expit(2 * np.log(expit(log_odds)) - 0.5 * np.log(expit(log_odds)) + 1)
    falls_above = y & (rng.random(2000) > 0.5 * expit(log_odds - 3))
    z = np.column_stack([np.zeros(2000), log_odds])
    curve = BetaCalibration(safeguard=False).fit(z, falls_above.astype(int)).curves_[0]
    assert curve.b == 0
    assert curve.a > 0


def test_am_is_platt_without_smoothing():
    z, y = overconfident(20_000, 2)
    beta, platt = (
        BetaCalibration("am", safeguard=False).fit(z, y).curves_[0],
        PlattScaling(safeguard=False).fit(z, y).curves_[0],
    )
    assert (beta.a, beta.c) == pytest.approx((platt.slope, platt.intercept), abs=1e-2)
    assert beta.a == beta.b


def test_a_class_without_rows_keeps_its_curve():
    z, y = overconfident()
    curve = BetaCalibration(safeguard=False).fit(z, np.minimum(y, 1)).curves_[2]
    np.testing.assert_allclose(curve(z[:, 0]), expit(z[:, 0]))


def test_bad_parameters():
    with pytest.raises(ConfigError, match="one of 'abm', 'am', 'ab'; got 'abn'"):
        BetaCalibration("abn", safeguard=False).fit([[1.0, 0.0]], [0])
