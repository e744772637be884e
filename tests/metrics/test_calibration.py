import dataclasses
import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcal.errors import ConfigError, DataError
from selfcal.metrics import (
    NoiseFloor,
    adaptive_calibration_error,
    confidence_calibration_error,
    ece_noise_floor,
    expected_calibration_error,
    maximum_calibration_error,
    posterior_calibration_error,
    reliability_curve,
)

from .strategies import predictions, weights_for

norms = st.sampled_from(["l1", "l2", "max"])
sides = st.sampled_from(["right", "left"])
strategies = st.sampled_from(["uniform", "quantile"])


def exact_ece(correct, confidence, n_bins):
    """(a, b] bins in exact arithmetic, one row after the other."""
    total = {}
    for a, c in zip(correct, confidence, strict=True):
        b = next(k for k in range(n_bins) if c <= (k + 1) / n_bins)
        total[b] = total.get(b, 0) + Fraction(float(a)) - Fraction(float(c))
    return float(sum(abs(gap) for gap in total.values()) / len(correct))


@given(predictions(), st.integers(1, 20))
def test_equal_to_exact_arithmetic(data, n_bins):
    y, p = data
    value = expected_calibration_error(y, p, n_bins=n_bins)
    assert value == pytest.approx(exact_ece(p.argmax(axis=1) == y, p.max(axis=1), n_bins), abs=1e-12)


@given(predictions(), st.integers(1, 20), strategies, norms, sides)
def test_top_label_error_is_the_confidence_error_of_the_first_argmax(data, n_bins, strategy, norm, closed):
    y, p = data
    options = {"n_bins": n_bins, "strategy": strategy, "norm": norm, "closed": closed}
    options["sample_weight"] = weights_for(len(y))
    below = confidence_calibration_error(p.argmax(axis=1) == y, p.max(axis=1), **options)
    assert expected_calibration_error(y, p, **options) == pytest.approx(below, abs=1e-12)


@given(predictions(), strategies, sides)
def test_norms_are_ordered(data, strategy, closed):
    y, p = data
    l1, l2, worst = (
        expected_calibration_error(y, p, strategy=strategy, closed=closed, norm=norm)
        for norm in ("l1", "l2", "max")
    )
    assert 0 <= l1 <= l2 + 1e-12
    assert l2 <= worst + 1e-12
    assert worst <= 1


def test_norms_by_hand():
    correct, confidence = (
        [1, 1, 0, 1],
        [0.25, 0.25, 0.75, 0.75],
    )  # gaps of .75 and .25, half of the weight each
    values = [
        confidence_calibration_error(correct, confidence, n_bins=2, norm=norm) for norm in ("l1", "l2", "max")
    ]
    assert values == pytest.approx([0.5, math.sqrt((0.75**2 + 0.25**2) / 2), 0.75])


@given(predictions(), st.integers(1, 20), strategies, norms, sides)
def test_maximum_and_adaptive_errors_are_the_expected_one_with_a_norm_or_strategy(
    data, n_bins, strategy, norm, closed
):
    y, p = data
    options = {"n_bins": n_bins, "closed": closed, "sample_weight": weights_for(len(y))}
    assert maximum_calibration_error(y, p, strategy=strategy, **options) == expected_calibration_error(
        y, p, strategy=strategy, norm="max", **options
    )
    assert adaptive_calibration_error(y, p, norm=norm, **options) == expected_calibration_error(
        y, p, strategy="quantile", norm=norm, **options
    )


def test_adaptive_bins_hold_the_same_number_of_rows():
    """Sorted confidences .6 .7 | .8 .9: gaps of |.5 - .65| and |1 - .85|; uniform bins keep all four apart."""
    y, p = [0, 1, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]]
    assert adaptive_calibration_error(y, p, n_bins=2) == pytest.approx(0.15)
    assert expected_calibration_error(y, p) == pytest.approx((0.1 + 0.2 + 0.6 + 0.3) / 4)
    assert maximum_calibration_error(y, p) == pytest.approx(0.6)


def test_perfect_and_worst_predictors():
    y = np.array([0, 1, 2, 1])
    for norm in ("l1", "l2", "max"):
        assert expected_calibration_error(y, np.eye(3)[y], norm=norm) == 0.0
        assert expected_calibration_error(y, np.eye(3)[(y + 1) % 3], norm=norm) == 1.0


# The edge cases on which libraries differ. Ours come first; the notes say who gives something else.


def test_confidences_on_the_edges_belong_to_the_lower_bin():
    """torchmetrics, relplot, netcal and probmetrics use [a, b), which is our closed="left"."""
    confidence = np.array([0.5, 0.5, 0.6, 0.625, 0.7])
    correct = np.array([1, 1, 0, 1, 0])
    # (3/8, 4/8] holds two rows with gap 1.0, (4/8, 5/8] holds .6 and .625, (5/8, 6/8] holds .7
    right = (abs(2 - 1.0) + abs(1 - 1.225) + abs(0 - 0.7)) / 5
    # [4/8, 5/8) holds .5 .5 .6, [5/8, 6/8) holds .625 .7
    left = (abs(2 - 1.6) + abs(1 - 1.325)) / 5
    assert confidence_calibration_error(correct, confidence, n_bins=8) == pytest.approx(right)
    assert confidence_calibration_error(correct, confidence, n_bins=8, closed="left") == pytest.approx(left)


@pytest.mark.parametrize("closed", ["right", "left"])
def test_confidence_one_is_in_the_last_bin(closed):
    """torchmetrics and relplot put confidences of exactly 1 into an (n+1)-th bin of their own."""
    confidence = np.array([1.0, 1.0, 0.95, 0.95])
    correct = np.array([1, 0, 1, 1])
    value = confidence_calibration_error(correct, confidence, n_bins=10, closed=closed)
    assert value == pytest.approx(abs(3 - 3.9) / 4)  # an extra bin would give (|1 - 2| + |2 - 1.9|) / 4


def test_zero_is_in_the_first_bin():
    assert reliability_curve([0, 1], [0.0, 0.1], n_bins=10).count.tolist() == [2] + [0] * 9


def test_float32_rows_are_summed_in_float64():
    """Torchmetrics sums in float32: with 1e7 confident, calibrated rows it gives .0129 for .000056."""
    confidence = np.full(3_000_000, 0.999, dtype=np.float32)
    correct = np.ones(3_000_000, dtype=bool)
    value = confidence_calibration_error(correct, confidence)
    assert value == pytest.approx(1 - float(np.float32(0.999)), abs=1e-12)


def test_a_probability_a_little_over_one_is_rounding():
    """Torchmetrics takes such a table for logits and silently applies softmax."""
    probs = np.array([[1.0000001, 0.0], [0.3, 0.7], [0.9, 0.1]])
    clean = np.array([[1.0, 0.0], [0.3, 0.7], [0.9, 0.1]])
    y = [0, 1, 1]
    assert expected_calibration_error(y, probs) == expected_calibration_error(y, clean)


def test_a_class_absent_from_the_labels_stays():
    """Probmetrics drops the column of a class that no row has."""
    probs = [[0.5, 0.1, 0.4], [0.2, 0.2, 0.6], [0.1, 0.8, 0.1]]
    assert expected_calibration_error([0, 0, 1], probs) == pytest.approx((0.5 + 0.6 + 0.2) / 3)


def test_every_multiple_of_the_bin_width_is_an_edge():
    """Edges from linspace miss some of them: linspace(0, 1, 11)[3] is more than 0.3."""
    confidence = np.arange(1, 11) / 10
    assert reliability_curve(np.ones(10), confidence, n_bins=10).count.tolist() == [1] * 10


def test_memory_of_the_top_label_error_is_constant():
    probs = np.full((300_000, 10), 0.1, dtype=np.float32)
    y = np.zeros(300_000, dtype=np.int64)
    tracemalloc.start()
    expected_calibration_error(y, probs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6e6


def test_posterior_itself_has_no_error():
    posterior = np.random.default_rng(0).dirichlet(np.ones(4), size=200)
    for strategy in ("uniform", "quantile"):
        assert posterior_calibration_error(posterior, posterior, strategy=strategy) == pytest.approx(
            0, abs=1e-12
        )


def test_posterior_error_is_what_the_noisy_one_tends_to():
    rng = np.random.default_rng(0)
    posterior = rng.dirichlet(np.ones(3), size=200_000)
    probs = posterior**2 / (posterior**2).sum(axis=1, keepdims=True)
    y = (rng.random((len(posterior), 1)) > posterior.cumsum(axis=1)).sum(axis=1)
    exact = posterior_calibration_error(posterior, probs)
    assert exact > 0.05
    assert expected_calibration_error(y, probs) == pytest.approx(exact, abs=0.004)


def test_posterior_error_is_the_confidence_error_of_the_probability_of_being_right():
    rng = np.random.default_rng(1)
    posterior, probs = rng.dirichlet(np.ones(3), size=(2, 50))
    rows, top = np.arange(50), probs.argmax(axis=1)
    assert posterior_calibration_error(posterior, probs, norm="l2", n_bins=7) == confidence_calibration_error(
        posterior[rows, top], probs[rows, top], norm="l2", n_bins=7
    )


def test_reliability_curve_is_frozen():
    curve = reliability_curve([1, 0], [0.6, 0.7])
    with pytest.raises(dataclasses.FrozenInstanceError):
        curve.weight = np.zeros(15)


def test_noise_floor_matches_what_calibrated_labels_score():
    rng = np.random.default_rng(3)
    confidence = 0.5 + rng.random(1000) / 2
    scores = [
        confidence_calibration_error(rng.random(1000) < confidence, confidence, n_bins=10)
        for _ in range(1500)
    ]
    floor = ece_noise_floor(confidence, n_bins=10, n_resamples=3000)
    assert floor.mean == pytest.approx(np.mean(scores), rel=0.05)
    assert [floor.low, floor.high] == pytest.approx(np.quantile(scores, [0.05, 0.95]).tolist(), rel=0.12)


def test_noise_floor_of_one_bin_is_half_normal():
    floor = ece_noise_floor(np.full(2500, 0.8), n_resamples=4000)
    assert floor.mean == pytest.approx(0.4 / 50 * math.sqrt(2 / math.pi), rel=0.04)


def test_noise_floor_is_repeatable_and_counts_weights():
    confidence = np.linspace(0.5, 1, 200)
    assert ece_noise_floor(confidence, seed=1) == ece_noise_floor(confidence, seed=1)
    assert ece_noise_floor(confidence, seed=1) != ece_noise_floor(confidence, seed=2)
    some = np.r_[np.ones(20), np.zeros(180)]
    assert ece_noise_floor(confidence, sample_weight=some).mean > 2 * ece_noise_floor(confidence).mean
    assert ece_noise_floor([1.0, 1.0]) == NoiseFloor(0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: reliability_curve([1, 0], [0.5]), "correct has 2, confidence has 1"),
        (lambda: reliability_curve([2], [0.5]), "correct must lie in"),
        (lambda: reliability_curve([1], [1.5]), "confidence must lie in"),
        (lambda: reliability_curve([1], [np.nan]), "row 0 is"),
        (lambda: reliability_curve([], []), "at least one value"),
        (lambda: reliability_curve([[1]], [[0.5]]), "must be a vector"),
        (lambda: reliability_curve(["yes"], [0.5]), "correct must hold numbers"),
        (lambda: reliability_curve([1], [0.5], sample_weight=[-1]), "not negative; row 0"),
        (lambda: posterior_calibration_error([[0.5, 0.5]], [[0.2, 0.3, 0.5]]), "same rows and classes"),
        (
            lambda: posterior_calibration_error([[0.5, 0.6]], [[0.5, 0.5]]),
            "posterior must hold probabilities",
        ),
    ],
)
def test_bad_data(call, message):
    with pytest.raises(DataError, match=message):
        call()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"norm": "L1"}, "Did you mean 'l1'"),
        ({"norm": "rms"}, "norm must be one of 'l1', 'l2', 'max'"),
        ({"strategy": "equal"}, "strategy must be one of"),
        ({"closed": "none"}, "closed must be one of"),
        ({"n_bins": -1}, "n_bins must be"),
    ],
)
def test_bad_options(option, message):
    for call in (
        lambda: expected_calibration_error([0], [[0.5, 0.5]], **option),
        lambda: confidence_calibration_error([1], [0.5], **option),
        lambda: posterior_calibration_error([[0.5, 0.5]], [[0.5, 0.5]], **option),
        lambda: ece_noise_floor([0.5], **option),
    ):
        with pytest.raises(ConfigError, match=message):
            call()
    with pytest.raises(ConfigError, match="n_resamples must be"):
        ece_noise_floor([0.5], n_resamples=0)
