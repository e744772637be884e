"""Calibrators that are a formula, written in operations that any array library can provide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from selfcal._support.checks import Float

Head = Callable[[Any], Any]
"""From logits to probabilities, both of shape (rows, classes), as arrays of the library that has the operations."""


class Operations(Protocol):
    """The operations of a formula besides sums and products; arrays have one row per sample."""

    def constant(self, values: Float) -> Any:
        """An array of the library."""

    def softmax(self, z: Any) -> Any:
        """Probabilities of logits."""

    def log_softmax(self, z: Any) -> Any:
        """Their logarithms."""

    def sigmoid(self, x: Any) -> Any:
        """``1 / (1 + exp(-x))``."""

    def softplus(self, x: Any) -> Any:
        """``log(1 + exp(x))``."""

    def log_odds(self, z: Any) -> Any:
        """Each logit less the logsumexp of the others; of two classes, those of the second alone."""

    def exp(self, x: Any) -> Any:
        """The exponential."""

    def clip(self, x: Any, low: float, high: float) -> Any:
        """Values outside of the limits moved to the nearer one."""

    def top_two_gap(self, z: Any) -> Any:
        """The highest logit of each row less the second highest, as a column."""

    def one_vs_rest(self, values: Any) -> Any:
        """Rows normalised to sum to one; a single column is the probability of the second of two classes."""


@runtime_checkable
class Formula(Protocol):
    """A fitted calibrator that can be written down, for instance as an ONNX graph."""

    def formula(self, ops: Operations) -> Head:
        """The map from logits to probabilities that was fitted."""
