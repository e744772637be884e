"""What every calibrator keeps; a new one is under test once it is in `calibrators.__all__`."""

import inspect
import json
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from selfcal import calibrators, metrics
from selfcal.errors import CalibrationWarning, ConfigError, DataError, SelfcalError

CALIBRATORS = {name: getattr(calibrators, name) for name in calibrators.__all__}
every_calibrator = pytest.mark.parametrize("make", CALIBRATORS.values(), ids=CALIBRATORS.keys())

confidence_below_others = {calibrators.IsotonicConfidence: 1.0}  # as published: its confidence may be zero

few = settings(max_examples=8, deadline=None)


def overconfident(n=300, n_classes=4, seed=0):
    """Logits twice too large."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, size=(n, n_classes))
    return 2 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def fitted(make, z, y, weight=None, **options):
    """Fits to odd data may end in a roll-back or at a bound, and say so: that is not what is tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return make().fit(z, y, weight, **options)


def same(a, b, tolerance=1e-4):
    """Searches for the best parameters end near them, not at them."""
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def are_probabilities(probs):
    assert np.abs(probs.sum(axis=1) - 1).max() <= 1e-12
    assert probs.min() > 0


@every_calibrator
def test_is_a_scikit_learn_estimator(make):
    calibrator = make()
    parameters = calibrator.get_params()
    assert {*parameters} == {*inspect.signature(make).parameters}
    assert clone(calibrator).set_params(**parameters).get_params() == parameters
    z, y = overconfident()
    assert calibrator.fit(z, y) is calibrator
    learned = {name for name in vars(calibrator) if name not in parameters}
    assert learned
    assert all(name.endswith("_") for name in learned)
    same(pickle.loads(pickle.dumps(calibrator)).predict_proba(z), calibrator.predict_proba(z), 0)


@every_calibrator
@pytest.mark.parametrize("method", ["predict", "predict_proba", "confidence"])
def test_not_fitted(make, method):
    with pytest.raises(NotFittedError):
        getattr(make(), method)([[1.0, 0.0]])


@every_calibrator
@few
@given(
    seed=st.integers(0, 2**31),
    n=st.integers(1, 40),
    k=st.integers(2, 5),
    scale=st.sampled_from([0.1, 1, 1e4]),
)
def test_rows_are_positive_and_sum_to_one_and_the_choice_is_kept(make, seed, n, k, scale):
    z, y = overconfident(n, k, seed)
    calibrator = fitted(make, scale * z, y)
    new = scale * overconfident(40, k, seed + 1)[0]
    probs = calibrator.predict_proba(new)
    are_probabilities(probs)
    confidence = calibrator.confidence(new)
    same(confidence, probs[np.arange(40), calibrator.predict(new)], 1e-15)
    if make.keeps_choice:
        np.testing.assert_array_equal(calibrator.predict(new), new.argmax(axis=1))
        same(confidence, probs.max(axis=1), confidence_below_others.get(make, 1e-15))


@every_calibrator
@pytest.mark.parametrize("k", [2, 4])
def test_order_of_rows_does_not_matter(make, k):
    z, y = overconfident(n_classes=k)
    order = np.random.default_rng(1).permutation(len(y))
    same(make().fit(z[order], y[order]).predict_proba(z), make().fit(z, y).predict_proba(z))


@every_calibrator
@pytest.mark.parametrize("k", [2, 4])
def test_order_and_names_of_classes_do_not_matter(make, k):
    z, y = overconfident(n_classes=k)
    order = np.array([2, 0, 3, 1])[:k] if k == 4 else np.array([1, 0])
    names = np.array(["cat", "dog", "eel", "fox"])[:k]
    before = make().fit(z, y).predict_proba(z)
    after = make().fit(z[:, order], names[y], classes=names[order]).predict_proba(z[:, order])
    same(after, before[:, order])


@every_calibrator
def test_weights_act_as_repeated_rows(make):
    z, y = overconfident()
    weight = np.arange(len(y)) % 3
    twice = make().fit(np.repeat(z, weight, axis=0), np.repeat(y, weight))
    same(make().fit(z, y, weight).predict_proba(z), twice.predict_proba(z))
    same(make().fit(z, y, np.ones(len(y))).predict_proba(z), make().fit(z, y).predict_proba(z), 1e-12)


@every_calibrator
def test_reads_all_floats_lists_and_read_only_arrays_and_leaves_them_alone(make):
    z, y = overconfident()
    z = z.astype(np.float16).astype(np.float64)  # the same numbers in every precision
    before, expected = z.copy(), make().fit(z, y).predict_proba(z)
    z.flags.writeable = y.flags.writeable = False
    for given_z, given_y in [
        (z, y),
        (z.astype(np.float16), y.astype(np.int8)),
        (z.astype(np.float32), y),
        (z.tolist(), y.tolist()),
        (np.asfortranarray(z), y),
    ]:
        same(make().fit(given_z, given_y).predict_proba(given_z), expected, 1e-9)
    np.testing.assert_array_equal(z, before)


@every_calibrator
@pytest.mark.parametrize("k", [2, 10])
def test_an_overconfident_network_gets_a_lower_log_loss(make, k):
    z, y = overconfident(2000, k)
    before = metrics.log_loss(y, softmax(z, axis=1))
    assert metrics.log_loss(y, make().fit(z, y).predict_proba(z)) < 0.95 * before


@every_calibrator
def test_a_thousand_classes(make):
    z, y = overconfident(8, 1000)
    are_probabilities(fitted(make, z, y).predict_proba(z))


LITTLE = {
    "one row": ([[2.0, 0.0, 1.0]], [0]),
    "one row, wrong": ([[2.0, 0.0, 1.0]], [1]),
    "one class": (overconfident(30, 3)[0], [1] * 30),
    "one class of two": (overconfident(30, 2)[0], [1] * 30),
    "a class absent": (overconfident(30, 3)[0], [0, 2] * 15),
    "separable": (np.eye(3)[[0, 1, 2] * 5] * 9, [0, 1, 2] * 5),
    "separable, huge": (np.eye(2)[[0, 1] * 5] * 1e4, [0, 1] * 5),
    "always wrong": (np.eye(3)[[0, 1, 2] * 5] * 9, [1, 2, 0] * 5),
    "constant": (np.full((10, 3), 7.0), [0, 1, 1, 1, 1, 2, 2, 0, 0, 1]),
}


@every_calibrator
@pytest.mark.parametrize(("z", "y"), LITTLE.values(), ids=LITTLE.keys())
def test_little_or_odd_data_is_no_trouble(make, z, y):
    probs = fitted(make, z, y).predict_proba(z)
    are_probabilities(probs)
    assert metrics.log_loss(y, probs) <= metrics.log_loss(y, softmax(np.asarray(z), axis=1)) + 1e-8


@every_calibrator
def test_the_same_every_time(make):
    z, y = overconfident()
    calibrator = make().fit(z, y)
    first = calibrator.predict_proba(z)
    np.testing.assert_array_equal(calibrator.fit(z, y).predict_proba(z), first)
    np.testing.assert_array_equal(clone(calibrator).fit(z, y).predict_proba(z), first)


def copy_of(state):
    """What a file would bring back: the plain values as JSON, the arrays as they are."""
    arrays = {name: value.copy() for name, value in state.items() if isinstance(value, np.ndarray)}
    return json.loads(json.dumps({name: v for name, v in state.items() if name not in arrays})) | arrays


def test_a_fitted_attribute_without_an_annotation_is_not_lost_in_silence():
    class Forgetful(calibrators.TemperatureScaling):
        def _fit(self, z, codes, weight):
            super()._fit(z, codes, weight)
            self.amount_ = 0.5

    fitted = Forgetful().fit(*overconfident(100, 3))
    with pytest.raises(
        ConfigError, match=r"'amount_' of Forgetful is not\. Write for instance `amount_: float`"
    ):
        fitted.get_state()


@every_calibrator
@pytest.mark.parametrize("k", [2, 4])
def test_its_state_is_all_there_is_to_it(make, k):
    calibrator = fitted(make, *overconfident(n_classes=k))
    again = make.from_state(copy_of(calibrator.get_state()))
    assert again.get_params() == calibrator.get_params()
    assert {*vars(again)} == {*vars(calibrator)}
    new = overconfident(n_classes=k, seed=1)[0] * 10
    for method in ("predict", "predict_proba", "confidence"):
        same(getattr(again, method)(new), getattr(calibrator, method)(new), 0)


@every_calibrator
def test_a_state_that_is_not_its_own_is_refused(make):
    state = fitted(make, *overconfident()).get_state()
    for name in state:
        with pytest.raises(SelfcalError):
            make.from_state({key: value for key, value in state.items() if key != name})
        with pytest.raises(SelfcalError):
            make.from_state(state | {name: {"a": 1}})
    for name in ("predict_proba", "__class__", "curves_.0", "n_classes_.x"):
        with pytest.raises(SelfcalError):
            make.from_state(state | {name: 1.0})


@every_calibrator
def test_no_state_before_fit(make):
    with pytest.raises(NotFittedError):
        make().get_state()


GOOD = [[1.0, 0.0], [0.0, 2.0]]


@every_calibrator
@pytest.mark.parametrize(
    ("z", "y", "options", "message"),
    [
        ([1.0, 2.0], [0, 1], {}, r"\(rows, classes\).*got shape \(2,\). For one score"),
        ([[1.0], [2.0]], [0, 0], {}, r"got shape \(2, 1\)"),
        (np.zeros((0, 2)), [], {}, r"at least one row.*got shape \(0, 2\)"),
        ([[1.0, 0.0], [np.nan, 0.0]], [0, 1], {}, "finite; row 1, column 0 is nan"),
        ([[1.0, np.inf], [0.0, 0.0]], [0, 1], {}, "finite; row 0, column 1 is inf"),
        ([["a", "b"], ["c", "d"]], [0, 1], {}, "logits must hold numbers"),
        (GOOD, [0, 2], {}, r"from \[0, 1\]; row 1 is 2 .*Pass classes="),
        (GOOD, ["a", "c"], {"classes": ["a", "b"]}, "row 1 is 'c' .*misspelt"),
        (GOOD, [0], {}, "logits has 2, y has 1"),
        (GOOD, [0, 1], {"sample_weight": [0, 0]}, "zero in every row"),
        (GOOD, [0, 1], {"sample_weight": [1, -1]}, "row 1 is -1.0. Drop"),
    ],
)
def test_bad_input_gives_one_clear_error(make, z, y, options, message):
    with pytest.raises(DataError, match=message):
        make().fit(z, y, **options)


@every_calibrator
@pytest.mark.parametrize("method", ["predict", "predict_proba", "confidence"])
def test_other_columns_than_in_fit(make, method):
    calibrator = make().fit(*overconfident(n_classes=3))
    with pytest.raises(DataError, match="must have 3 columns as in fit; got 2"):
        getattr(calibrator, method)(GOOD)
    with pytest.raises(DataError, match="row 0, column 2 is nan"):
        getattr(calibrator, method)([[0.0, 0.0, np.nan]])
