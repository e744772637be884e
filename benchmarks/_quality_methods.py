"""The methods that are compared: what we offer, and what a careful engineer would do without us."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, StratifiedKFold, StratifiedShuffleSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from benchmarks._quality_boosting import CATBOOST, FOLDS, LIGHTGBM, SCIKIT_LEARN, Boosting
from benchmarks._quality_sets import Task
from selfcal import SelfCalibratedClassifier
from selfcal._support.checks import Float, Int
from selfcal.errors import ConfigError, DataError
from selfcal.tabular.features import FeatureGroups


class Fitted(Protocol):
    """A classifier after training."""

    @property
    def classes_(self) -> NDArray[Any]: ...

    def predict_proba(self, X: ArrayLike) -> Float: ...


@dataclass(frozen=True)
class Method:
    """A way to train.

    Attributes:
        label: What tables call it.
        fit: From training rows, labels and a seed to a fitted classifier.
        raw: Whether it takes a table with categories and missing values, not numbers.
        grouped: Whether it takes numbers and, as `groups`, which of them encode categories and missing values.
        needs: Modules that must be installed.
        unavailable: Says why it cannot be run even so; empty if it can.
        kinds: The kinds of sets it is run on.
        noisy_only: Whether it makes sense only where labels are wrong.
    """

    label: str
    fit: Callable[..., Fitted]
    raw: bool = False
    grouped: bool = False
    needs: Sequence[str] = ()
    unavailable: Callable[[], str] = lambda: ""
    kinds: Sequence[str] = ("generated", "table", "images")
    noisy_only: bool = False

    def rows(self, task: Task) -> tuple[Any, Any]:
        """The training and the test rows in the form that it takes."""
        return (task.table, task.table_test) if self.raw else (task.X, task.X_test)

    def train(self, task: Task, seed: int) -> Fitted:
        """Train on the rows of a task."""
        groups = {"groups": task.groups} if self.grouped else {}
        return self.fit(self.rows(task)[0], task.y, seed, **groups)

    def why_not(self) -> str:
        """Why it cannot be run here; empty if it can."""
        missing = [name for name in self.needs if find_spec(name) is None]
        return f"{' and '.join(missing)} cannot be imported" if missing else self.unavailable()


@dataclass(frozen=True)
class Ours:
    """A method of `SelfCalibratedClassifier`; the numbers are scaled already, for everybody alike.

    Of several kinds of network, the one with the lowest log loss on the rows held out for stopping is kept.
    """

    method: str
    networks: Sequence[str | None] = (None,)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def _classifier(self, seed: int, network: str | None = None) -> SelfCalibratedClassifier:
        return SelfCalibratedClassifier(
            self.method, network=network, random_state=seed, standardize=False, verbose=False, **self.settings
        )

    def __call__(self, X: Float, y: Int, seed: int, groups: FeatureGroups | None = None) -> Fitted:
        fitted = [
            self._classifier(seed, network).fit(X, y, feature_groups=groups) for network in self.networks
        ]
        # trees have no such losses, but no choice of networks either
        return min(fitted, key=lambda model: model.history_.selection_loss.min(initial=np.inf))

    def unavailable(self) -> str:
        """Settings are checked before the data: an empty table tells whether they are known."""
        try:
            self._classifier(0).fit(np.empty((0, 1)), np.empty(0))
        except (ConfigError, TypeError):
            return f"SelfCalibratedClassifier knows no method {self.method!r} with {dict(self.settings)}"
        except DataError:
            pass
        return ""


def ours(label: str, method: str, networks: Sequence[str | None] = (None,), **settings: Any) -> Method:
    """A method of `SelfCalibratedClassifier`."""
    classifier = Ours(method, networks, settings)
    return Method(label, classifier, grouped=True, unavailable=classifier.unavailable)


@dataclass(frozen=True)
class Calibrated:
    """Five models, each with a temperature fitted on the fold it has not seen; the mean of what they say.

    Of the settings in `grid`, those with the lowest log loss on a fifth of the rows are fitted anew on all of them.
    """

    estimator: ClassifierMixin
    grid: Sequence[Mapping[str, Sequence[Any]]]

    def __call__(self, X: Float, y: Int, seed: int) -> Fitted:
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        search = GridSearchCV(
            CalibratedClassifierCV(self.estimator, method="temperature", cv=folds),
            [
                {f"estimator__{name}": values for name, values in part.items()}
                | {"estimator__random_state": [seed]}
                for part in self.grid
            ],
            scoring="neg_log_loss",
            cv=StratifiedShuffleSplit(1, test_size=1 / FOLDS, random_state=seed),
            error_score="raise",
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # more passes are no remedy for over-fitting
            fitted: Fitted = search.fit(X, y)
            return fitted


@dataclass(frozen=True)
class Pytabkit:
    """A classifier of pytabkit: five models, each stopped and calibrated on the fold it was not trained on.

    It stops at the lowest log loss after temperature scaling, and smooths the temperature, as pytabkit advises.
    """

    name: str
    settings: Mapping[str, Any]

    def __call__(self, X: pd.DataFrame, y: Int, seed: int) -> Fitted:
        import pytabkit

        model = getattr(pytabkit, self.name)(
            val_metric_name="ref-ll-ts",
            calibration_method="ts-mix",
            n_cv=FOLDS,
            random_state=seed,
            device="cpu",
            n_threads=1,
            verbosity=0,
            **self.settings,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning's advice about loaders and loggers
            fitted: Fitted = make_pipeline(FunctionTransformer(without_missing_numbers), model).fit(X, y)
            return fitted


def without_missing_numbers(X: pd.DataFrame) -> pd.DataFrame:
    """Zero, the mean of the scaled training rows, in place of missing numbers; pytabkit accepts only categories."""
    return X.fillna(dict.fromkeys(X.select_dtypes("number").columns, 0.0))


@dataclass(frozen=True)
class Filtered:
    """Confident learning: drop the rows whose labels out-of-fold predictions contradict, and train again.

    Reference: Northcutt, Jiang, Chuang, Confident Learning: Estimating Uncertainty in Dataset Labels, JAIR 70 (2021).
    """

    train: Callable[[Float, Int, int], Fitted]

    def __call__(self, X: Float, y: Int, seed: int) -> Fitted:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores

        n_classes = int(y.max()) + 1
        probs = np.empty((len(y), n_classes))
        for rows, others in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(X, y):
            probs[others] = probabilities(self.train(X[rows], y[rows], seed), X[others], n_classes)
        kept = ~find_label_issues(y, probs, n_jobs=1)
        return _Audited(self.train(X[kept], y[kept], seed), 1 - get_label_quality_scores(y, probs))


@dataclass(frozen=True)
class _Audited:
    model: Fitted
    suspicion: Float

    @property
    def classes_(self) -> NDArray[Any]:
        return self.model.classes_

    def predict_proba(self, X: ArrayLike) -> Float:
        return self.model.predict_proba(X)

    def suspect_labels(self) -> Float:
        return self.suspicion


def boosting(label: str, procedure: Boosting, *needs: str) -> Method:
    """Boosted trees; not for images, since 784 pixels, ten trees an iteration and five folds take too long."""
    return Method(label, procedure, raw=True, needs=needs, kinds=("generated", "table"))


def pytabkit(label: str, name: str, **settings: Any) -> Method:
    """A classifier of pytabkit; not for images, which take it too long as well."""
    return Method(
        label,
        Pytabkit(name, settings),
        raw=True,
        needs=("pytabkit", "probmetrics"),
        kinds=("generated", "table"),
    )


SMALL_TABM: dict[str, Any] = {"arch_type": "tabm-mini", "tabm_k": 16, "d_block": 256}

ORACLE, PLAIN, REFERENCE, AUTO, TOLD = "oracle", "standard", "temperature", "auto", "auto-told"
_told = Ours("auto", settings={"time_budget": 60, "noisy_labels": True})

NETWORKS = ("mlp", "tabular")
"""What a careful engineer would try: the plain perceptron, and the one with piecewise-linear encodings."""

METHODS: dict[str, Method] = {
    PLAIN: ours("early-stopped", "standard", NETWORKS),
    REFERENCE: ours("early-stopped + temperature", "temperature", NETWORKS),
    "isotonic": ours("early-stopped + isotonic", "isotonic", NETWORKS),
    "ensemble": ours(f"deep ensemble of {FOLDS} + temperature", "ensemble", NETWORKS),
    "sklearn-mlp": Method(
        "scikit-learn MLP, calibrated",
        Calibrated(
            MLPClassifier(),
            [
                {"learning_rate_init": [1e-3, 1e-2]},  # the default is too slow for a few hundred rows
                {"learning_rate_init": [1e-3, 1e-2], "early_stopping": [True]},
            ],
        ),
    ),
    "sklearn-hgb": boosting("gradient boosting, calibrated", SCIKIT_LEARN),
    "lightgbm": boosting("LightGBM, calibrated", LIGHTGBM, "lightgbm"),
    "catboost": boosting("CatBoost, calibrated", CATBOOST, "catboost"),
    "realmlp": pytabkit(
        "RealMLP, five folds, ts-mix",
        "RealMLP_TD_Classifier",
        use_ls=False,  # label smoothing harms the log loss
    ),
    "tabm": pytabkit("TabM, five folds, ts-mix", "TabM_D_Classifier", **SMALL_TABM),
    "cleanlab": Method(
        "cleanlab's filter, retrained + temperature",
        Filtered(Ours("temperature", NETWORKS)),
        needs=("cleanlab",),
        noisy_only=True,
    ),
    "bo4sc": ours("BO4SC", "bo4sc"),
    "gamma_net_sece": ours("gamma-Net + SECE", "gamma_net_sece"),
    "crossfit": ours("cross-fitted", "crossfit"),
    AUTO: ours("auto", "auto", time_budget=60),
    TOLD: Method("auto, noisy labels", _told, grouped=True, noisy_only=True),
}
"""Every method by name, the oracle apart."""

LABELS = {name: method.label for name, method in METHODS.items()} | {ORACLE: "oracle (Bayes)"}


def probabilities(model: Fitted, X: Any, n_classes: int) -> Float:
    """One column for every class, also for those that were not trained on."""
    probs = np.zeros((len(X), n_classes))
    probs[:, model.classes_.astype(np.int64)] = model.predict_proba(X)
    total: Float = probs.sum(axis=1, keepdims=True)  # single precision sums to one only nearly
    return probs / total


def suspicion(model: Fitted, task: Task) -> Float | None:
    """How wrong each training label looks, where the method provides an audit."""
    if isinstance(model, SelfCalibratedClassifier) and not hasattr(model, "out_of_fold_"):
        return None
    if not hasattr(model, "suspect_labels"):
        return None
    found = model.suspect_labels()
    scores = np.asarray(getattr(found, "suspicion", found), dtype=np.float64)
    if scores.shape != task.y.shape:
        raise DataError(
            f"suspect_labels must give one score per training row; got {scores.shape} for {len(task.y)} rows."
        )
    return scores
