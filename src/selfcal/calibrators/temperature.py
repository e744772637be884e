"""Temperature scaling: one number that divides all logits."""

from __future__ import annotations

import warnings

import numpy as np

from selfcal._support.binning import row_blocks
from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import LogitCalibrator, softmax
from selfcal.calibrators.formula import Head, Operations
from selfcal.errors import CalibrationWarning

BOUND = np.log(1e3)
"""The temperature is between e^-BOUND and e^BOUND."""
PILOT_ROWS = 4096
"""Rows of a first fit, which is the starting point for the fit on all rows."""


class TemperatureScaling(LogitCalibrator):
    """Divide the logits by the temperature with the lowest log loss.

    With beta = 1 / T, the loss ``mean(logsumexp(beta z) - beta z_y)`` is convex. Its slope in beta is
    ``mean(E[z] - z_y)`` and its curvature ``mean(Var[z])`` under the scaled probabilities, so that a guarded
    Newton search on log beta, first on a few rows and then on all, needs two or three passes over the data.
    The choice of class never changes.

    Attributes:
        temperature_: The temperature; above 1 for an over-confident network.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
        >>> calibrator = TemperatureScaling().fit(logits, [0, 0, 0, 1])
        >>> round(calibrator.temperature_, 4), calibrator.confidence([[4.0, 0.0]]).round(4)
        (3.641, array([0.75]))

    Reference:
        Guo, Pleiss, Sun and Weinberger, On calibration of modern neural networks, 2017.
    """

    keeps_choice = True
    never_worse = True

    temperature_: float

    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        log_beta = 0.0
        if len(z) > 4 * PILOT_ROWS:
            pilot = slice(None, None, len(z) // PILOT_ROWS)
            log_beta = best_log_beta(z[pilot], codes[pilot], weight[pilot], log_beta)
        log_beta = best_log_beta(z, codes, weight, log_beta)
        self.temperature_ = float(np.exp(-log_beta))
        if abs(log_beta) == BOUND:
            why = "every row is classified right" if log_beta > 0 else "the logits are uninformative about y"
            warnings.warn(
                f"The temperature is at its bound, {self.temperature_:.4g}: either {why}, or the logits have an "
                "unusual scale. Fit it on more rows that the network was not trained on.",
                CalibrationWarning,
                stacklevel=3,
            )

    def _map(self, z: Float) -> Float:
        return tempered(z, self.temperature_)

    def formula(self, ops: Operations) -> Head:
        """``softmax(z / T)``."""
        return lambda z: ops.softmax(z / self.temperature_)


def tempered(z: Float, temperature: float) -> Float:
    """Return the softmax of the logits divided by the temperature, stable for logits of any size."""
    return softmax((z - z.max(axis=1, keepdims=True)) / temperature)


def best_log_beta(z: Float, codes: Int, weight: Float, log_beta: float = 0.0) -> float:
    """Return the log beta where the slope of the loss is zero, clipped to the bounds."""
    top = z.max(axis=1)
    true = z[np.arange(len(z)), codes] - top
    low, high = -np.inf, np.inf  # nearest points known to lie on either side
    while True:
        beta = float(np.exp(log_beta))
        slope, curvature = _derivatives(z, top, true, weight, beta)
        if slope == 0 and curvature == 0:  # constant logits, or probabilities that are exactly zero and one
            return BOUND if log_beta > 0 else log_beta
        low, high = (low, log_beta) if slope > 0 else (log_beta, high)
        step = -slope / (beta * curvature) if curvature > 0 else -np.sign(slope) * np.inf
        target = float(np.clip(log_beta + np.clip(step, -1.5, 1.5), -BOUND, BOUND))
        if target == log_beta or abs(step) < 1e-5:  # the next error is about the square of the step
            return target
        log_beta = target if low < target < high else (low + high) / 2


def _derivatives(z: Float, top: Float, true: Float, weight: Float, beta: float) -> tuple[float, float]:
    """Slope and curvature of the mean log loss in beta, in blocks that stay in the processor's cache."""
    slope = curvature = 0.0
    for rows in row_blocks(*z.shape):
        below = z[rows] - top[rows, None]
        p = beta * below
        np.exp(p, out=p)
        total = p.sum(axis=1)
        p *= below
        mean = p.sum(axis=1) / total
        square = np.einsum("ij,ij->i", p, below) / total
        slope += float(weight[rows] @ (mean - true[rows]))
        curvature += float(weight[rows] @ (square - mean**2))
    return slope / float(weight.sum()), curvature / float(weight.sum())
