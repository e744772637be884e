"""Boosted trees as a careful engineer trains them: three libraries, one procedure."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold, train_test_split
from threadpoolctl import threadpool_limits

from selfcal._support.checks import Float, Int

FOLDS = 5
MAX_TREES, PATIENCE = 1000, 50
"""Iterations at most, and iterations without a lower log loss after which no more are tried."""

Rows = tuple[pd.DataFrame, Int]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Boosting:
    """Five models, each with a temperature fitted on the fold it has not seen; the mean of what they predict.

    Settings and the number of iterations are those with the lowest log loss on a fifth of the training rows, so that
    the models of the folds are trained on as many rows as the one the number was chosen with.

    Attributes:
        candidates: The settings to choose from.
        build: From settings, iterations, a seed and threads to a classifier.
        curve: The log loss on held-out rows after each iteration of a classifier.
        threads: How many threads may train; one predicts.
    """

    candidates: Sequence[Settings]
    build: Callable[[Settings, int, int, int], ClassifierMixin]
    curve: Callable[[ClassifierMixin, Rows, Rows], Float]
    threads: int = 1

    def __call__(self, X: pd.DataFrame, y: Int, seed: int) -> CalibratedClassifierCV:
        with warnings.catch_warnings(), threadpool_limits(self.threads):
            warnings.simplefilter("ignore", FutureWarning)  # a library may be behind pandas or scikit-learn
            settings, iterations = self.choose(X, y, seed)
            folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
            model = self.build(settings, iterations, seed, self.threads)
            return CalibratedClassifierCV(model, method="temperature", cv=folds).fit(X, y)

    def choose(self, X: pd.DataFrame, y: Int, seed: int) -> tuple[Settings, int]:
        """The settings and the number of iterations with the lowest log loss on a fifth of the rows."""
        X_fit, X_held, y_fit, y_held = train_test_split(
            X, y, test_size=1 / FOLDS, stratify=y, random_state=seed
        )
        curves = [
            self.curve(self.build(settings, MAX_TREES, seed, self.threads), (X_fit, y_fit), (X_held, y_held))
            for settings in self.candidates
        ]
        best = min(range(len(curves)), key=lambda i: curves[i].min())
        return self.candidates[best], int(curves[best].argmin()) + 1


def categories_of(X: pd.DataFrame) -> list[str]:
    """The columns that hold categories."""
    return [str(name) for name in X.columns if isinstance(X[name].dtype, pd.CategoricalDtype)]


def _scikit_learn(settings: Settings, iterations: int, seed: int, threads: int) -> ClassifierMixin:
    return HistGradientBoostingClassifier(
        max_iter=iterations, early_stopping=False, random_state=seed, **settings
    )


def _scikit_learn_curve(model: ClassifierMixin, fit: Rows, held_out: Rows) -> Float:
    model.set_params(early_stopping=True, n_iter_no_change=PATIENCE, tol=0.0)
    model.fit(*fit, X_val=held_out[0], y_val=held_out[1])
    return -np.asarray(model.validation_score_)[1:]  # the first is that of no tree


def _lightgbm(settings: Settings, iterations: int, seed: int, threads: int) -> ClassifierMixin:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(
        n_estimators=iterations,
        random_state=seed,
        n_jobs=threads,
        verbosity=-1,
        deterministic=True,
        **settings,
    )


def _lightgbm_curve(model: ClassifierMixin, fit: Rows, held_out: Rows) -> Float:
    from lightgbm import early_stopping

    model.fit(
        *fit, eval_X=held_out[0], eval_y=held_out[1], callbacks=[early_stopping(PATIENCE, verbose=False)]
    )
    (losses,) = model.evals_result_["valid_0"].values()
    return np.asarray(losses)


class CatBoost(ClassifierMixin, BaseEstimator):
    """CatBoost that finds the categories itself, and that scikit-learn can clone."""

    def __init__(
        self,
        iterations: int = MAX_TREES,
        seed: int = 0,
        threads: int = 1,
        settings: Settings | None = None,
    ) -> None:
        self.iterations = iterations
        self.seed = seed
        self.threads = threads
        self.settings = settings

    def fit(self, X: pd.DataFrame, y: Int, held_out: Rows | None = None) -> CatBoost:
        from catboost import CatBoostClassifier

        self.model_ = CatBoostClassifier(
            iterations=self.iterations,
            random_seed=self.seed,
            cat_features=categories_of(X),
            thread_count=self.threads,
            allow_writing_files=False,
            verbose=False,
            **self.settings or {},
        )
        stopped = {} if held_out is None else {"eval_set": (with_named_gaps(held_out[0]), held_out[1])}
        self.model_.fit(with_named_gaps(X), y, **stopped, early_stopping_rounds=PATIENCE if stopped else None)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: pd.DataFrame) -> Float:
        return self.model_.predict_proba(with_named_gaps(X), thread_count=1)


def _catboost(settings: Settings, iterations: int, seed: int, threads: int) -> ClassifierMixin:
    return CatBoost(iterations, seed, threads, settings)


def _catboost_curve(model: ClassifierMixin, fit: Rows, held_out: Rows) -> Float:
    (losses,) = model.fit(*fit, held_out=held_out).model_.get_evals_result()["validation"].values()
    return np.asarray(losses)


def with_named_gaps(X: pd.DataFrame) -> pd.DataFrame:
    """Missing categories as a category, since CatBoost accepts only missing numbers."""
    return X.assign(**{name: X[name].astype(object).fillna("(missing)") for name in categories_of(X)})


SCIKIT_LEARN = Boosting(
    [
        {"learning_rate": 0.05},
        {"learning_rate": 0.05, "max_leaf_nodes": 8, "min_samples_leaf": 10},
        {"learning_rate": 0.05, "l2_regularization": 10.0, "max_features": 0.5},
    ],
    _scikit_learn,
    _scikit_learn_curve,
)
LIGHTGBM = Boosting(
    [
        {"learning_rate": 0.05},
        {"learning_rate": 0.05, "num_leaves": 8, "min_child_samples": 10, "colsample_bytree": 0.5},
        {"learning_rate": 0.04, "num_leaves": 50, "min_child_samples": 40, "min_child_weight": 1e-7}
        | {"subsample": 0.75, "subsample_freq": 1},  # tuned on many tables: Holzmüller et al., NeurIPS 2024
    ],
    _lightgbm,
    _lightgbm_curve,
)
CATBOOST = Boosting(
    [
        {"depth": 6, "one_hot_max_size": 16, "learning_rate": 0.05},
        {"depth": 4, "one_hot_max_size": 16, "learning_rate": 0.05},
        {"depth": 7, "one_hot_max_size": 15, "learning_rate": 0.08, "leaf_estimation_iterations": 1}
        | {
            "l2_leaf_reg": 1e-5,
            "bootstrap_type": "Bernoulli",
            "subsample": 0.9,
            "random_strength": 0.8,
        },  # as above
    ],
    _catboost,
    _catboost_curve,
)
"""The learning rate is fixed, since the one that CatBoost finds depends on the number of iterations."""
