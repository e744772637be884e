import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression

from selfcal.calibrators import IsotonicConfidence
from selfcal.errors import ConfigError, DataError


def overconfident(n=400, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, n_classes))
    y = np.array([rng.choice(n_classes, p=p) for p in softmax(logits, axis=1)])
    return 3 * logits, y


# The network is most confident where it is always wrong, so no increasing curve can be above zero there.
HOPELESS = np.array([[3.0, 1.0, 0.0]] * 5 + [[1.0, 0.5, 0.0]] * 5), np.array([1] * 10)


@pytest.mark.parametrize("weighted", [False, True])
def test_equals_isotonic_regression_of_being_right_on_the_confidence(weighted):
    logits, y = overconfident()
    weight = np.random.default_rng(1).integers(0, 4, len(y)) if weighted else None
    new, _ = overconfident(seed=2)
    reference = IsotonicRegression(out_of_bounds="clip")
    reference.fit(softmax(logits, axis=1).max(axis=1), logits.argmax(axis=1) == y, sample_weight=weight)
    expected = reference.predict(softmax(new, axis=1).max(axis=1))
    calibrator = IsotonicConfidence().fit(logits, y, weight)
    np.testing.assert_allclose(calibrator.confidence(new), expected, atol=1e-12)


def test_weight_two_is_as_good_as_twice_and_zero_as_absent():
    logits, y = overconfident()
    weight = np.arange(len(y)) % 3
    twice = IsotonicConfidence().fit(np.repeat(logits, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(
        IsotonicConfidence().fit(logits, y, weight).confidence(logits), twice.confidence(logits), atol=1e-12
    )


def test_choice_is_the_networks_own():
    logits, y = overconfident()
    calibrator = IsotonicConfidence().fit(logits, y)
    np.testing.assert_array_equal(calibrator.predict(logits), logits.argmax(axis=1))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), n_classes=st.integers(2, 6), floor=st.sampled_from(["none", "chance"]))
def test_probabilities_are_probabilities(seed, n_classes, floor):
    logits, y = overconfident(30, n_classes, seed)
    calibrator = IsotonicConfidence(floor).fit(logits, y)
    probs = calibrator.predict_proba(logits * 7)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    assert probs.min() > 0
    chosen = probs[np.arange(len(probs)), calibrator.predict(logits * 7)]
    np.testing.assert_allclose(chosen, calibrator.confidence(logits * 7), atol=1e-300)


def test_other_classes_keep_their_ratios():
    logits, y = overconfident()
    after, before = IsotonicConfidence().fit(logits, y).predict_proba(logits), softmax(logits, axis=1)
    second, third = np.argsort(before, axis=1)[:, [-2, -3]].T
    rows = np.arange(len(y))
    np.testing.assert_allclose(
        after[rows, second] * before[rows, third], after[rows, third] * before[rows, second], atol=1e-15
    )


def test_rises_with_the_networks_confidence():
    logits, y = overconfident()
    calibrator = IsotonicConfidence().fit(logits, y)
    order = np.argsort(softmax(logits, axis=1).max(axis=1))
    assert (np.diff(calibrator.confidence(logits)[order]) >= 0).all()


def test_confidence_is_calibrated_on_the_rows_it_was_fitted_on():
    logits, y = overconfident()
    confidence = IsotonicConfidence().fit(logits, y).confidence(logits)
    assert confidence.mean() == pytest.approx(np.mean(logits.argmax(axis=1) == y))
    assert softmax(logits, axis=1).max(axis=1).mean() > confidence.mean() + 0.1


def test_confidence_may_fall_below_chance():
    logits, y = HOPELESS
    as_published = IsotonicConfidence(floor="none").fit(logits, y)
    np.testing.assert_array_equal(as_published.confidence(logits), 0)
    assert (as_published.predict_proba(logits).argmax(axis=1) != as_published.predict(logits)).all()


def test_floor_lifts_confidence_to_chance():
    logits, y = HOPELESS
    lifted = IsotonicConfidence(floor="chance").fit(logits, y)
    np.testing.assert_allclose(lifted.confidence(logits), 1 / 3)
    np.testing.assert_allclose(lifted.predict_proba(logits).sum(axis=1), 1)


def test_certain_network_leaves_nothing_to_share_and_the_rest_is_shared_evenly():
    logits = np.array([[2000.0, 0.0, 0.0]] * 4)
    probs = IsotonicConfidence().fit(logits, [0, 0, 1, 2]).predict_proba(logits)
    np.testing.assert_allclose(probs, [[0.5, 0.25, 0.25]] * 4)


def test_one_row_is_enough():
    calibrator = IsotonicConfidence().fit([[2.0, 0.0]], [0])
    np.testing.assert_array_equal(calibrator.confidence([[0.1, 0.0], [9.0, 0.0]]), 1)


def test_clone():
    assert clone(IsotonicConfidence(floor="chance")).floor == "chance"


@pytest.mark.parametrize("method", ["predict", "predict_proba", "confidence"])
def test_not_fitted(method):
    with pytest.raises(NotFittedError):
        getattr(IsotonicConfidence(), method)([[1.0, 0.0]])


@pytest.mark.parametrize(
    ("logits", "y", "weight", "message"),
    [
        ([1.0, 2.0], [0, 1], None, r"\(rows, classes\).*got shape \(2,\)"),
        ([[1.0], [2.0]], [0, 0], None, r"got shape \(2, 1\)"),
        (np.zeros((0, 2)), [], None, r"got shape \(0, 2\)"),
        ([[1.0, np.nan]], [0], None, "logits must be finite; row 0, column 1 is nan"),
        ([[1.0, 0.0]], [2], None, r"y must hold labels from \[0, 1\]; row 0 is 2"),
        ([[1.0, 0.0]], [0, 1], None, "logits has 1, y has 2"),
        ([[1.0, 0.0]], [0], [-1], "row 0 is -1.0"),
        ([[1.0, 0.0]], [0], [0], "zero in every row"),
    ],
)
def test_bad_input(logits, y, weight, message):
    with pytest.raises(DataError, match=message):
        IsotonicConfidence().fit(logits, y, weight)


def test_bad_floor():
    with pytest.raises(ConfigError, match=r"got 'chanse'.* Did you mean 'chance'"):
        IsotonicConfidence(floor="chanse").fit([[1.0, 0.0]], [0])


def test_other_number_of_classes():
    with pytest.raises(DataError, match="must have 2 columns as in fit; got 3"):
        IsotonicConfidence().fit([[1.0, 0.0]], [0]).predict([[1.0, 0.0, 0.0]])
