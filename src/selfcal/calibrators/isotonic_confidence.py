"""Isotonic regression of being right on the confidence."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.utils.validation import check_is_fitted

from selfcal._checks import Float, Int, one_of
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
        one_of("floor", self.floor, ("none", "chance"))
        z = np.asarray(logits, dtype=np.float64)
        correct = z.argmax(axis=1) == np.asarray(y)
        curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        curve.fit(softmax(z, axis=1).max(axis=1), correct, sample_weight=sample_weight)
        self.from_, self.to_ = curve.X_thresholds_, curve.y_thresholds_
        return self

    def predict(self, logits: ArrayLike) -> Int:
        """The network's own choice."""
        return np.asarray(logits).argmax(axis=1)

    def confidence(self, logits: ArrayLike) -> Float:
        """The calibrated probability that the choice is right."""
        check_is_fitted(self)
        probs = softmax(np.asarray(logits, dtype=np.float64), axis=1)
        low = 1 / probs.shape[1] if self.floor == "chance" else 0.0
        return np.maximum(np.interp(probs.max(axis=1), self.from_, self.to_), low)

    def predict_proba(self, logits: ArrayLike) -> Float:
        """The confidence for the chosen class; the rest shared among the others as the network has it."""
        probs = softmax(np.asarray(logits, dtype=np.float64), axis=1)
        chosen = np.arange(len(probs)), self.predict(logits)
        confidence = self.confidence(logits)
        probs[chosen] = 0.0
        left = probs.sum(axis=1, keepdims=True)
        even = np.full_like(probs, 1 / (probs.shape[1] - 1))
        shares = np.divide(probs, left, out=even, where=left > 0)
        probs = shares * (1 - confidence)[:, None]
        probs[chosen] = confidence
        return probs
