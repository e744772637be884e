"""The promise of every post-hoc calibrator: from 50 rows on it is no worse than a temperature, by more than noise."""

import warnings

import numpy as np
import pytest
from scipy.special import softmax

from selfcal.calibrators import (
    POST_HOC,
    IsotonicCalibration,
    PlattScaling,
    TemperatureScaling,
    VectorScaling,
    _share,
)
from selfcal.errors import CalibrationWarning, ConfigError

every_method = pytest.mark.parametrize("name", POST_HOC)

ROUNDED = {"scaling_binning": 0.02}
"""Temperature scaling whose confidences are rounded to a few values: what that costs on these logits, at most."""
DRAWS = 6
NEW = 4000


def logits(n, k, seed, tilt=0.0):
    """Logits of an over-confident network, and the true probabilities; `tilt` favours classes wrongly."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, size=(n, k))
    return 2 * z + tilt * np.linspace(-1, 1, k), softmax(z, axis=1)


def labels(probs, seed):
    return (np.random.default_rng([seed, 1]).random((len(probs), 1)) > probs.cumsum(axis=1)[:, :-1]).sum(
        axis=1
    )


def fitted(calibrator, z, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return calibrator.fit(z, y)


def differences(name, n, k, tilt=0.0):
    """The expected log loss, which the known probabilities give without noise, less that of a temperature."""
    new, truth = logits(NEW, k, 0, tilt)
    found = []
    for seed in range(1, DRAWS + 1):
        z, probs = logits(n, k, seed, tilt)
        y = labels(probs, seed)
        ours, temperature = (
            fitted(c, z, y).predict_proba(new) for c in (POST_HOC[name](), TemperatureScaling())
        )
        found.append(np.mean(np.sum(truth * (np.log(temperature) - np.log(ours)), axis=1)))
    return np.array(found)


@every_method
@pytest.mark.parametrize(("n", "k"), [(50, 2), (50, 5), (200, 5)])
def test_no_worse_than_a_temperature_by_more_than_noise(name, n, k):
    """Temperature scaling is exactly right here, so that everything else can only overfit."""
    found = differences(name, n, k)
    noise = found.std(ddof=1) / np.sqrt(DRAWS)
    assert found.mean() <= noise + ROUNDED.get(name, 1e-3)


@pytest.mark.slow
@every_method
@pytest.mark.parametrize("tilt", [0.0, 1.0])
@pytest.mark.parametrize(("n", "k"), [(50, 10), (500, 10), (2000, 2), (2000, 10)])
def test_no_worse_than_a_temperature_at_full_size(name, n, k, tilt):
    found = differences(name, n, k, tilt)
    assert found.mean() <= found.std(ddof=1) / np.sqrt(DRAWS) + ROUNDED.get(name, 1e-3)


@pytest.mark.parametrize(
    "name", ["vector", "matrix", "structured_matrix", "dirichlet", "platt", "beta", "isotonic"]
)
def test_better_than_a_temperature_where_classes_are_favoured(name):
    assert differences(name, 1000, 4, tilt=2.0).max() < -0.05


@every_method
def test_published_methods_are_at_hand(name):
    if "safeguard" not in POST_HOC[name]().get_params():
        return
    z, probs = logits(300, 3, seed=0)
    plain = fitted(POST_HOC[name](safeguard=False), z, labels(probs, 0))
    assert (plain.share_, plain.safe_temperature_) == (1.0, 1.0)
    with pytest.raises(ConfigError, match=r"safeguard must be True or False; got 'no'"):
        POST_HOC[name](safeguard="no").fit(z, labels(probs, 0))


def test_the_answer_is_the_mixture():
    z, probs = logits(400, 3, seed=0, tilt=1.0)
    y = labels(probs, 0)
    mixed, plain = PlattScaling().fit(z, y), PlattScaling(safeguard=False).fit(z, y)
    assert 0 < mixed.share_ < 1
    assert mixed.safe_temperature_ == pytest.approx(TemperatureScaling().fit(z, y).temperature_)
    expected = mixed.share_ * plain.predict_proba(z) + (1 - mixed.share_) * softmax(
        z / mixed.safe_temperature_, axis=1
    )
    np.testing.assert_allclose(mixed.predict_proba(z), expected, atol=1e-12)


def test_without_a_share_it_is_the_temperature():
    z, probs = logits(50, 4, seed=3)
    y = labels(probs, 3)
    calibrator = IsotonicCalibration().fit(z, y)
    assert calibrator.share_ == 0
    np.testing.assert_allclose(
        calibrator.predict_proba(z), TemperatureScaling().fit(z, y).predict_proba(z), atol=1e-12
    )


def test_a_state_of_an_earlier_version_is_the_method_itself():
    z, probs = logits(100, 3, seed=0)
    plain = VectorScaling(safeguard=False).fit(z, labels(probs, 0))
    state = plain.get_state()
    old = {name: state[name] for name in ("l2", "n_classes_", "is_identity_", "parameters_")}
    again = VectorScaling.from_state(old | {"l2": 0.0})
    assert again.safeguard is False
    np.testing.assert_array_equal(again.predict_proba(z), plain.predict_proba(z))


def test_the_smoothed_ratios_by_hand():
    """Two rows in two folds, and a method that gives the true class 3/4 where a temperature of 1 gives 1/2.

    With n = 2 rows of k = 2 classes, 3/4 is smoothed to (2 * 3/4 + 1/2) / 3 = 2/3, and 1/2 stays 1/2.
    """
    z, codes = np.array([[0.0, 0.0], [0.0, 1e-9]]), np.array([0, 1])
    sure = np.array([[0.75, 0.25], [0.25, 0.75]])
    ratio, weight = _share.compared(z, codes, np.ones(2), lambda kept, weight, left_out: sure[left_out])
    np.testing.assert_allclose(ratio, 4 / 3, rtol=1e-6)
    np.testing.assert_array_equal(weight, 1)


def test_a_method_that_fails_has_no_share():
    assert _share.best_share(np.array([2.0, np.nan]), np.ones(2), 0.0) == 0
    assert _share.best_share(np.zeros(0), np.zeros(0), 0.0) == 0


def test_doubt_only_takes_away():
    ratio = np.exp(np.random.default_rng(0).normal(0.2, 0.5, 300))
    shares = [_share.best_share(ratio, np.ones(300), doubt) for doubt in (0.0, 1.0, 2.0, 20.0)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.5
    assert shares[-1] == 0


@pytest.mark.parametrize("k", [2, 5])
def test_folds_depend_on_rows_alone(k):
    rng = np.random.default_rng(0)
    z, codes, weight = rng.normal(size=(60, k)), rng.integers(0, k, 60), rng.integers(1, 4, 60).astype(float)
    parts = _share.parts(z, codes, weight)
    np.testing.assert_allclose(parts.sum(axis=0), 1)
    rows, classes = rng.permutation(60), rng.permutation(k)
    moved = _share.parts(z[rows][:, classes], classes.argsort()[codes[rows]], weight[rows])
    np.testing.assert_array_equal(moved, parts[:, rows])
    repeats = np.repeat(np.arange(60), weight.astype(int))
    repeated = _share.parts(z[repeats], codes[repeats], np.ones(len(repeats)))
    np.testing.assert_allclose(repeated, parts[:, repeats])
    held_out = parts @ weight
    assert held_out.max() - held_out.min() <= 0.5 * held_out.mean()


def test_many_rows_leave_out_only_some_folds():
    z, probs = logits(5000, 2, seed=0)
    asked = []

    def predict(kept, weight, left_out):
        asked.append(len(left_out))
        return softmax(z[left_out], axis=1)

    _share.compared(z, labels(probs, 0), np.ones(5000), predict)
    assert asked == [1000, 1000]
    assert sum(asked) == _share.ENOUGH_ROWS
