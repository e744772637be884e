"""The interface of a post-hoc calibrator, in a separate module because it needs no torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

from numpy.typing import ArrayLike

from selfcal._support.checks import Float, Int


class Calibrator(ABC):
    """A map from logits to calibrated probabilities, fitted after training on data the network has not seen."""

    @abstractmethod
    def fit(self, logits: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit on logits (n, k) and label codes 0..k-1."""

    @abstractmethod
    def predict(self, logits: ArrayLike) -> Int:
        """The code of the class chosen for each row."""

    @abstractmethod
    def predict_proba(self, logits: ArrayLike) -> Float:
        """Calibrated probabilities; rows sum to one."""

    @abstractmethod
    def confidence(self, logits: ArrayLike) -> Float:
        """Calibrated probability that the class chosen by `predict` is right."""
