import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from selfcal.calibrators import TemperatureScaling, temperature
from selfcal.errors import CalibrationWarning


def sharpened(n=2000, k=5, factor=2.5, seed=0):
    """Logits `factor` times as large as those the labels were drawn from."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, k)) * 1.5
    y = (rng.random((n, 1)) > softmax(logits, axis=1).cumsum(axis=1)).sum(axis=1).clip(0, k - 1)
    return logits * factor, y


def brute_force(logits, y, weight=None):
    """The temperature of the lowest log loss by a derivative-free search."""

    def loss(log_beta):
        z = np.exp(log_beta) * logits
        return np.average(logsumexp(z, axis=1) - z[np.arange(len(y)), y], weights=weight)

    return np.exp(-minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10}).x)


def test_a_network_that_is_too_sure_gets_its_factor_back():
    assert TemperatureScaling().fit(*sharpened(20_000)).temperature_ == pytest.approx(2.5, rel=0.03)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), k=st.integers(2, 8), factor=st.sampled_from([0.05, 0.5, 1.0, 3.0, 40.0]))
def test_equals_the_brute_force_optimum(seed, k, factor):
    logits, y = sharpened(200, k, factor, seed)
    weight = np.random.default_rng(seed).integers(1, 4, len(y))
    found = TemperatureScaling().fit(logits, y, weight).temperature_
    assert found == pytest.approx(brute_force(logits, y, weight), rel=1e-6)


def test_the_search_on_a_few_rows_first_ends_where_the_search_on_all_does(monkeypatch):
    logits, y = sharpened(5000)
    at_once = TemperatureScaling().fit(logits, y).temperature_
    monkeypatch.setattr(temperature, "PILOT_ROWS", 50)
    assert TemperatureScaling().fit(logits, y).temperature_ == pytest.approx(at_once, rel=1e-9)
    assert at_once == pytest.approx(brute_force(logits, y), rel=1e-6)


def test_a_start_that_is_far_off_is_no_matter():
    logits, y = sharpened(300)
    ones = np.ones(len(y))
    ends = [temperature.best_log_beta(logits, y, ones, start) for start in (-6.0, -1.0, 0.0, 2.0, 6.0)]
    np.testing.assert_allclose(ends, ends[0], atol=1e-8)


def test_single_precision_changes_nothing_but_its_rounding():
    """netcal returns exactly 1 here, and gradient descent stops short of the optimum."""
    logits, y = sharpened(3000, factor=1.8)
    single = TemperatureScaling().fit(logits.astype(np.float32), y).temperature_
    assert single == pytest.approx(TemperatureScaling().fit(logits, y).temperature_, rel=1e-6)


def test_the_choice_of_class_stays():
    logits, y = sharpened()
    calibrator = TemperatureScaling().fit(logits, y)
    np.testing.assert_array_equal(calibrator.predict_proba(logits).argmax(axis=1), logits.argmax(axis=1))


@pytest.mark.parametrize(
    ("logits", "y", "bound", "why"),
    [
        ([[2.0, 0.0], [0.0, 1.0]], [0, 1], 1e-3, "every row is classified right"),
        ([[2.0, 0.0], [0.0, 1.0]], [1, 0], 1e3, "uninformative about y"),
        ([[500.0, 0.0], [0.0, 900.0]], [0, 1], 1e-3, "every row is classified right"),
    ],
)
def test_a_warning_at_a_bound(logits, y, bound, why):
    with pytest.warns(CalibrationWarning, match=why):
        calibrator = TemperatureScaling().fit(logits, y)
    assert calibrator.temperature_ == pytest.approx(bound)
    assert np.isfinite(calibrator.predict_proba(logits)).all()


def test_logits_that_say_nothing_stay_as_they_are():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TemperatureScaling().fit(np.ones((4, 3)), [0, 1, 2, 0]).temperature_ == 1.0


def test_logits_of_any_size_are_mapped_without_overflow():
    calibrator = TemperatureScaling().fit(*sharpened())
    probs = calibrator.predict_proba([[8e307, -8e307, 0.0, 0.0, 0.0]])
    assert probs[0, 0] == 1.0
    assert (probs > 0).all()
