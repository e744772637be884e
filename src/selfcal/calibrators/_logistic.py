"""Logistic regression with a handful of parameters and targets that need not be 0 or 1."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from selfcal._support.checks import Float

MAX_STEPS = 100


def logistic_fit(features: Float, target: Float, weight: Float) -> tuple[Float, float]:
    """Minimise the weighted log loss of ``expit(features @ coefficients)``; return the coefficients and the loss.

    Newton's method with halved steps on columns of equal size. On separable data, where the best
    coefficients are infinite, it ends at finite ones whose loss is next to zero.
    """
    size = np.abs(features).max(axis=0)
    x = features / np.where(size > 0, size, 1.0)
    normalized = weight / weight.sum()

    def loss(at: Float) -> float:
        score = x @ at
        return float(normalized @ (np.logaddexp(0, score) - target * score))

    at = np.zeros(x.shape[1])
    lowest = loss(at)
    for _ in range(MAX_STEPS):
        p = expit(x @ at)
        slope = x.T @ (normalized * (p - target))
        if np.abs(slope).max() < 1e-12:
            break
        curvature = (x * (normalized * p * (1 - p))[:, None]).T @ x
        try:
            step = np.linalg.lstsq(curvature, slope, rcond=1e-14)[0]
        except np.linalg.LinAlgError:  # the present point is better than the start
            break
        while not (after := loss(at - step)) <= lowest and np.abs(step).max() > 1e-12 * np.abs(at).max():
            step /= 2
        if not after < lowest:
            break
        at, lowest = at - step, after
    return at / np.where(size > 0, size, 1.0), lowest
