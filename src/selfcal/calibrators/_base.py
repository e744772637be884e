"""Base class of the calibrators: input checks, positive rows that sum to one, and the fallback to the identity."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from selfcal import metrics
from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.calibrators._state import State, learned, restored, state_of
from selfcal.calibrators.interface import Calibrator
from selfcal.errors import CalibrationWarning, ConfigError, DataError

SMALLEST = float(np.finfo(np.float64).tiny)
"""The smallest calibrated probability: an event of probability zero would have an infinite log loss."""


class LogitCalibrator(BaseEstimator, Calibrator):
    """A calibrator that is a map of the logits; subclasses implement `_fit` and `_map`, and check their settings.

    If the fitted map has a higher log loss on its own data than the softmax, or if the optimisation failed, the
    softmax is used instead, with a warning.

    Attributes:
        n_classes_: Number of columns seen in fit.
        is_identity_: Whether the fit was rolled back.
    """

    keeps_choice: ClassVar[bool] = False
    """Whether the class with the largest logit is always the class with the largest probability."""

    never_worse: ClassVar[bool] = False
    """Whether the fit cannot have a higher log loss than the softmax, so that no check is needed."""

    n_classes_: int
    is_identity_: bool

    def fit(
        self,
        logits: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> Self:
        """Fit on logits of rows that the network was not trained on.

        Args:
            logits: One row per sample and one column per class.
            y: Labels, codes 0..k-1 or names from `classes`.
            sample_weight: One non-negative weight per row; a row of weight 2 counts as two rows.
            classes: The label of each column, if labels are not codes.
        """
        self._check_settings()
        z, codes, weight = checked_rows(logits, y, sample_weight, classes)
        self.n_classes_ = z.shape[1]
        self.is_identity_ = False
        with np.errstate(invalid="ignore", over="ignore"):  # a failed optimisation is detected below
            self._learn(z, codes, weight)
        if not self.never_worse:
            self._roll_back_if_worse(z, codes, weight, self._map)
        return self

    def predict(self, logits: ArrayLike) -> Int:
        """The code of the most probable class."""
        if self.keeps_choice:
            return self._checked(logits).argmax(axis=1)
        return self.predict_proba(logits).argmax(axis=1)

    def predict_proba(self, logits: ArrayLike) -> Float:
        """Calibrated probabilities: positive, each row sums to one."""
        z = self._checked(logits)
        return softmax(z) if self.is_identity_ else as_rows(self._calibrated(z))

    def confidence(self, logits: ArrayLike) -> Float:
        """The probability of the most probable class."""
        return self.predict_proba(logits).max(axis=1)

    def get_state(self) -> State:
        """Return settings and fitted state by name: numbers, strings, lists of these, and arrays.

        Example:
            >>> from selfcal.calibrators import TemperatureScaling
            >>> TemperatureScaling().fit([[0.0, 0.0]], [0]).get_state()
            {'n_classes_': 2, 'is_identity_': False, 'temperature_': 1.0}
        """
        check_is_fitted(self, "n_classes_")
        fitted = {name for name in vars(self) if name.endswith("_") and not name.startswith("_")}
        if unknown := sorted(fitted - learned(type(self)).keys()):
            raise ConfigError(
                f"A fitted attribute must be annotated in its class to be stored; {unknown[0]!r} of "
                f"{type(self).__name__} is not. Write for instance `{unknown[0]}: float` in the class body."
            )
        return {name: checks.plain(v) for name, v in self.get_params().items()} | state_of(self)

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the fitted calibrator with the state of `get_state`; an invalid state is a `DataError`."""
        state = cls._completed(state)
        settings = cls._get_param_names()
        if missing := [name for name in settings if name not in state]:
            raise DataError(f"The state of {cls.__name__} must have {missing[0]!r}; it is missing.")
        calibrator = cls(**{name: state[name] for name in settings})
        calibrator._check_settings()
        for name, value in restored(cls, state).items():
            setattr(calibrator, name, value)
        if unknown := state.keys() - calibrator.get_state().keys():
            raise DataError(f"The state of {cls.__name__} has the unknown name {min(unknown)!r}.")
        return calibrator

    @abstractmethod
    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        """Learn from rows of positive weight."""

    @abstractmethod
    def _map(self, z: Float) -> Float:
        """Probabilities, or anything not negative and proportional to them."""

    def _learn(self, z: Float, codes: Int, weight: Float) -> None:
        """Do all that `fit` has to do; overridden where that is more than `_fit`."""
        self._fit(z, codes, weight)

    def _calibrated(self, z: Float) -> Float:
        """What `predict_proba` returns, up to a factor for each row; overridden where that is more than `_map`."""
        return self._map(z)

    @classmethod
    def _completed(cls, state: State) -> State:
        """The state, with what it lacks if an earlier version wrote it."""
        return state

    def _check_settings(self) -> None:
        """Check the settings; overridden by subclasses that have some."""

    def _checked(self, logits: ArrayLike) -> Float:
        check_is_fitted(self, "n_classes_")
        z = checks.logits(logits)
        if z.shape[1] != self.n_classes_:
            raise DataError(f"logits must have {self.n_classes_} columns as in fit; got {z.shape[1]}.")
        return z

    def _roll_back_if_worse(
        self, z: Float, codes: Int, weight: Float, mapping: Callable[[Float], Float]
    ) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            mapped = as_rows(mapping(z))
        before = metrics.log_loss(codes, softmax(z), sample_weight=weight)
        after = np.inf
        if np.isfinite(mapped).all():
            after = metrics.log_loss(codes, mapped, sample_weight=weight)
        if not after <= before + 1e-9:
            warnings.warn(
                f"{type(self).__name__} raises the log loss on the data it was fitted to from {before:.6g} to "
                f"{after:.6g}; {self._roll_back()}. Fit it on more rows, or use TemperatureScaling.",
                CalibrationWarning,
                stacklevel=3,
            )

    def _roll_back(self) -> str:
        """Undo a fit that failed, and say what is used instead."""
        self.is_identity_ = True
        return "the uncalibrated softmax is kept"


def checked_rows(
    logits: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, classes: ArrayLike | None
) -> tuple[Float, Int, Float]:
    """Return logits, label codes and weights of the rows with positive weight."""
    z = checks.logits(logits)
    codes = checks.label_codes(y, z.shape[1], classes, name="y")
    checks.same_length(logits=z, y=codes)
    weight = checks.sample_weights(sample_weight, len(z))
    if weight is None:
        return z, codes, np.ones(len(z))
    counts = weight > 0
    return (z, codes, weight) if counts.all() else (z[counts], codes[counts], weight[counts])


def softmax(z: Float) -> Float:
    """Return the softmax, stable for logits of any size and never zero."""
    return as_rows(np.exp(z - z.max(axis=1, keepdims=True)))


def as_rows(values: Float) -> Float:
    """Return rows normalised to sum to one and kept above zero."""
    probs = values / values.sum(axis=1, keepdims=True)
    return np.maximum(probs, SMALLEST, out=probs)
