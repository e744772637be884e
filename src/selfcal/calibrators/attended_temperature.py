"""Attended temperature scaling: rows of one class also stand in for other classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import softmax
from selfcal.calibrators._one_vs_rest import log_odds
from selfcal.calibrators._safeguard import Safeguarded
from selfcal.calibrators.formula import Head, Operations
from selfcal.calibrators.temperature import tempered

PILOT_ROWS = 4096
"""Rows on which the threshold is chosen; the temperature comes from all of them."""
THRESHOLDS = (1e-5, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3)
LOG_BETAS = np.linspace(-4.0, 2.0, 25)
"""Starting points, since the loss has several local minima; the temperature is between 0.1 and 70."""


class AttendedTemperatureScaling(Safeguarded):
    """Temperature scaling in which a class with few rows borrows rows of other classes.

    Class k has its own rows, and borrows those of other classes that the network chooses it for or gives a
    probability S_k above `threshold`. The temperature has the lowest sum of ``-log S_k`` over own and
    ``-log(S_k**2 / (1 - S_k))`` over borrowed rows, as in the authors' code: ``S_k / (1 - S_k)`` is the weight
    of a row of another class by Bayes' rule. The result depends strongly on the threshold, which the
    authors search for too. The choice of class never changes.

    Args:
        threshold: Between 0 and 1; None takes, of seven between 1e-5 and 0.3, that with the lowest log loss.
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        temperature_: The temperature.
        threshold_: The threshold used.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[4.0, 0.0, 0.0]] * 4 + [[0.0, 2.0, 0.0]] * 3)
        >>> calibrator = AttendedTemperatureScaling(safeguard=False).fit(logits, [0, 0, 0, 1, 1, 1, 2])
        >>> round(calibrator.temperature_, 3), calibrator.confidence([[4.0, 0.0, 0.0]]).round(3)
        (3.175, array([0.638]))

    Reference:
        Mozafari, Gomes, Leão, Janny and Gagné, Attended temperature scaling: a practical approach for
        calibrating deep neural networks, 2018.
    """

    keeps_choice = True

    temperature_: float
    threshold_: float

    def __init__(self, threshold: float | None = None, *, safeguard: bool = True) -> None:
        super().__init__(safeguard=safeguard)
        self.threshold = threshold

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.threshold is not None:
            checks.in_range("threshold", self.threshold, 0.0, 1.0)

    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        thresholds = THRESHOLDS if self.threshold is None else (self.threshold,)
        pilot = slice(None, None, max(1, len(z) // PILOT_ROWS))
        self.threshold_, log_beta = _valley(z[pilot], codes[pilot], weight[pilot], thresholds)
        borrowed = _borrowed(z, codes, self.threshold_)

        def loss(log_beta: float) -> float:
            odds = log_odds(np.exp(log_beta) * z)
            return _own_loss(odds, codes, weight) + _borrowed_loss(odds, borrowed, weight)

        step = LOG_BETAS[1] - LOG_BETAS[0]
        around = log_beta - step, log_beta + step
        best = minimize_scalar(loss, bounds=around, method="bounded", options={"xatol": 1e-8})
        self.temperature_ = float(np.exp(-best.x))

    def _map(self, z: Float) -> Float:
        return tempered(z, self.temperature_)

    def formula(self, ops: Operations) -> Head:
        """``softmax(z / T)``."""
        return self._mixed_formula(lambda z: ops.softmax(z / self.temperature_), ops)


def _valley(z: Float, codes: Int, weight: Float, thresholds: tuple[float, ...]) -> tuple[float, float]:
    """The threshold whose lowest point on the grid has the lowest log loss, and that point."""
    groups = [_borrowed(z, codes, threshold) for threshold in thresholds]
    own, attended = np.empty(len(LOG_BETAS)), np.empty((len(groups), len(LOG_BETAS)))
    for i, log_beta in enumerate(LOG_BETAS):
        odds = log_odds(np.exp(log_beta) * z)
        own[i] = _own_loss(odds, codes, weight)
        attended[:, i] = [own[i] + _borrowed_loss(odds, group, weight) for group in groups]
    valleys = attended.argmin(axis=1)
    chosen = int(own[valleys].argmin())
    return thresholds[chosen], float(LOG_BETAS[valleys[chosen]])


def _borrowed(z: Float, codes: Int, threshold: float) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows and classes of the pairs in which a class borrows a row."""
    pairs = (softmax(z) > threshold) | (z == z.max(axis=1, keepdims=True))
    pairs[np.arange(len(z)), codes] = False
    rows, classes = np.nonzero(pairs)
    return rows, classes


def _own_loss(odds: Float, codes: Int, weight: Float) -> float:
    """``-log(S)`` of the log odds of each row's own class."""
    return float(weight @ np.logaddexp(0, -odds[np.arange(len(odds)), codes]))


def _borrowed_loss(odds: Float, pairs: tuple[NDArray[np.intp], NDArray[np.intp]], weight: Float) -> float:
    """``-log(S**2 / (1 - S))`` is ``log(1 + exp(-s)) - s`` of the log odds s."""
    of_pairs = odds[pairs]
    return float(weight[pairs[0]] @ (np.logaddexp(0, -of_pairs) - of_pairs))
