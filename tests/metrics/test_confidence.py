import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcal.errors import ConfigError
from selfcal.metrics import (
    brier_score,
    expected_calibration_error,
    overconfidence,
    sharpness,
    underconfidence,
)

from .strategies import binnings, predictions, weights_for


@given(predictions(), binnings())
def test_too_much_and_too_little_add_up_to_the_calibration_error(data, options):
    y, p = data
    options = {**options, "sample_weight": weights_for(len(y))}
    options.pop("norm")
    total = overconfidence(y, p, **options) + underconfidence(y, p, **options)
    assert total == pytest.approx(expected_calibration_error(y, p, **options), abs=1e-12)


def test_by_hand():
    probs = [[0.95, 0.05], [0.95, 0.05], [0.4, 0.6]]  # .95 is right once in two, .6 once in one
    y = [0, 1, 1]
    assert overconfidence(y, probs) == pytest.approx(2 / 3 * 0.45)
    assert underconfidence(y, probs) == pytest.approx(1 / 3 * 0.4)


def test_one_bin_hides_one_side():
    probs = [[0.95, 0.05], [0.95, 0.05], [0.4, 0.6]]
    assert underconfidence([0, 1, 1], probs, n_bins=1) == 0
    assert overconfidence([0, 1, 1], probs, n_bins=1) == pytest.approx(2.5 / 3 - 2 / 3)


@pytest.mark.parametrize("metric", [overconfidence, underconfidence], ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("option", [{"n_bins": 0}, {"strategy": "equal"}, {"closed": "none"}], ids=str)
def test_bad_options(metric, option):
    with pytest.raises(ConfigError, match=f"{next(iter(option))} must be"):
        metric([0], [[0.5, 0.5]], **option)


@given(predictions(), st.randoms(use_true_random=False))
def test_sharpness_ignores_the_labels(data, random):
    y, p = data
    assert sharpness(random.sample(list(y), len(y)), p) == sharpness(y, p)


@pytest.mark.parametrize("k", [2, 3, 1000])
def test_sharpness_is_zero_without_and_one_with_certainty(k):
    assert sharpness([0], np.full((1, k), 1 / k)) == pytest.approx(0, abs=1e-12)
    assert sharpness([0], np.eye(k)[:1]) == 1
    half = 0.5 * np.eye(k)[:1] + 0.5 / k
    assert sharpness([0], half) == pytest.approx(0.25)


def test_sharpness_is_what_a_calibrated_model_gains_in_brier_score():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=200_000)
    y = (rng.random((len(p), 1)) > p.cumsum(axis=1)).sum(axis=1)
    assert brier_score(y, p) == pytest.approx((1 - 1 / 4) * (1 - sharpness(y, p)), abs=0.003)
