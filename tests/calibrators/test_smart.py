import numpy as np
import pytest
from scipy.optimize import check_grad

from selfcal import metrics
from selfcal.calibrators import SMART, TemperatureScaling
from selfcal.calibrators.smart import _soft_error, top_two_gap


def overconfident_far_away(n=4000, k=4, seed=0):
    """Logits that are right up to a gap of 2, and three times too far apart from there."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, size=(n, k))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return np.where(top_two_gap(z)[:, None] > 2, 3, 1) * z, y


def test_the_gap():
    assert top_two_gap(np.array([[1.0, 5.0, 2.0], [7.0, 7.0, 0.0], [-3.0, -9.0, -4.0]])).tolist() == [3, 0, 1]


def test_by_hand():
    """All rows have one gap: the temperature that makes the confidence the accuracy, 3/4."""
    calibrator = SMART(safeguard=False).fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    assert np.exp(calibrator.log_temperatures_).tolist() == pytest.approx([4 / np.log(3)], rel=1e-3)
    assert calibrator.confidence([[4.0, 0.0], [0.0, 9.0]])[0] == pytest.approx(0.75, abs=1e-3)


def test_the_error_by_loops():
    confidence, right, share = (
        np.array([0.6, 0.9, 0.35]),
        np.array([True, False, True]),
        np.array([0.5, 0.2, 0.3]),
    )
    centres = np.array([0.25, 0.75])
    total = 0.0
    for j in range(2):
        gap = mass = 0.0
        for c, a, w in zip(confidence, right, share, strict=True):
            parts = np.exp(-((c - centres) ** 2) / 0.01)
            gap += w * parts[j] / parts.sum() * (a - c)
            mass += w * parts[j] / parts.sum()
        total += np.sqrt(gap**2 + (0.01 * mass) ** 2)
    assert _soft_error(confidence, right, share, centres)[0] == pytest.approx(total)


def test_the_derivative_of_the_error():
    rng = np.random.default_rng(0)
    confidence, right = rng.uniform(0.3, 1, size=30), rng.random(30) < 0.7
    share, centres = rng.dirichlet(np.ones(30)), (np.arange(15) + 0.5) / 15

    def value(c):
        return _soft_error(c, right, share, centres)[0]

    def slope(c):
        return _soft_error(c, right, share, centres)[1]

    assert check_grad(value, slope, confidence) < 1e-5


def test_temperatures_that_differ_by_the_gap_are_found():
    z, y = overconfident_far_away()
    new_z, new_y = overconfident_far_away(seed=1)
    smart, plain = SMART(safeguard=False).fit(z, y), TemperatureScaling().fit(z, y)
    near, far = (np.exp(np.interp(gap, smart.gaps_, smart.log_temperatures_)) for gap in (1.0, 9.0))
    assert near == pytest.approx(1, abs=0.35)
    assert far == pytest.approx(3, abs=0.6)
    assert metrics.log_loss(new_y, smart.predict_proba(new_z)) < metrics.log_loss(
        new_y, plain.predict_proba(new_z)
    )
    guarded = SMART().fit(z, y)
    assert guarded.share_ > 0.5


def test_the_result_does_not_depend_on_rounding():
    """Neither on the order of the rows, nor on whether a row counts twice or is there twice."""
    z, y = overconfident_far_away(500)
    order = np.random.default_rng(1).permutation(len(y))
    weight = np.arange(len(y)) % 3
    first = SMART(safeguard=False).fit(z, y).predict_proba(z)
    again = SMART(safeguard=False).fit(z[order], y[order]).predict_proba(z)
    np.testing.assert_allclose(again, first, rtol=0, atol=1e-3)
    weighted = SMART(safeguard=False).fit(z, y, weight).predict_proba(z)
    repeated = SMART(safeguard=False).fit(np.repeat(z, weight, axis=0), np.repeat(y, weight)).predict_proba(z)
    np.testing.assert_allclose(repeated, weighted, rtol=0, atol=1e-3)


def test_logits_of_any_size():
    z, y = overconfident_far_away(500)
    probs = SMART(safeguard=False).fit(1e4 * z, y).predict_proba(1e8 * z)
    assert np.isfinite(probs).all()
