"""Predictions with the true classes, as evaluated by reports and experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfcal import metrics
from selfcal._support.checks import Float, Int, label_codes, probabilities, same_length


class ConfidentClassifier(Protocol):
    """A fitted classifier that also gives a confidence in its predictions."""

    classes_: NDArray[Any]

    def predict(self, X: ArrayLike) -> NDArray[Any]: ...

    def predict_proba(self, X: ArrayLike) -> Float: ...

    def confidence(self, X: ArrayLike) -> Float: ...


@dataclass(frozen=True)
class Predictions:
    """The true and the predicted class of each row as codes, the confidence, and all probabilities.

    The confidence is separate from the probabilities, since a calibrator of the confidence need not agree with
    the largest probability.

    Example:
        >>> import numpy as np
        >>> judged = Predictions.from_probabilities([0, 1], np.array([[0.8, 0.2], [0.6, 0.4]]))
        >>> judged.scores()["accuracy"]
        0.5
    """

    y: Int
    chosen: Int
    confidence: Float
    probs: Float

    @classmethod
    def of(cls, clf: ConfidentClassifier, X: ArrayLike, y: ArrayLike) -> Predictions:
        """The predictions of a fitted classifier for these rows."""
        classes, probs = clf.classes_, clf.predict_proba(X)
        codes = label_codes(y, len(classes), classes)
        return cls(codes, label_codes(clf.predict(X), len(classes), classes), clf.confidence(X), probs)

    @classmethod
    def from_probabilities(
        cls, y: ArrayLike, probs: ArrayLike, *, classes: ArrayLike | None = None
    ) -> Predictions:
        """Predict the class of the largest probability, which is also the confidence.

        Args:
            y: The true labels: codes 0..k-1, or names if `classes` is given.
            probs: Probabilities, one column per class.
            classes: The label of each column.
        """
        p = probabilities(probs)
        codes = label_codes(y, p.shape[1], classes)
        same_length(y=codes, probs=p)
        return cls(codes, p.argmax(axis=1), p.max(axis=1), p)

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each row was classified correctly."""
        return self.chosen == self.y

    @property
    def below_chance(self) -> float:
        """The fraction of rows with a confidence below ``1 / n_classes``."""
        return float((self.confidence < 1 / self.probs.shape[1] - 1e-9).mean())

    def scores(self) -> dict[str, float]:
        """Accuracy, ECE of the confidence (15 bins), log loss and Brier score."""
        return {
            "accuracy": float(self.correct.mean()),
            "ece": metrics.confidence_calibration_error(self.correct, self.confidence),
            "log_loss": metrics.log_loss(self.y, self.probs),
            "brier": metrics.brier_score(self.y, self.probs),
        }
