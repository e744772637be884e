"""Isotonic regression of the correctness on the confidence."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import LogitCalibrator, softmax


class IsotonicConfidence(LogitCalibrator):
    """The best non-decreasing map from the largest probability to the probability of being right.

    The network's choice of class is kept. The map does not use the other classes, so the calibrated
    confidence may fall below ``1 / n_classes``, where another class would be the better choice; ``floor="chance"``
    raises it to that value. No increasing map has a lower log loss of being right on the data it was fitted to, so
    it never falls back to the identity; it may predict 0 or 1, which new rows may contradict.

    Args:
        floor: ``"none"`` as published, or ``"chance"``.

    Attributes:
        from_: Confidences of the network where the map bends.
        to_: The calibrated confidences; between them the map is linear.

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

    never_worse = True  # in the log loss of being right, the one it is fitted to

    from_: Float
    to_: Float

    def __init__(self, floor: str = "none") -> None:
        self.floor = floor

    def predict(self, logits: ArrayLike) -> Int:
        """The network's own choice."""
        return self._checked(logits).argmax(axis=1)

    def confidence(self, logits: ArrayLike) -> Float:
        """The calibrated probability that the choice is right."""
        return self._curve(softmax(self._checked(logits)).max(axis=1))

    def _check_settings(self) -> None:
        checks.one_of("floor", self.floor, ("none", "chance"))

    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        curve = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        curve.fit(softmax(z).max(axis=1), z.argmax(axis=1) == codes, sample_weight=weight)
        self.from_, self.to_ = curve.X_thresholds_, curve.y_thresholds_

    def _curve(self, top: Float) -> Float:
        low = 1 / self.n_classes_ if self.floor == "chance" else 0.0
        return np.maximum(np.interp(top, self.from_, self.to_), low)

    def _map(self, z: Float) -> Float:
        probs = softmax(z)
        return with_confidence(probs, z.argmax(axis=1), self._curve(probs.max(axis=1)))


def with_confidence(probs: Float, chosen: Int, confidence: Float) -> Float:
    """Return rows with this confidence in the chosen class, and the rest in proportion to `probs` (positive).

    >>> with_confidence(np.array([[0.6, 0.3, 0.1]]), np.array([0]), np.array([0.2]))
    array([[0.2, 0.6, 0.2]])
    """
    at = np.arange(len(probs)), chosen
    others = probs.copy()
    others[at] = 0.0
    others *= ((1 - confidence) / others.sum(axis=1))[:, None]
    others[at] = confidence
    return others
