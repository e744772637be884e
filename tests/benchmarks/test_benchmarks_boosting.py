"""Boosted trees and pytabkit in the quality benchmark, with stand-ins for the packages that may be missing."""

import sys
from types import ModuleType
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks import _quality_boosting as boosting
from benchmarks import _quality_methods as methods

WORDS = pd.CategoricalDtype(["no", "yes"])


@pytest.fixture
def rows():
    """A category that tells the label nearly, with gaps, and a number that tells nothing."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 150)
    told = np.where(rng.random(150) < 0.85, y, 1 - y)
    codes = np.where(rng.random(150) < 0.1, -1, told)
    number = np.where(rng.random(150) < 0.1, np.nan, rng.normal(size=150))
    return pd.DataFrame({"number": number, "word": pd.Categorical.from_codes(codes, dtype=WORDS)}), y


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(boosting, "MAX_TREES", 20)
    monkeypatch.setattr(boosting, "PATIENCE", 5)


class Counted(ClassifierMixin, BaseEstimator):
    """The frequencies of the labels, as every package would be called; what it was given is kept."""

    made: ClassVar[list] = []

    def __init__(self, iterations=None, n_estimators=None, depth=None, num_leaves=None, **others):
        self.iterations, self.n_estimators, self.depth, self.num_leaves = (
            iterations,
            n_estimators,
            depth,
            num_leaves,
        )
        self.others = others
        self.made.append(self)

    @classmethod
    def _get_param_names(cls):  # scikit-learn wants all of them by name
        return ["iterations", "n_estimators", "depth", "num_leaves"]

    def fit(self, X, y, **more):
        self.X, self.more = X, more
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares = counts / len(y)
        losses = [0.5, 0.4, 0.3, 0.6] if self.depth == 4 or self.num_leaves == 8 else [0.5, 0.45]
        self.evals_result_ = {"valid_0": {"binary_logloss": losses}}
        return self

    def get_evals_result(self):
        return {
            "learn": {"Logloss": [0.0]},
            "validation": {"Logloss": self.evals_result_["valid_0"].popitem()[1]},
        }

    def predict_proba(self, X, thread_count=1):
        return np.tile(self.shares, (len(X), 1))


def stand_in(monkeypatch, name, **content):
    module = ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(Counted, "made", [])


def test_scikit_learn_takes_categories_and_gaps_and_as_many_trees_as_help(rows, short):
    X, y = rows
    useless = {"learning_rate": 1e-6}
    procedure = boosting.Boosting(
        [useless, {"learning_rate": 0.3}], boosting._scikit_learn, boosting._scikit_learn_curve
    )
    settings, trees = procedure.choose(X, y, 0)
    assert settings == {"learning_rate": 0.3}
    assert 1 <= trees < 20
    model = procedure(X, y, 0)
    assert [fold.estimator.n_iter_ for fold in model.calibrated_classifiers_] == [trees] * 5
    assert model.calibrated_classifiers_[0].estimator.is_categorical_.tolist() == [False, True]
    probs = model.predict_proba(X)
    assert -np.log(probs[np.arange(150), y]).mean() < 0.55
    np.testing.assert_array_equal(probs, procedure(X, y, 0).predict_proba(X))


def test_the_curve_starts_with_the_first_tree(rows):
    X, y = rows
    model = HistGradientBoostingClassifier(max_iter=3, random_state=0)
    curve = boosting._scikit_learn_curve(model, (X, y), (X, y))
    one_tree = HistGradientBoostingClassifier(max_iter=1, random_state=0).fit(X, y).predict_proba(X)
    assert len(curve) == 3
    assert curve[0] == pytest.approx(-np.log(one_tree[np.arange(150), y]).mean(), rel=1e-3)


def test_catboost_is_told_the_categories_and_stopped(rows, monkeypatch):
    stand_in(monkeypatch, "catboost", CatBoostClassifier=Counted)
    X, y = rows
    probs = boosting.CATBOOST(X, y, 0).predict_proba(X)
    trials, models = Counted.made[: len(boosting.CATBOOST.candidates)], Counted.made[-5:]
    assert all(made.others["cat_features"] == ["word"] for made in Counted.made)
    assert all(made.others["thread_count"] == 1 for made in Counted.made)
    assert set(trials[0].X["word"]) == {"no", "yes", "(missing)"}
    assert trials[0].X["number"].isna().any()
    assert len(trials[0].more["eval_set"][1]) == 30
    assert [(model.depth, model.iterations) for model in models] == [(4, 3)] * 5
    np.testing.assert_allclose(probs.sum(axis=1), 1)


def test_lightgbm_has_one_thread_and_is_stopped(rows, monkeypatch):
    stopped = []
    stand_in(
        monkeypatch,
        "lightgbm",
        LGBMClassifier=Counted,
        early_stopping=lambda rounds, verbose: stopped.append(rounds),
    )
    X, y = rows
    boosting.LIGHTGBM(X, y, 0)
    trial, models = Counted.made[0], Counted.made[-5:]
    assert trial.others["n_jobs"] == 1
    assert len(trial.more["eval_y"]) == 30
    assert stopped == [boosting.PATIENCE] * len(boosting.LIGHTGBM.candidates)
    assert trial.X["word"].dtype == WORDS
    assert [(model.num_leaves, model.n_estimators) for model in models] == [(8, 3)] * 5


@pytest.mark.parametrize("name", ["realmlp", "tabm"])
def test_networks_of_pytabkit_have_one_thread_and_a_temperature(name, rows, monkeypatch):
    made = {}

    class Network(Counted):
        def __init__(self, **settings):
            super().__init__()
            made.update(settings)

    stand_in(monkeypatch, "pytabkit", RealMLP_TD_Classifier=Network, TabM_D_Classifier=Network)
    model = methods.METHODS[name].fit(*rows, 7)[-1]
    assert (made["n_threads"], made["n_cv"], made["random_state"]) == (1, 5, 7)
    assert made["calibration_method"] == "ts-mix"
    assert not model.X.select_dtypes("number").isna().any(axis=None)


@pytest.mark.parametrize("name", ["catboost", "lightgbm", "tabm"])
def test_packages_that_are_missing_are_named(name, monkeypatch):
    monkeypatch.setattr(methods, "find_spec", lambda module: None)
    assert methods.METHODS[name].why_not().endswith("cannot be imported")
