import math
import warnings

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from selfcal.conformal import APS, LAC, RAPS, ConformalClassifier, evaluate_sets, rows_for_coverage
from selfcal.conformal.guarantee import rank_for_coverage
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, DataError, PromiseWarning
from selfcal.metrics.intervals import mean_interval
from tests.conformal.worlds import draw


@pytest.fixture
def rows():
    return draw(300, np.random.default_rng(0))


@pytest.fixture
def new():
    return draw(500, np.random.default_rng(1))[0]


def slow_sets(score, coverage, probs, y, new):
    """The definition, class by class: in the set if the score is at most that of enough calibration rows."""
    ones = np.ones(len(probs))
    known = score(probs, ones)[np.arange(len(y)), y]
    scores = score(new, np.ones(len(new)))
    alpha = 1 - coverage
    return np.array([[(known >= s).sum() + 1 > alpha * (len(y) + 1) + 1e-9 for s in row] for row in scores])


@pytest.mark.parametrize("score", [LAC(), APS(), RAPS(penalty=0.1, free=1)], ids=repr)
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.93])
def test_sets_are_those_of_the_conformal_p_value(score, coverage, rows, new):
    ours = ConformalClassifier(coverage=coverage, score=score).fit(*rows).predict_set(new)
    np.testing.assert_array_equal(ours, slow_sets(score, coverage, *rows, new))


def test_aps_sums_the_probabilities_down_to_the_class():
    probs = np.array([[0.2, 0.5, 0.3]])
    np.testing.assert_allclose(APS()(probs, np.ones(1)), [[1.0, 0.5, 0.8]])
    np.testing.assert_allclose(APS()(probs, np.array([0.25])), [[0.85, 0.125, 0.575]])


def test_the_rank_takes_the_coverage_as_it_is_written():
    for digits in range(1, 100):
        for n in (9, 19, 99, 199):
            assert rank_for_coverage(digits / 100, n) == -(-(n + 1) * digits // 100)
    assert all(rank_for_coverage(c, rows_for_coverage(c)) == rows_for_coverage(c) for c in (0.8, 0.95, 0.999))


def test_the_coverage_over_all_new_rows_is_as_stated():
    """The k-th of n uniform scores is Beta distributed; its 5% quantile is that of a binomial count."""
    text = str(ConformalClassifier(coverage=0.9).fit(*draw(200, np.random.default_rng(0))).guarantee_)
    stated = float(text.split("at least ")[2].split("%", maxsplit=1)[0]) / 100
    below = binom.sf(rank_for_coverage(0.9, 200) - 1, 200, stated)
    assert below <= 0.05 + 1e-9
    assert binom.sf(rank_for_coverage(0.9, 200) - 1, 200, stated + 2e-4) > 0.05
    assert math.isclose(stated, 0.8652, abs_tol=0.01)


@pytest.mark.parametrize("randomized", [False, True])
def test_too_few_rows_are_said_and_give_sets_of_everything(rows, new, randomized):
    probs, y = rows
    conformal = ConformalClassifier(coverage=0.95, randomized=randomized)
    with pytest.warns(PromiseWarning, match="at least 19"):
        conformal.fit(probs[:18], y[:18])
    assert conformal.predict_set(new).all()
    assert not conformal.guarantee_.informative
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not conformal.fit(probs[:19], y[:19]).predict_set(new).all()


def test_a_rare_class_is_in_every_set_and_named(rows, new):
    probs, y = rows
    keep = (y != 0) | (np.cumsum(y == 0) <= 5)
    conformal = ConformalClassifier(per_class=True, classes=["a", "b", "c", "d"])
    with pytest.warns(PromiseWarning, match="'a' has fewer"):
        conformal.fit(probs[keep], np.array(list("abcd"))[y[keep]])
    sets = conformal.predict_set(new)
    assert sets[:, 0].all()
    assert not sets[:, 1:].all(axis=0).any()


def test_groups_have_thresholds_of_their_own(rows, new):
    probs, y = rows
    groups = np.where(np.arange(300) % 3 == 0, "north", "south")
    conformal = ConformalClassifier(coverage=0.8).fit(probs, y, groups=groups)
    for name in ("north", "south"):
        alone = ConformalClassifier(coverage=0.8).fit(probs[groups == name], y[groups == name])
        np.testing.assert_array_equal(
            conformal.predict_set(new, groups=[name] * len(new)), alone.predict_set(new)
        )
    assert "For each group" in str(conformal.guarantee_)
    assert conformal.predict_set(new, groups=["west"] * len(new)).all()
    with pytest.raises(ConfigError, match="Pass the group of each row"):
        conformal.predict_set(new)
    with pytest.raises(ConfigError, match="Leave them out"):
        ConformalClassifier().fit(probs, y).predict_set(new, groups=["north"] * len(new))


def test_groups_and_classes_together(rows, new):
    probs, y = rows
    groups = np.arange(300) % 2
    both = ConformalClassifier(coverage=0.6, per_class=True).fit(probs, y, groups=groups)
    alone = ConformalClassifier(coverage=0.6, per_class=True).fit(probs[groups == 1], y[groups == 1])
    np.testing.assert_array_equal(both.predict_set(new, groups=np.ones(500, int)), alone.predict_set(new))


def test_higher_coverage_contains_lower(rows, new):
    for score in ("lac", "aps", "raps"):
        low, high = (
            ConformalClassifier(coverage=c, score=score).fit(*rows).predict_set(new) for c in (0.7, 0.9)
        )
        assert (high | ~low).all()
        assert high.sum() > low.sum()


def test_draws_go_by_the_seed(rows, new):
    def sets(seed, **options):
        conformal = ConformalClassifier(score="aps", randomized=True, random_state=seed, **options)
        return conformal.fit(*rows).predict_set(new)

    np.testing.assert_array_equal(sets(1), sets(1))
    assert (sets(1) != sets(2)).any()


def test_any_classifier_and_class_names():
    X, y = Blobs(std=1.7).sample(1500, seed=0)
    names = np.array(["red", "green", "blue", "white", "black"])[y]
    model = LogisticRegression(max_iter=1000).fit(X[:500], names[:500])
    conformal = ConformalClassifier(model, coverage=0.9).fit(X[500:1000], names[500:1000])
    scores = evaluate_sets(names[1000:], conformal.predict_set(X[1000:]), classes=conformal.classes_)
    assert 0.9 in scores.coverage
    assert scores.size.value > 1
    copy = clone(conformal)
    assert copy.estimator is model
    with pytest.raises(NotFittedError):
        copy.predict_set(X)


def test_out_of_fold_predictions_promise_nothing_exact():
    X, y = Blobs(std=1.7).sample(1000, seed=0)
    probs = cross_val_predict(LogisticRegression(max_iter=1000), X[:500], y[:500], method="predict_proba")
    probs[:7] = np.nan
    conformal = ConformalClassifier(LogisticRegression(max_iter=1000).fit(X[:500], y[:500]), coverage=0.9)
    conformal.fit_out_of_fold(y[:500], probs)
    assert conformal.n_calibration_ == 493
    assert not conformal.guarantee_.holds
    assert "no exact guarantee" in str(conformal.guarantee_)
    same = ConformalClassifier(coverage=0.9).fit(probs[7:], y[7:500])
    assert same.guarantee_.holds
    np.testing.assert_array_equal(
        conformal.predict_set(X[500:]), same.predict_set(conformal.estimator.predict_proba(X[500:]))
    )
    conformal.estimator.out_of_fold_ = probs
    again = clone(conformal).fit_out_of_fold(y[:500])
    np.testing.assert_array_equal(again.predict_set(X), conformal.predict_set(X))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coverage": 95}, "coverage must be between 0 and 1"),
        ({"coverage": 0.0}, "coverage must be between 0 and 1"),
        ({"score": "lack"}, "Did you mean 'lac'"),
        ({"randomized": "no"}, "randomized must be True or False"),
        ({"estimator": LAC()}, "Fit it first"),
        ({"random_state": -1}, "random_state must be a whole number"),
    ],
)
def test_settings_are_checked(rows, settings, message):
    with pytest.raises(ConfigError, match=message):
        ConformalClassifier(**settings).fit(*rows)


def test_data_is_checked(rows):
    probs, y = rows
    with pytest.raises(DataError, match="inconsistent lengths"):
        ConformalClassifier().fit(probs, y[:-1])
    with pytest.raises(DataError, match="labels from"):
        ConformalClassifier().fit(probs, y + 1)
    with pytest.raises(DataError, match="4 columns"):
        ConformalClassifier().fit(probs, y).predict_set(np.full((2, 5), 0.2))
    with pytest.raises(DataError, match="one value for each"):
        ConformalClassifier().fit(probs, y, groups=[1])
    with pytest.raises(ConfigError, match="pass probs"):
        ConformalClassifier().fit_out_of_fold(y)
    with pytest.raises(ConfigError, match="penalty"):
        RAPS(penalty=-1)


def test_evaluation_of_sets():
    sets = np.array([[True, False, False], [True, True, False], [False, False, False], [False, True, True]])
    scores = evaluate_sets(["a", "a", "b", "b"], sets, classes=["a", "b", "c"])
    assert (scores.rows, scores.coverage.value, scores.size.value) == (4, 0.75, 1.25)
    assert (scores.single, scores.empty) == (0.25, 0.25)
    assert {name: c.value for name, c in scores.by_class.items()} == {"a": 1.0, "b": 0.5}
    np.testing.assert_allclose(scores.size.low, max(0, mean_interval([1, 2, 0, 2]).low))
    np.testing.assert_allclose(scores.size.high, mean_interval([1, 2, 0, 2]).high)
    with pytest.raises(DataError, match="True and False"):
        evaluate_sets([0], [[1.0, 0.0]])
