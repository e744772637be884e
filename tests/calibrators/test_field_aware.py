from datetime import date

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from selfcal import metrics
from selfcal.calibrators import FieldAwareCalibration, TemperatureScaling
from selfcal.calibrators._rising_line import Line
from selfcal.errors import ConfigError, DataError


def shifted(n=4000, n_classes=2, seed=0):
    """Overconfident logits, and a field whose value moves the true log odds."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, n_classes))
    site = rng.choice(["A", "B", "C"], n)
    move = np.select([site == "A", site == "B"], [1.5, -1.5])
    noisy = truth + rng.gumbel(size=truth.shape)
    noisy[:, -1] += move
    return 2 * truth, noisy.argmax(axis=1), site


def test_line_is_the_integral_of_its_slopes():
    line = Line(np.array([-1.0, 2.0]), np.array([3.0, 1.0, 0.5]), offset=0.25)
    x = np.array([-2.0, -1.0, 0.0, 2.0, 4.0])
    np.testing.assert_allclose(line(x), np.array([-4.0, -1.0, 0.0, 2.0, 3.0]) + 0.25)


def test_one_slope_of_two_classes_is_penalised_logistic_regression():
    logits, y, _ = shifted(300)
    s = logits[:, 1] - logits[:, 0]

    def loss(theta):
        p = expit(theta[0] + theta[1] * s)
        return -np.log(np.where(y == 1, p, 1 - p)).sum() + (theta[0] ** 2 + (theta[1] - 1) ** 2)

    expected = minimize(loss, [0.0, 1.0], tol=1e-12).x
    line = FieldAwareCalibration(n_bins=1, l2=2.0, safeguard=False).fit(logits, y).line_
    np.testing.assert_allclose([line.offset, line.slopes[0]], expected, atol=1e-4)


def test_one_slope_of_more_classes_is_temperature_scaling():
    logits, y, _ = shifted(n_classes=4)
    got = FieldAwareCalibration(n_bins=1, l2=1e-9, safeguard=False).fit(logits, y)
    expected = TemperatureScaling().fit(logits, y)
    assert got.line_.slopes[0] == pytest.approx(1 / expected.temperature_, rel=1e-4)
    np.testing.assert_allclose(got.predict_proba(logits), expected.predict_proba(logits), atol=1e-4)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_field_lowers_the_log_loss_of_new_rows(n_classes):
    (logits, y, site), (new, new_y, new_site) = (
        shifted(n_classes=n_classes),
        shifted(n_classes=n_classes, seed=1),
    )
    with_field = (
        FieldAwareCalibration(safeguard=False).fit(logits, y, field=site).predict_proba(new, field=new_site)
    )
    without = FieldAwareCalibration(safeguard=False).fit(logits, y).predict_proba(new)
    before = np.exp(log_softmax(new, axis=1))
    losses = [metrics.log_loss(new_y, p) for p in (with_field, without, before)]
    assert losses[0] < losses[1] - 0.05
    assert losses[1] < losses[2] - 0.01


def test_terms_have_the_sign_and_size_of_the_shift():
    logits, y, site = shifted(20_000)
    terms = FieldAwareCalibration(safeguard=False).fit(logits, y, field=site).terms_
    lift = {v: term[1] - term[0] for v, term in terms.items()}
    assert lift["A"] - lift["B"] == pytest.approx(3.0, abs=0.3)
    assert abs(lift["A"] + lift["B"] - 2 * lift["C"]) < 0.3


def test_unseen_and_missing_values_are_neutral():
    logits, y, site = shifted(500)
    site = site.astype(object)
    site[:100] = None
    calibrator = FieldAwareCalibration(safeguard=False).fit(logits, y, field=site)
    assert set(calibrator.terms_) == {"A", "B", "C"}
    neutral = calibrator.predict_proba(logits[:3])
    np.testing.assert_array_equal(
        calibrator.predict_proba(logits[:3], field=[None, float("nan"), "D"]), neutral
    )
    assert abs(calibrator.predict_proba(logits[:3], field=["A"] * 3) - neutral).min() > 1e-4


def test_strong_penalty_keeps_the_identity():
    logits, y, site = shifted(200, n_classes=3)
    calibrator = FieldAwareCalibration(l2=1e9, safeguard=False).fit(logits, y, field=site)
    np.testing.assert_allclose(
        calibrator.predict_proba(logits, field=site), np.exp(log_softmax(logits, axis=1)), atol=1e-5
    )


def test_line_never_falls():
    rng = np.random.default_rng(0)
    logits, y = rng.normal(size=(500, 2)), rng.integers(0, 2, 500)
    line = FieldAwareCalibration(l2=1e-3, safeguard=False).fit(5 * logits, y).line_
    assert (line.slopes >= 0).all()
    assert (line.slopes == 0).any()


def test_weight_two_is_as_good_as_twice():
    logits, y, site = shifted(300, n_classes=3)
    weight = np.arange(300) % 3
    once = FieldAwareCalibration(safeguard=False).fit(logits, y, weight, field=site)
    twice = FieldAwareCalibration(safeguard=False).fit(
        np.repeat(logits, weight, axis=0), np.repeat(y, weight), field=np.repeat(site, weight)
    )
    np.testing.assert_allclose(
        once.predict_proba(logits, field=site), twice.predict_proba(logits, field=site), atol=1e-4
    )


def test_predict_and_confidence_take_the_field():
    logits, y, site = shifted(500)
    calibrator = FieldAwareCalibration(safeguard=False).fit(logits, y, field=site)
    probs = calibrator.predict_proba(logits, field=site)
    np.testing.assert_array_equal(calibrator.predict(logits, field=site), probs.argmax(axis=1))
    np.testing.assert_array_equal(calibrator.confidence(logits, field=site), probs.max(axis=1))
    assert (calibrator.predict(logits, field=site) != calibrator.predict(logits)).any()


@pytest.mark.parametrize(
    ("field", "message"), [(["A"], "field has 1"), ([["A", "B"]] * 2, r"got shape \(2, 2\). Join")]
)
def test_bad_field(field, message):
    with pytest.raises(DataError, match=message):
        FieldAwareCalibration(safeguard=False).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1], field=field)


def test_field_after_a_fit_without():
    with pytest.raises(DataError, match="left out, as it was in fit"):
        FieldAwareCalibration(safeguard=False).fit([[0.0, 1.0]], [1]).predict_proba([[0.0, 1.0]], field=["A"])


@pytest.mark.parametrize("settings", [{"n_bins": 0}, {"l2": 0.0}])
def test_bad_settings(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        FieldAwareCalibration(**settings, safeguard=False).fit([[0.0, 1.0]], [0])


def test_the_values_of_the_field_are_part_of_the_state():
    z, y, _ = shifted(300, 3)
    site = np.array(["ä", "b", 1, 2.5, None], dtype=object)[np.arange(300) % 5]
    calibrator = FieldAwareCalibration(safeguard=False).fit(z, y, field=site)
    state = calibrator.get_state()
    assert state["terms_.keys"] == ["ä", "b", 1, 2.5]
    again = FieldAwareCalibration.from_state(state)
    np.testing.assert_array_equal(again.predict_proba(z, field=site), calibrator.predict_proba(z, field=site))
    with pytest.raises(DataError, match="one row for each key"):
        FieldAwareCalibration.from_state(state | {"terms_.keys": ["ä", "ä", 1, 2.5]})
    calibrator.fit(z, y, field=[date(2020, 1, 1 + row % 3) for row in range(300)])
    with pytest.raises(
        DataError, match=r"Only strings, numbers and booleans .*got datetime.date\(2020, 1, 1\)"
    ):
        calibrator.get_state()
