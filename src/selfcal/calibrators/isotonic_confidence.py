"""Isotonic regression of being right on the confidence."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.utils.validation import check_is_fitted

from selfcal import _checks
from selfcal._checks import Float, Int
from selfcal.errors import DataError
from selfcal.interfaces import Calibrator


class IsotonicConfidence(BaseEstimator, Calibrator):
    """The best non-decreasing map from the largest probability to the chance of being right.

    The network's choice of class is kept. The map knows nothing of the other classes, so the calibrated
    confidence of a choice may fall below ``1 / n_classes``, where another class would be the better choice;
    ``floor="chance"`` lifts it to that value.

    Args:
        floor: ``"none"`` as published, or ``"chance"``.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0], [2.0, 0.0], [0.5, 0.0], [0.5, 0.0]])
        >>> calibrator = IsotonicConfidence().fit(logits, [0, 0, 1, 0])
        >>> calibrator.confidence([[2.0, 0.0], [0.5, 0.0]])
        array([1. , 0.5])

    Reference:
        Zadrozny and Elkan, Transforming classifier scores into accurate multiclass probability estimates,
        2002; on the confidence, as in Sanguin, Pakrashi, Viola and Rinaldi, 2024.
    """

    def __init__(self, floor: str = "none") -> None:
        self.floor = floor

    def fit(self, logits: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit on held-out logits (n, k) and label codes."""
        _checks.one_of("floor", self.floor, ("none", "chance"))
        z = _checks.logits(logits)
        codes = _checks.label_codes(y, z.shape[1], name="y")
        _checks.same_length(logits=z, y=codes)
        weight = _checks.sample_weights(sample_weight, len(z))
        curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        curve.fit(softmax(z, axis=1).max(axis=1), z.argmax(axis=1) == codes, sample_weight=weight)
        self.from_, self.to_ = curve.X_thresholds_, curve.y_thresholds_
        self.n_classes_ = z.shape[1]
        return self

    def predict(self, logits: ArrayLike) -> Int:
        """The network's own choice."""
        return self._checked(logits).argmax(axis=1)

    def confidence(self, logits: ArrayLike) -> Float:
        """The calibrated probability that the choice is right."""
        top = softmax(self._checked(logits), axis=1).max(axis=1)
        low = 1 / self.n_classes_ if self.floor == "chance" else 0.0
        return np.maximum(np.interp(top, self.from_, self.to_), low)

    def predict_proba(self, logits: ArrayLike) -> Float:
        """The confidence for the chosen class; the rest shared among the others as the network has it."""
        confidence = self.confidence(logits)
        chosen = np.arange(len(confidence)), self.predict(logits)
        probs = softmax(self._checked(logits), axis=1)
        probs[chosen] = 0.0
        left = probs.sum(axis=1, keepdims=True)
        even = np.full_like(probs, 1 / (self.n_classes_ - 1))
        shares = np.divide(probs, left, out=even, where=left > 0)
        probs = shares * (1 - confidence)[:, None]
        probs[chosen] = confidence
        return probs

    def _checked(self, logits: ArrayLike) -> Float:
        check_is_fitted(self)
        z = _checks.logits(logits)
        if z.shape[1] != self.n_classes_:
            raise DataError(f"logits must have {self.n_classes_} columns as in fit; got {z.shape[1]}.")
        return z
