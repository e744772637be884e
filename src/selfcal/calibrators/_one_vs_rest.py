"""One curve for each class against the rest, with the rows normalised to sum to one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import softmax
from selfcal.calibrators._safeguard import Safeguarded

Curve = Callable[[Float], Float]
"""From log odds to the probability of the class; a frozen dataclass or a partial, so that it can be pickled."""


class OneVsRest(Safeguarded):
    """A calibrator made of curves of one score; subclasses implement `_fit_binary`.

    The score of a class is its log odds under the softmax, exact for logits of any size; `expit` makes a
    probability of it. Two classes need one curve, that of the second; more have one each. A row for
    which every curve is zero keeps its softmax.

    Attributes:
        curves_: One for each class, or the one of the second of two.
    """

    curves_: tuple[Curve, ...]  # subclasses annotate the type of the curves, so that they can be stored

    @abstractmethod
    def _fit_binary(self, log_odds: Float, is_class: NDArray[np.bool_], weight: Float) -> Curve:
        """Learn the curve of one class from rows of positive weight."""

    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        scores = log_odds(z)
        first = 1 if z.shape[1] == 2 else 0
        self.curves_ = tuple(
            self._fit_binary(scores[:, c].copy(), codes == c, weight) for c in range(first, z.shape[1])
        )

    def _of_curves(self, name: str) -> Float:
        """A parameter of all curves, for members whose curves have some."""
        return np.array([getattr(curve, name) for curve in self.curves_], dtype=np.float64)

    def _map(self, z: Float) -> Float:
        scores = log_odds(z)
        if len(self.curves_) == 1:
            second = self.curves_[0](scores[:, 1])
            return np.column_stack([1 - second, second])
        values = np.column_stack([curve(scores[:, c]) for c, curve in enumerate(self.curves_)])
        empty = values.sum(axis=1) <= 0
        values[empty] = softmax(z[empty])
        return values


def log_odds(z: Float) -> Float:
    """The logarithm of p / (1 - p) for each class, p the softmax: its logit minus the logsumexp of the others."""
    if z.shape[1] == 2:
        difference = z[:, 1] - z[:, 0]
        return np.column_stack([-difference, difference])
    top = z.argmax(axis=1)[:, None]
    below = z - np.take_along_axis(z, top, axis=1)
    others = below.copy()
    np.put_along_axis(others, top, -np.inf, axis=1)
    runner_up = others.max(axis=1, keepdims=True)
    rest = np.exp(others - runner_up).sum(axis=1, keepdims=True)  # all but the top, on the runner-up's scale
    mass = np.exp(below)
    against = np.log(np.maximum(mass.sum(axis=1, keepdims=True) - mass, 1.0))  # the top's own mass is one
    np.put_along_axis(against, top, runner_up + np.log(rest), axis=1)
    return below - against
