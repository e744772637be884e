"""Base classes of the uncertainty scores: one for each kind of input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.calibrators._state import State, restored, state_of
from selfcal.errors import ConfigError, DataError

BLOCK = 2**17
"""Numbers of the input that are in work at a time."""

LOG_FLOOR = float(np.finfo(np.float64).tiny)


class UncertaintyScore(BaseEstimator, ABC):
    """A score of doubt in each prediction: higher means more doubt. It orders rows, and is not a probability.

    A subclass says what its input is: probabilities, logits, the probabilities of several members, or features.
    """

    @abstractmethod
    def of(self, estimator: Any, X: Any) -> Float:
        """The doubt in the predictions of a fitted classifier for the rows of `X`."""

    def get_state(self) -> State:
        """Return settings and fitted state by name: numbers, strings, and arrays."""
        return {name: checks.plain(value) for name, value in self.get_params().items()} | state_of(self)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the score with the state of `get_state`; an invalid state is a `DataError`."""
        settings = cls._get_param_names()
        if missing := [name for name in settings if name not in state]:
            raise DataError(f"The state of {cls.__name__} must have {missing[0]!r}; it is missing.")
        score = cls(**{name: state[name] for name in settings})
        score._check_settings()
        for name, value in restored(cls, state).items():
            setattr(score, name, value)
        if unknown := state.keys() - score.get_state().keys():
            raise DataError(f"The state of {cls.__name__} has the unknown name {min(unknown)!r}.")
        return score

    def _check_settings(self) -> None:
        """Check the settings; overridden by subclasses that have some."""


class ProbabilityScore(UncertaintyScore):
    """A score of the probabilities of the classes, which need not be fitted."""

    def fit(self, probs: ArrayLike, y: ArrayLike, *, classes: ArrayLike | None = None) -> Self:
        """Check the input; there is nothing to learn."""
        checks.label_codes(y, checks.probabilities(probs).shape[1], classes, name="y")
        return self

    def score(self, probs: ArrayLike) -> Float:
        """The doubt in each row of probabilities (rows, classes)."""
        self._check_settings()
        return in_blocks(self._doubt, checks.probabilities(probs))

    def of(self, estimator: Any, X: Any) -> Float:
        return self.score(estimator.predict_proba(X))

    @abstractmethod
    def _doubt(self, probs: Float) -> Float:
        """The doubt in each row of a block."""


class LogitScore(UncertaintyScore):
    """A score of the logits of the classes, before any calibration."""

    def fit(self, logits: ArrayLike, y: ArrayLike, *, classes: ArrayLike | None = None) -> Self:
        """Learn from rows with known classes, or only check them, if there is nothing to learn.

        Args:
            logits: One row per sample and one column per class.
            y: Labels, codes 0..k-1 or names from `classes`.
            classes: The label of each column, if labels are not codes.
        """
        self._check_settings()
        z = checks.logits(logits)
        codes = checks.label_codes(y, z.shape[1], classes, name="y")
        checks.same_length(logits=z, y=codes)
        self._learn(z, codes)
        return self

    def score(self, logits: ArrayLike) -> Float:
        """The doubt in each row of logits (rows, classes)."""
        self._check_settings()
        return in_blocks(self._doubt, self._checked(checks.logits(logits)))

    def of(self, estimator: Any, X: Any) -> Float:
        return self.score(logits_of(estimator, X))

    def _learn(self, z: Float, codes: Int) -> None:
        """Learn the fitted state; overridden by subclasses that have one."""

    def _checked(self, z: Float) -> Float:
        """The logits, checked against the fitted state."""
        return z

    @abstractmethod
    def _doubt(self, z: Float) -> Float:
        """The doubt in each row of a block."""


class MemberScore(UncertaintyScore):
    """A score of several answers to each row: of the members of an ensemble, or of passes with dropout."""

    def fit(self, members: ArrayLike, y: ArrayLike, *, classes: ArrayLike | None = None) -> Self:
        """Check the input; there is nothing to learn."""
        checks.label_codes(y, _answers(members).shape[2], classes, name="y")
        return self

    def score(self, members: ArrayLike) -> Float:
        """The doubt in each row of the probabilities of each member (members, rows, classes)."""
        by_row = _answers(members).transpose(1, 0, 2)
        return in_blocks(self._doubt, by_row)

    def of(self, estimator: Any, X: Any) -> Float:
        return self.score(members_of(estimator, X))

    @abstractmethod
    def _doubt(self, probs: Float) -> Float:
        """The doubt in each row of a block of shape (rows, members, classes)."""


class FeatureScore(UncertaintyScore):
    """A score of how unlike the training rows a row is, in the space of the features."""

    n_features_: int
    n_classes_: int

    def fit(self, X: ArrayLike, y: ArrayLike, *, classes: ArrayLike | None = None) -> Self:
        """Learn from training rows.

        Args:
            X: Numbers, one row per sample.
            y: Labels, codes 0..k-1 or names from `classes`.
            classes: The labels in the order of the codes; with a fitted classifier, its `classes_`.
        """
        self._check_settings()
        x = features(X)
        y_array = checks.as_array(y)
        names = np.unique(y_array) if classes is None else checks.as_array(classes)
        codes = checks.label_codes(y_array, len(names), names, name="y")
        checks.same_length(X=x, y=codes)
        if len(np.unique(codes)) < 2:
            raise DataError("y must hold at least two classes; it holds one. Check the labels.")
        self.n_features_, self.n_classes_ = x.shape[1], len(names)
        self._learn(x, codes)
        return self

    def score(self, X: ArrayLike, predicted: ArrayLike | None = None) -> Float:
        """The doubt in each row.

        Args:
            X: The same columns as in `fit`.
            predicted: The code of the predicted class of each row, for scores that ask for it.
        """
        check_is_fitted(self, "n_features_")
        x = features(X)
        if x.shape[1] != self.n_features_:
            raise DataError(f"X must have {self.n_features_} columns as in fit; got {x.shape[1]}.")
        return self._doubts(x, predicted)

    def of(self, estimator: Any, X: Any) -> Float:
        classes = np.asarray(estimator.classes_)
        return self.score(
            X, checks.label_codes(estimator.predict(X), len(classes), classes, name="predict(X)")
        )

    @abstractmethod
    def _learn(self, x: Float, codes: Int) -> None:
        """Learn the fitted state."""

    @abstractmethod
    def _doubts(self, x: Float, predicted: ArrayLike | None) -> Float:
        """The doubt in each row."""


def in_blocks(function: Callable[[Float], Float], rows: Float) -> Float:
    """Apply a function of rows to blocks of them, so that its intermediate results take little memory."""
    width = max(1, rows[:1].size)
    size = max(1, BLOCK // width)
    return np.concatenate([function(rows[start : start + size]) for start in range(0, len(rows), size)])


def features(X: ArrayLike) -> Float:
    """Return features as a finite float64 table with at least one row."""
    x = checks.numbers(X, "X")
    if x.ndim != 2 or 0 in x.shape:
        raise DataError(f"X must be a table of at least one row and one column; got shape {x.shape}.")
    wrong = ~np.isfinite(x)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(f"X must be finite; row {row}, column {column} is {x[row, column]}.")
    return x


def logits_of(estimator: Any, X: Any) -> Float:
    """The logits of a fitted classifier; the logarithms of its probabilities, if it has none."""
    if hasattr(estimator, "logits"):
        return checks.logits(estimator.logits(X))
    return np.log(np.maximum(checks.probabilities(estimator.predict_proba(X), "predict_proba(X)"), LOG_FLOOR))


def members_of(estimator: Any, X: Any) -> Float:
    """The probabilities of each member of a fitted ensemble: its `member_proba(X)`, or its `estimators_`."""
    if hasattr(estimator, "member_proba"):
        return np.asarray(estimator.member_proba(X), dtype=np.float64)
    members = getattr(estimator, "estimators_", ())
    if not len(members) or not all(hasattr(member, "predict_proba") for member in members):
        raise ConfigError(
            "estimator must have several members, by member_proba(X) or by estimators_ with predict_proba; got "
            f"{estimator!r}. Use a score of probabilities, such as Entropy(), for a single model."
        )
    return np.array([member.predict_proba(X) for member in members])


def _answers(members: ArrayLike) -> Float:
    p = checks.numbers(members, "members")
    if p.ndim != 3 or len(p) < 2:
        raise DataError(
            f"members must have the shape (members, rows, classes) with at least two members; got {p.shape}."
        )
    return checks.probabilities(p.reshape(-1, p.shape[2]), "members").reshape(p.shape)
