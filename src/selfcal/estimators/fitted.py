"""A fitted classifier: its predictions and its state."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from selfcal._support.checks import Float, Int, label_codes, such
from selfcal.calibrators.interface import Calibrator
from selfcal.conformal.novelty import NoveltyDetector
from selfcal.ensembles import Ensemble
from selfcal.errors import ConfigError, DataError
from selfcal.estimators.inputs import feature_table, labels
from selfcal.estimators.scaling import MAX_SCALED, Scaling
from selfcal.estimators.settings import ClassifierSettings
from selfcal.estimators.tables import encoded, remember_columns
from selfcal.storage import ClassifierState, Storable
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.training.problem import forward_in_blocks, members_in_blocks, n_answers
from selfcal.training.recipe import Recipe
from selfcal.uncertainty import FeatureScore, Mahalanobis


class Predicted(NamedTuple):
    """The predictions of a classifier for some rows, from one forward pass.

    Attributes:
        codes: The chosen class of each row, as its column in `probs`.
        confidence: The probability that the chosen class is right.
        probs: The probability of each class.
    """

    codes: Int
    confidence: Float
    probs: Float


class FittedClassifier(Storable, ClassifierMixin, ClassifierSettings):
    """The part of `SelfCalibratedClassifier` after the fit: prediction, saving and loading."""

    classes_: NDArray[Any]
    module_: nn.Module
    calibrator_: Calibrator | None
    method_: Recipe | Ensemble
    preprocessor_: Preprocessor | None
    n_features_in_: int
    n_iter_: int
    best_iter_: int
    batch_reduced_: int
    data_fingerprint_: str | None
    selection_: list[dict[str, Any]]
    novelty_: NoveltyDetector | None
    _scaling: Scaling
    _n_rows: int

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The chosen class of each row."""
        chosen = self._codes_of(self.logits(X))
        return self.classes_[chosen]

    def predict_proba(self, X: ArrayLike) -> Float:
        """The probability of each class."""
        return self._probs_of(self.logits(X))

    def confidence(self, X: ArrayLike) -> Float:
        """The probability that the class chosen by `predict` is right."""
        return self._confidence_of(self.logits(X))

    def predict_log_proba(self, X: ArrayLike) -> Float:
        """The logarithm of the probability of each class; minus infinity for one of zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def decision_function(self, X: ArrayLike) -> Float:
        """The log-odds of the second class of two; of several classes, the log-probability of each. All finite."""
        logs = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else logs

    def predict_with_confidence(self, X: ArrayLike) -> Predicted:
        """The chosen class of each row as a code, its confidence, and all probabilities, from one forward pass.

        Example:
            >>> from selfcal import SelfCalibratedClassifier
            >>> from selfcal.datasets import Blobs
            >>> X, y = Blobs(std=1.7).sample(100, seed=0)
            >>> clf = SelfCalibratedClassifier("temperature", max_epochs=5, random_state=0).fit(X, y)
            >>> codes, confidence, probs = clf.predict_with_confidence(X)
            >>> bool((clf.classes_[codes] == clf.predict(X)).all()), probs.shape
            (True, (100, 5))
        """
        return self._predicted(self.logits(X))

    def predict_encoded(self, values: Float) -> Predicted:
        """The same for rows that `preprocessor_` has encoded, of which there may be none."""
        return self._predicted(self._scores(values))

    def features(self, X: ArrayLike) -> Float:
        """The rows as the network takes them: encoded and scaled numbers, on which distances mean something."""
        check_is_fitted(self)
        return self.features_encoded(self._numbers(X))

    def features_encoded(self, values: Float) -> Float:
        """The same for rows that `preprocessor_` has encoded."""
        return self._scaling.scaled(values)

    def fit_novelty(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_held_out: ArrayLike,
        *,
        score: FeatureScore | None = None,
        false_alarms: float = 0.05,
    ) -> Self:
        """Learn to tell rows unlike the training rows, for `is_novel`; the predictions stay as they are.

        Args:
            X: The rows given to `fit`, or some of them.
            y: Their labels.
            X_held_out: Other rows, which choose the threshold and need no labels.
            score: A score of features from `selfcal.uncertainty`; by default `Mahalanobis`.
            false_alarms: The fraction of rows like the held-out ones that may be flagged.

        Returns:
            The classifier; `novelty_` is the fitted `NoveltyDetector`, whose `guarantee_` is exact.

        Example:
            >>> from selfcal import SelfCalibratedClassifier
            >>> from selfcal.datasets import Blobs
            >>> X, y = Blobs(std=1.7).sample(300, seed=0)
            >>> clf = SelfCalibratedClassifier("temperature", max_epochs=5, random_state=0).fit(X[:200], y[:200])
            >>> clf.fit_novelty(X[:200], y[:200], X[200:]).is_novel([[0.0, 0.0], [90.0, 90.0]])
            array([False,  True])
        """
        features = self.features(X)
        codes = label_codes(labels(y, len(features)), len(self.classes_), self.classes_)
        return self._fit_novelty(features, codes, self.features(X_held_out), score, false_alarms)

    def fit_novelty_encoded(
        self, values: Float, codes: Int, held_out: Float, *, false_alarms: float = 0.05
    ) -> Self:
        """The same for rows that `preprocessor_` has encoded, with the codes of their labels."""
        features = self.features_encoded
        return self._fit_novelty(features(values), codes, features(held_out), None, false_alarms)

    def is_novel(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Whether each row is unlike the training rows, at the rate of false alarms of `fit_novelty`."""
        check_is_fitted(self)
        return self.is_novel_encoded(self._numbers(X, warn=True))

    def is_novel_encoded(self, values: Float) -> NDArray[np.bool_]:
        """The same for rows that `preprocessor_` has encoded, of which there may be none."""
        if self.novelty_ is None:
            raise ConfigError(
                "is_novel needs a novelty score, and this classifier has none. Call fit_novelty with the training "
                "rows and others, or fit the model with selfcal fit, without --novelty 0 and --refit."
            )
        if not len(values):
            return np.zeros(0, dtype=bool)
        return self.novelty_.is_novel(self.features_encoded(values))

    def _fit_novelty(
        self, features: Float, codes: Int, held_out: Float, score: FeatureScore | None, false_alarms: float
    ) -> Self:
        fitted = (Mahalanobis() if score is None else clone(score)).fit(
            features, codes, classes=np.arange(len(self.classes_))
        )
        self.novelty_ = NoveltyDetector(None, fitted, false_alarms=false_alarms).fit(held_out)
        return self

    def member_proba(self, X: ArrayLike) -> Float:
        """The probabilities of each of several answers, before any calibration: (members, rows, classes).

        They are those of the members of an ensemble, of the passes with dropout of `mc_dropout`, or of the sampled
        last layers of `laplace`.
        """
        check_is_fitted(self)
        if n_answers(self.module_) < 2:
            raise ConfigError(
                "member_proba needs several answers; this classifier has one network. Fit it with a method such as "
                "'auto', 'crossfit', 'mc_dropout', 'laplace' or 'batch_ensemble', and without n_networks=1 or "
                "noisy_labels."
            )
        x = self._tensor(self._numbers(X, warn=True))
        probs: Float = softmax(members_in_blocks(self.module_, x).double().numpy(), axis=2)
        return probs

    def logits(self, X: ArrayLike) -> Float:
        """The network's raw scores, before any calibration, of shape (rows, classes)."""
        check_is_fitted(self)
        return self._scores(self._numbers(X, warn=True))

    def _numbers(self, X: ArrayLike, *, name: str = "X", warn: bool = False) -> Float:
        """The rows as numbers, encoded as in `fit`; with `warn`, warn of categories that were not seen there."""
        if self.preprocessor_ is None:
            return feature_table(self, X, reset=False, name=name)
        found = encoded(self, self.preprocessor_, X, name)
        for note in found.notes if warn else ():
            warnings.warn(note, stacklevel=4)  # the caller of `predict`
        return found.values

    def _scores(self, table: Float) -> Float:
        x = self._tensor(table)
        logits: Float = forward_in_blocks(self.module_, x).double().numpy()
        wrong = ~np.isfinite(logits).all(axis=1)
        if wrong.any():
            raise DataError(
                f"The network returns no finite scores for row {int(np.argmax(wrong))} of X "
                f"({such(int(wrong.sum()), 'row')}). Look for extreme values in it."
            )
        return logits

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_n_rows")

    def _html_repr(self) -> str:
        """What scikit-learn 1.7 and later display in a notebook."""
        from selfcal.estimators.notebook import classifier_html

        return classifier_html(self)

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _predicted(self, logits: Float) -> Predicted:
        return Predicted(self._codes_of(logits), self._confidence_of(logits), self._probs_of(logits))

    def _codes_of(self, logits: Float) -> Int:
        return logits.argmax(axis=1) if self.calibrator_ is None else self.calibrator_.predict(logits)

    def _probs_of(self, logits: Float) -> Float:
        if self.calibrator_ is not None:
            return self.calibrator_.predict_proba(logits)
        probs: Float = softmax(logits, axis=1)
        return probs

    def _confidence_of(self, logits: Float) -> Float:
        if self.calibrator_ is not None:
            return self.calibrator_.confidence(logits)
        return self._probs_of(logits).max(axis=1)

    def _tensor(self, table: Float, name: str = "X") -> Tensor:
        limit = f"within {MAX_SCALED:g} standard deviations of the training data"
        if not self.standardize:
            limit = f"within ±{MAX_SCALED:g} if standardize=False"
        return self._scaling.tensor(table, self, limit=limit, name=name)

    def _state(self) -> ClassifierState:
        settings = self.get_params(deep=False)
        return ClassifierState(
            network=settings.pop("network"),
            settings=settings,
            recipe=getattr(self, "method_", None),
            classes=self.classes_,
            n_features=len(self._scaling.mean),
            feature_names=getattr(self, "feature_names_in_", None) if self.preprocessor_ is None else None,
            preprocessor=self.preprocessor_,
            mean=self._scaling.mean,
            scale=self._scaling.scale,
            module=self.module_,
            calibrator=self.calibrator_,
            n_steps=self.n_iter_,
            best_step=self.best_iter_,
            n_reductions=self.batch_reduced_,
            n_rows=self._n_rows,
            fingerprint=getattr(self, "data_fingerprint_", None),
            selection=getattr(self, "selection_", ()),
            novelty=None if self.novelty_ is None else self.novelty_.state,
        )

    @classmethod
    def _from_state(cls, state: ClassifierState) -> Self:
        self = cls(network=state.network, **state.settings)
        self._check_settings()
        if state.recipe is not None:
            self.method_ = state.recipe
        self.classes_ = state.classes
        self.preprocessor_ = state.preprocessor
        if state.preprocessor is not None:
            remember_columns(self, state.preprocessor)
        else:
            self.n_features_in_ = state.n_features
        if state.feature_names is not None:
            self.feature_names_in_ = state.feature_names
        self._scaling = Scaling(state.mean, state.scale)
        self.module_, self.calibrator_ = state.module, state.calibrator
        self.n_iter_, self.best_iter_ = state.n_steps, state.best_step
        self.batch_reduced_ = state.n_reductions
        self.data_fingerprint_ = state.fingerprint
        if state.selection:
            self.selection_ = [*state.selection]
        self.novelty_ = None if state.novelty is None else NoveltyDetector.from_state(state.novelty)
        self._n_rows = state.n_rows
        return self
