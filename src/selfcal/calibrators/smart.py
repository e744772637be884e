"""SMART: a temperature for each row, by the gap between its two highest logits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import softmax
from selfcal.calibrators._rising_line import inner_quantiles
from selfcal.calibrators._safeguard import Safeguarded
from selfcal.calibrators._share import safe_temperature
from selfcal.calibrators.formula import Head, Operations

N_KNOTS = 8
N_BINS = 15
SOFTNESS = 0.01
"""Of the bins of confidence."""
SMOOTHING = 0.01
"""The error of a bin below which its absolute value is rounded off."""
L2 = 10.0
"""Strength of the penalty, in rows; chosen on the first halves of the files of docs/results/calibrators.md."""
MAX_CHANGE = np.log(20.0)
"""The temperature of a row is at most 20 times that of temperature scaling, and at least a twentieth."""


class SMART(Safeguarded):
    """Divide the logits of each row by a temperature that depends on the gap g between its two highest logits.

    The probabilities are ``softmax(z / T(g))``, ``g = z_(1) - z_(2)``. The gap tells how close a row is to the
    boundary between two classes. T has the lowest soft calibration error: with c_i the confidence of row i, a_i
    whether it is right, and m_ij its membership in bin j with centre b_j, ``softmax_j(-(c_i - b_j)² / 0.01)``, that
    is ``Σ_j sqrt((Σ_i m_ij (a_i - c_i))² + (ε Σ_i m_ij)²) / n``, with 15 bins and ε = 0.01.

    The authors' T is a small network of the gap. Here log T is linear between its values at eight quantiles of the
    gap, and constant beyond. The search begins at temperature scaling, and a small penalty on the distance from there
    makes the result stable. The choice of class never changes.

    Args:
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        gaps_: The gaps at which log T has the values `log_temperatures_`.
        log_temperatures_: These values.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        Rows with a small gap are right as often as their confidence says, those with a large one are not:

        >>> logits = np.array([[1.0, 0.0]] * 1000 + [[6.0, 0.0]] * 1000)
        >>> y = np.array([0] * 730 + [1] * 270 + [0] * 800 + [1] * 200)
        >>> calibrator = SMART(safeguard=False).fit(logits, y)
        >>> calibrator.confidence([[1.0, 0.0], [6.0, 0.0]]).round(2)
        array([0.73, 0.8 ])

    Reference:
        Guo, Tao, Luo, Dong and Xu, Sample margin-aware recalibration of temperature scaling, 2025.
    """

    keeps_choice = True

    gaps_: Float
    log_temperatures_: Float

    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        gap, start = top_two_gap(z), np.log(safe_temperature(z, codes, weight))
        self.gaps_ = inner_quantiles(gap[:, None], weight, N_KNOTS + 1)
        hats = _hats(gap, self.gaps_)
        below, right = z - z.max(axis=1, keepdims=True), z.argmax(axis=1) == codes
        share = weight / weight.sum()
        centres = (np.arange(N_BINS) + 0.5) / N_BINS

        def loss(change: Float) -> tuple[float, Float]:
            beta = np.exp(-start - hats @ change)
            odds = np.exp(beta[:, None] * below)
            confidence = 1 / odds.sum(axis=1)
            # of the confidence in log T: beta c E[z_(1) - z], with a minus
            slope = beta * confidence**2 * (odds * below).sum(axis=1)
            error, by_confidence = _soft_error(confidence, right, share, centres)
            penalty = L2 / weight.sum()
            value = error + penalty / 2 * float(change @ change)
            return value, hats.T @ (by_confidence * slope) + penalty * change

        bounds = [(-MAX_CHANGE, MAX_CHANGE)] * len(self.gaps_)
        options = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-9}
        best = minimize(
            loss, np.zeros(len(self.gaps_)), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        self.log_temperatures_ = start + best.x

    def _map(self, z: Float) -> Float:
        log_t = np.interp(top_two_gap(z), self.gaps_, self.log_temperatures_)
        return softmax((z - z.max(axis=1, keepdims=True)) / np.exp(log_t)[:, None])

    def formula(self, ops: Operations) -> Head:
        """``softmax(z / T(g))``."""
        gaps, values = self.gaps_.tolist(), self.log_temperatures_.tolist()

        def head(z: Any) -> Any:
            gap, log_t = ops.top_two_gap(z), values[0]
            for i in range(1, len(gaps)):
                slope = (values[i] - values[i - 1]) / (gaps[i] - gaps[i - 1])
                log_t = log_t + slope * (ops.clip(gap, gaps[i - 1], gaps[i]) - gaps[i - 1])
            return ops.softmax(z * ops.exp(-log_t + 0 * gap))

        return self._mixed_formula(head, ops)


def top_two_gap(z: Float) -> Float:
    """The highest logit of each row less the second highest."""
    top = np.partition(z, -2, axis=1)[:, -2:]
    return top[:, 1] - top[:, 0]


def _hats(gap: Float, knots: Float) -> Float:
    """The table whose product with values at the knots is the line through them at each gap."""
    return np.column_stack([np.interp(gap, knots, unit) for unit in np.eye(len(knots))])


def _soft_error(
    confidence: Float, right: NDArray[np.bool_], share: Float, centres: Float
) -> tuple[float, Float]:
    """The soft calibration error, and its derivative in each confidence."""
    away = confidence[:, None] - centres
    members = softmax(-(away**2) / SOFTNESS)
    steepness = -2 * away / SOFTNESS
    steepness -= (members * steepness).sum(axis=1, keepdims=True)  # of the logarithm of the membership
    residual = right - confidence
    gaps, mass = (share * residual) @ members, share @ members
    norm = np.maximum(np.hypot(gaps, SMOOTHING * mass), np.finfo(np.float64).tiny)
    by_gap, by_mass = gaps / norm, SMOOTHING**2 * mass / norm
    slope = members * steepness
    return float(norm.sum()), share * (residual * (slope @ by_gap) - members @ by_gap + slope @ by_mass)
