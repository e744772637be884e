"""Our prediction sets against MAPIE 1.6: the same sets, class by class."""

import numpy as np
import pytest
from mapie.classification import SplitConformalClassifier
from sklearn.base import BaseEstimator, ClassifierMixin

from selfcal.conformal import RAPS, ConformalClassifier
from tests.conformal.worlds import draw


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose input is its probabilities."""

    def __init__(self, n_classes=4):
        self.n_classes = n_classes
        self.classes_ = np.arange(n_classes)
        self.fitted_ = True

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)


class Zeros(np.random.RandomState):
    """Uniform numbers that are all 0: MAPIE always randomises the calibration scores of APS."""

    def uniform(self, *args, size=None, **options):
        return np.zeros(size)


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    return draw(400, rng), draw(1000, rng)[0]


def mapie_sets(score, coverage, data, **options):
    model = SplitConformalClassifier(
        Given(), confidence_level=coverage, conformity_score=score, prefit=True, random_state=Zeros(0)
    )
    (probs, y), new = data
    return model, model.conformalize(probs, y).predict_set(new, **options)[1][:, :, 0]


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95, 0.99])
def test_lac(data, coverage):
    ours = ConformalClassifier(Given(), coverage=coverage).fit(*data[0]).predict_set(data[1])
    np.testing.assert_array_equal(ours, mapie_sets("lac", coverage, data)[1])


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
def test_aps(data, coverage):
    """MAPIE includes the class that crosses the threshold; ours and the authors' end before it, or at random there.

    MAPIE never returns an empty set, as ours does where the largest probability alone is beyond the threshold.
    """
    ours = ConformalClassifier(Given(), coverage=coverage, score="aps").fit(*data[0]).predict_set(data[1])
    only = {"conformity_score_params": {"include_last_label": False}}
    theirs = mapie_sets("aps", coverage, data, **only)[1]
    some = ours.any(axis=1)
    assert some.mean() > 0.5
    np.testing.assert_array_equal(ours[some], theirs[some])


def test_raps(data):
    """MAPIE tunes the penalty on a fifth of the calibration rows; the thresholds are compared with its choice."""
    only = {"conformity_score_params": {"include_last_label": False}}
    model, theirs = mapie_sets("raps", 0.9, data, **only)
    inner = model._mapie_classifier
    chosen = inner.conformity_score_function_
    kept = (inner.conformity_scores_.shape[0],)
    (probs, y), new = data
    tuned = {row.tobytes() for row in np.asarray(chosen.X_raps)}
    rest = np.array([row.tobytes() not in tuned for row in probs])
    assert rest.sum() == kept[0]
    score = RAPS(penalty=float(np.ravel(chosen.lambda_star)[0]), free=int(chosen.k_star[0]))
    ours = ConformalClassifier(Given(), coverage=0.9, score=score).fit(probs[rest], y[rest]).predict_set(new)
    some = ours.any(axis=1)
    assert some.mean() > 0.5
    np.testing.assert_array_equal(ours[some], theirs[some])


@pytest.mark.filterwarnings("ignore:WARNING. your conformalization dataset has less labels:UserWarning")
@pytest.mark.parametrize("score", ["lac", "aps"])
def test_groups_and_classes(data, score):
    """MAPIE has one threshold for all rows; ours of a group are those that it chooses on that group alone.

    Within a true class, its threshold is that for the rows of the class, and decides on the class's own column.
    """
    (probs, y), new = data
    only = {"conformity_score_params": {"include_last_label": False}} if score == "aps" else {}
    groups, of_new = (np.arange(len(rows)) % 3 for rows in (probs, new))
    grouped = ConformalClassifier(Given(), coverage=0.9, score=score).fit(probs, y, groups=groups)
    ours = grouped.predict_set(new, groups=of_new)
    for group in range(3):
        one = ((probs[groups == group], y[groups == group]), new[of_new == group])
        theirs, of_group = mapie_sets(score, 0.9, one, **only)[1], ours[of_new == group]
        some = of_group.any(axis=1)
        assert some.mean() > 0.5
        np.testing.assert_array_equal(of_group[some], theirs[some])
    if score == "lac":  # MAPIE adds a class to empty sets of APS, by the other columns
        each = ConformalClassifier(Given(), coverage=0.9, per_class=True).fit(probs, y).predict_set(new)
        for label in range(4):
            theirs = mapie_sets("lac", 0.9, ((probs[y == label], y[y == label]), new))[1]
            np.testing.assert_array_equal(each[:, label], theirs[:, label])
