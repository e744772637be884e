"""SelectiveClassifier with labels and models of every kind, and scikit-learn conventions."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from selfcal import ABSTAIN, SelectiveClassifier
from selfcal.calibrators import IsotonicConfidence
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, DataError, PromiseWarning
from selfcal.reject import Costs

X, CODES = Blobs(std=1.7).sample(3000, seed=0)
TRAIN, CAL, TEST = slice(0, 500), slice(500, 2000), slice(2000, None)
LABELS = {
    "strings": np.array(["ant", "bee", "cat", "dog", "elephant"])[CODES],
    "objects": np.array(["ant", "bee", "cat", "dog", "elephant"], dtype=object)[CODES],
    "codes": CODES,
    "integers": CODES * 100 - 200,
    "floats": CODES.astype(float),
    "booleans": CODES > 2,
}
AIMS = {
    "max_risk": {"max_risk": 0.05},
    "per_class": {"max_risk": 0.2, "per_class": True, "confidence_level": 0.5},
    "min_coverage": {"min_coverage": 0.7},
    "costs": {"costs": Costs(wrong=1.0, abstain=0.1)},
}
each_aim = pytest.mark.parametrize("aim", AIMS.values(), ids=AIMS.keys())


def fitted(y=CODES, model=None, **aim):
    model = (model or GaussianNB()).fit(X[TRAIN], y[TRAIN])
    return SelectiveClassifier(model, **aim).fit(X[CAL], y[CAL])


@each_aim
@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_every_kind(kind, aim):
    y = LABELS[kind]
    model = fitted(y, **aim)
    predicted, accepted = model.predict(X[TEST]), model.accepts(X[TEST])
    assert predicted.dtype == object
    assert 0 < accepted.sum() < len(accepted)
    assert all(answer is ABSTAIN for answer in predicted[~accepted])
    np.testing.assert_array_equal(predicted == ABSTAIN, ~accepted)
    assert {type(answer) for answer in predicted[accepted]} == {type(y.tolist()[0])}
    assert set(predicted[accepted]) <= set(y.tolist())
    np.testing.assert_array_equal(model.predict_proba(X[TEST]), model.estimator.predict_proba(X[TEST]))
    np.testing.assert_array_equal(model.classes_, np.unique(y))


def test_predictions_are_those_of_the_estimator_and_the_guarantee_holds():
    y = LABELS["strings"]
    model = fitted(y, max_risk=0.05)
    accepted = model.accepts(X[TEST])
    np.testing.assert_array_equal(
        model.predict(X[TEST])[accepted], model.estimator.predict(X[TEST])[accepted]
    )
    np.testing.assert_array_equal(
        accepted, model.estimator.predict_proba(X[TEST]).max(axis=1) >= model.threshold_
    )
    assert np.mean(model.predict(X[TEST])[accepted] != y[TEST][accepted]) <= 0.05
    promise = model.guarantee_
    assert (promise.aim, promise.holds, promise.bound, promise.n) == ("max_risk", True, 0.05, 1500)
    assert promise.accepted == model.accepts(X[CAL]).sum()
    assert promise.errors == np.sum((model.estimator.predict(X[CAL]) != y[CAL]) & model.accepts(X[CAL]))
    assert str(promise).startswith(
        "With probability at least 95%, at most 5% of the answers given are wrong."
    )
    assert f"Of 1,500 calibration rows, {promise.accepted} (" in str(promise)


def test_abstain_is_one_object():
    assert repr(ABSTAIN) == "ABSTAIN"
    assert pickle.loads(pickle.dumps(ABSTAIN)) is ABSTAIN
    assert copy.copy(ABSTAIN) is copy.deepcopy([ABSTAIN])[0] is ABSTAIN
    assert ABSTAIN not in ("ABSTAIN", None, False, 0, -1)
    assert {ABSTAIN: 1}[ABSTAIN] == 1


@pytest.mark.parametrize("kind", LABELS)
def test_abstain_sorts_after_every_class(kind):
    found, counts = np.unique(fitted(LABELS[kind], min_coverage=0.7).predict(X), return_counts=True)
    assert found[-1] is ABSTAIN
    assert found[:-1].tolist() == np.unique(LABELS[kind]).tolist()
    assert counts.sum() == len(X)


def test_confidence_of_our_own_models_is_used():
    """An isotonic confidence is not the largest probability, and it is what counts."""
    pytest.importorskip("torch")
    from selfcal import CalibratedModel

    forest = GaussianNB().fit(X[TRAIN], CODES[TRAIN])
    model = CalibratedModel(forest, IsotonicConfidence()).fit(X[TRAIN], CODES[TRAIN])
    selective = SelectiveClassifier(model, min_coverage=0.5).fit(X[CAL], CODES[CAL])
    np.testing.assert_array_equal(
        selective.accepts(X[TEST]), model.confidence(X[TEST]) >= selective.threshold_
    )
    assert np.any(model.confidence(X[TEST]) != model.predict_proba(X[TEST]).max(axis=1))


def test_our_own_network():
    pytest.importorskip("torch")
    from selfcal import SelfCalibratedClassifier

    clf = SelfCalibratedClassifier("standard", max_epochs=20, random_state=0).fit(X[TRAIN], CODES[TRAIN])
    selective = SelectiveClassifier(clf, max_risk=0.1).fit(X[CAL], CODES[CAL])
    accepted = selective.accepts(X[TEST])
    assert np.mean(clf.predict(X[TEST])[accepted] != CODES[TEST][accepted]) <= 0.1


def test_confidence_is_the_probability_of_the_predicted_class():
    class Contrary(GaussianNB):
        def predict(self, X):
            return self.classes_[np.argsort(self.predict_proba(X), axis=1)[:, -2]]

    model = fitted(model=Contrary(), min_coverage=0.5)
    second = np.sort(model.predict_proba(X[TEST]), axis=1)[:, -2]
    np.testing.assert_array_equal(model.accepts(X[TEST]), second >= model.threshold_)


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-3]}, cv=2),
    ],
    ids=["pipeline", "search"],
)
def test_models_within_models(model):
    assert fitted(model=model, max_risk=0.1).guarantee_.holds


@each_aim
def test_scikit_learn_conventions(aim):
    model = fitted(**aim)
    params = model.get_params(deep=False)
    assert params["estimator"] is model.estimator
    assert {**params, **aim} == params
    again = clone(model)
    assert again.estimator is model.estimator
    assert again.get_params(deep=False) == params
    with pytest.raises(NotFittedError):
        again.predict(X)
    np.testing.assert_array_equal(again.fit(X[CAL], CODES[CAL]).predict(X), model.predict(X))
    assert (
        SelectiveClassifier(model.estimator).set_params(**aim).fit(X[CAL], CODES[CAL]).threshold_ is not None
    )
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    assert "SelectiveClassifier(" in repr(model)


def test_settings_changed_after_the_fit_wait_for_the_next_one():
    model = fitted(max_risk=0.05)
    before = model.predict(X)
    model.set_params(max_risk=None, min_coverage=1.0)
    np.testing.assert_array_equal(model.predict(X), before)
    assert model.fit(X[CAL], CODES[CAL]).accepts(X).all()


@pytest.mark.parametrize(
    ("rows", "max_risk", "reason"),
    [
        (slice(500, 550), 0.05, "at least 59 rows, none of them wrong; there are 50"),
        (CAL, 0.001, "at least 2,995 rows, none of them wrong; there are 1,500"),
        (CAL, 0.003, "Too many of the most confident answers are wrong, or there are too few rows"),
    ],
)
def test_a_warning_where_there_is_no_guarantee(rows, max_risk, reason):
    y = CODES.copy()
    y[rows] = np.random.default_rng(0).permutation(y[rows])
    model = GaussianNB().fit(X[TRAIN], CODES[TRAIN])
    with pytest.warns(PromiseWarning, match="No threshold guarantees") as caught:
        selective = SelectiveClassifier(model, max_risk=max_risk).fit(X[rows], y[rows])
    assert caught[0].filename == __file__
    assert reason in selective.guarantee_.text
    assert not selective.guarantee_.holds
    assert selective.threshold_ == np.inf
    assert np.isnan(selective.guarantee_.risk)
    assert not selective.accepts(X).any()
    assert set(selective.predict(X)) == {ABSTAIN}


def test_everything_may_be_accepted():
    model = fitted(max_risk=0.5)
    assert model.threshold_ == 0
    assert "Every row is answered." in str(model.guarantee_)
    assert model.accepts(X).all()
    assert model.predict(X).dtype == object


def test_only_one_class_may_be_accepted():
    """The model separates elephants from the rest and nothing else."""
    y = CODES.copy()
    rest = np.flatnonzero(y < 4)
    y[rest] = np.random.default_rng(0).integers(0, 4, len(rest))
    model = fitted(y, max_risk=0.2)
    assert set(model.predict(X)) == {4, ABSTAIN}


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (GaussianNB(), "must be a fitted classifier with predict_proba and classes_; got GaussianNB"),
        ("model", "got 'model'"),
        (None, "wrap a torch module in a CalibratedModel"),
    ],
    ids=["not fitted", "string", "none"],
)
def test_bad_estimators(estimator, message):
    with pytest.raises(ConfigError, match=message):
        SelectiveClassifier(estimator, max_risk=0.1).fit(X[CAL], CODES[CAL])


class Broken(GaussianNB):
    def predict_proba(self, X):
        return np.full((len(X), 5), np.nan)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model: model.fit(X[CAL], CODES[TRAIN]), "X has 1500, y has 500"),
        (lambda model: model.fit(X[CAL], CODES[CAL] + 1), "y must hold labels from .* row . is 5 "),
        (lambda model: model.fit(X[CAL], LABELS["strings"][CAL]), "y must hold labels from"),
        (lambda model: model.fit(X[CAL], np.full(1500, np.nan)), "y must hold a label in every row"),
        (lambda model: model.fit(X[CAL], None), "requires y to be passed"),
        (lambda model: model.fit(X[:0], CODES[:0]), "minimum of 1 is required|at least one"),
    ],
    ids=["lengths", "unknown", "other kind", "missing", "none", "empty"],
)
def test_bad_calibration_rows(call, message):
    with pytest.raises(ValueError, match=message):
        call(SelectiveClassifier(GaussianNB().fit(X[TRAIN], CODES[TRAIN]), max_risk=0.1))


def test_a_model_without_probabilities_is_refused():
    with pytest.raises(DataError, match=r"predict_proba\(X\) must hold probabilities"):
        fitted(model=Broken(), min_coverage=0.5)


def test_weights_are_refused():
    model = SelectiveClassifier(GaussianNB().fit(X[TRAIN], CODES[TRAIN]), max_risk=0.1)
    with pytest.raises(
        ConfigError, match=r"have no weighted form\. Draw calibration rows from the distribution of new rows"
    ):
        model.fit(X[CAL], CODES[CAL], sample_weight=np.ones(1500))
