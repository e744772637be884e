"""A fitted classifier of any kind, followed by a calibrator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.utils.data import DataLoader, RandomSampler

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.calibrators import TemperatureScaling
from selfcal.errors import ConfigError
from selfcal.metrics.scores import LOG_FLOOR
from selfcal.storage import load_calibrator, save_calibrator
from selfcal.training.interfaces import Calibrator
from selfcal.training.prediction import Rows, module_logits
from selfcal.training.problem import probabilities_of


class CalibratedModel(ClassifierMixin, BaseEstimator):
    """A fitted scikit-learn classifier or PyTorch module whose probabilities are calibrated post hoc.

    The model itself is never trained or changed. Its logits are what a module returns; of a scikit-learn
    classifier, the logarithms of `predict_proba` (none under that of 2.2e-16) or, without it, the values of
    `decision_function`.

    Args:
        estimator: The fitted classifier, or a module that returns logits of shape (rows, classes), or an object
            with `logits`.
        calibrator: Any calibrator; by default `TemperatureScaling`.
        classes: The label of each column, for a module; by default 0, 1, ...

    Attributes:
        classes_: The class labels, in the order of the columns of `predict_proba`.
        calibrator_: The fitted calibrator.

    Example:
        >>> from sklearn.tree import DecisionTreeClassifier
        >>> from selfcal import metrics
        >>> from selfcal.datasets import Blobs
        >>> X, y = Blobs(std=1.7).sample(3000, seed=0)
        >>> tree = DecisionTreeClassifier(random_state=0).fit(X[:1000], y[:1000])
        >>> model = CalibratedModel(tree).fit(X[1000:2000], y[1000:2000])
        >>> [round(metrics.log_loss(y[2000:], m.predict_proba(X[2000:])), 2) for m in (tree, model)]
        [6.88, 0.75]
    """

    def __init__(
        self,
        estimator: Any,
        calibrator: Calibrator | None = None,
        *,
        classes: ArrayLike | None = None,
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.classes = classes

    def fit(
        self, X: Rows, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None, **options: Any
    ) -> Self:
        """Fit the calibrator on rows the model was not trained on.

        Args:
            X: The input of the model; for a module also a tuple or dictionary of tensors, or a `DataLoader` as in
                `selfcal.train`.
            y: The labels; not with a loader that yields them.
            sample_weight: One non-negative weight per row.
            options: Further arguments of the calibrator's `fit`, such as the `field` of `FieldAwareCalibration`.
        """
        if self.calibrator is not None and not isinstance(self.calibrator, Calibrator):
            raise ConfigError(
                f"calibrator must be a calibrator object such as TemperatureScaling(); got {self.calibrator!r}."
            )
        logits, own_y, own_weight = self._scored(X)
        if y is None:
            y, sample_weight = own_y, own_weight
        elif own_y is not None:
            raise ConfigError("fit needs labels once; got y and a DataLoader with labels. Leave y out.")
        if y is None:
            raise ConfigError(
                "fit needs labels; got none. Pass y, or a DataLoader whose batches have labels."
            )
        if isinstance(self.estimator, nn.Module) and probabilities_of(torch.from_numpy(logits)) == "softmax":
            warnings.warn(
                "The module must return logits; what it returns looks like probabilities, which are calibrated less "
                "well. Remove the softmax at its end.",
                stacklevel=2,
            )
        classes = self._classes(logits.shape[1])
        codes = checks.label_codes(y, logits.shape[1], classes, name="y")
        calibrator: Calibrator = TemperatureScaling() if self.calibrator is None else clone(self.calibrator)
        self.calibrator_ = calibrator.fit(logits, codes, sample_weight, **options)
        self.classes_ = classes
        return self

    def predict(self, X: Rows, **options: Any) -> NDArray[Any]:
        """The chosen class of each row."""
        check_is_fitted(self)
        return self.classes_[self.calibrator_.predict(self.logits(X), **options)]

    def predict_proba(self, X: Rows, **options: Any) -> Float:
        """The calibrated probability of each class."""
        check_is_fitted(self)
        return self.calibrator_.predict_proba(self.logits(X), **options)

    def confidence(self, X: Rows, **options: Any) -> Float:
        """The probability that the class chosen by `predict` is right."""
        check_is_fitted(self)
        return self.calibrator_.confidence(self.logits(X), **options)

    def save(self, path: str | os.PathLike[str], *, metrics: Mapping[str, Any] | None = None) -> Path:
        """Write the fitted calibrator and the classes into a folder; the model itself is not stored."""
        check_is_fitted(self)
        return save_calibrator(self.calibrator_, path, classes=self.classes_, metrics=metrics)

    @classmethod
    def load(cls, path: str | os.PathLike[str], estimator: Any) -> Self:
        """The calibrator that `save` wrote into a folder, after the same estimator as before."""
        calibrator, classes = load_calibrator(path)
        own = getattr(estimator, "classes_", None)
        if own is not None and not np.array_equal(own, classes):
            raise ConfigError(
                f"estimator must have the classes {classes.tolist()} as in fit; got {own.tolist()}."
            )
        model = cls(estimator, clone(calibrator), classes=None if own is not None else classes)
        model.calibrator_, model.classes_ = calibrator, classes
        return model

    def logits(self, X: Rows) -> Float:
        """The model's scores before any calibration, of shape (rows, classes), in the order of the rows."""
        if isinstance(X, DataLoader) and isinstance(X.sampler, RandomSampler):
            raise ConfigError(
                "Predictions need a DataLoader in the order of its data set; got one that shuffles. Use "
                "shuffle=False."
            )
        return self._scored(X)[0]

    def _scored(self, X: Rows) -> tuple[Float, ArrayLike | None, ArrayLike | None]:
        """The scores, and the labels and weights of a loader that has them."""
        model = self.estimator
        if isinstance(model, nn.Module):
            logits, y, weight = module_logits(model, X)
            return checks.logits(logits, "The module's output"), y, weight
        if isinstance(X, DataLoader):
            raise ConfigError("Only a torch module can be given a DataLoader; pass this estimator arrays.")
        return self._estimator_logits(X), None, None

    def _estimator_logits(self, X: Any) -> Float:
        model = self.estimator
        self._check_fitted()
        if hasattr(model, "logits"):
            return checks.logits(model.logits(X))
        if hasattr(model, "predict_proba"):
            return np.log(np.maximum(checks.probabilities(model.predict_proba(X)), LOG_FLOOR))
        if hasattr(model, "decision_function"):
            scores = np.asarray(model.decision_function(X), dtype=np.float64)
            return checks.logits(np.column_stack([0 * scores, scores]) if scores.ndim == 1 else scores)
        raise ConfigError(
            "estimator must be a torch module, or a classifier with predict_proba or decision_function; got "
            f"{model!r}."
        )

    def __sklearn_clone__(self) -> CalibratedModel:
        """The same model, which stays fitted, with a calibrator that is not."""
        calibrator = None if self.calibrator is None else clone(self.calibrator)
        return CalibratedModel(self.estimator, calibrator, classes=self.classes)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrator_")

    def _check_fitted(self) -> None:
        try:
            check_is_fitted(self.estimator)
        except (NotFittedError, TypeError) as error:
            raise ConfigError(
                f"estimator must be a fitted classifier or a torch module; {error} Fit it first, on other rows."
            ) from None

    def _classes(self, n_classes: int) -> NDArray[Any]:
        own = getattr(self.estimator, "classes_", None)
        if self.classes is not None and own is not None:
            raise ConfigError(
                "classes is for torch modules; this estimator has its own classes. Leave it out."
            )
        given = own if own is not None else self.classes
        return np.arange(n_classes) if given is None else np.asarray(given)
