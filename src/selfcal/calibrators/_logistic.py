"""Logistic regression with a handful of parameters and targets that need not be 0 or 1."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from selfcal._support.checks import Float

MOST_STEPS = 100


def logistic_fit(features: Float, target: Float, weight: Float) -> tuple[Float, float]:
    """The coefficients of the lowest weighted log loss of ``expit(features @ coefficients)``, and that loss.

    Newton's method with halved steps on columns of equal size. On separable data, where the best
    coefficients are infinite, it ends at finite ones whose loss is next to zero.
    """
    size = np.abs(features).max(axis=0)
    x = features / np.where(size > 0, size, 1.0)
    share = weight / weight.sum()

    def loss(at: Float) -> float:
        score = x @ at
        return float(share @ (np.logaddexp(0, score) - target * score))

    at = np.zeros(x.shape[1])
    lowest = loss(at)
    for _ in range(MOST_STEPS):
        p = expit(x @ at)
        slope = x.T @ (share * (p - target))
        if np.abs(slope).max() < 1e-12:
            break
        curvature = (x * (share * p * (1 - p))[:, None]).T @ x
        try:
            step = np.linalg.lstsq(curvature, slope, rcond=1e-14)[0]
        except np.linalg.LinAlgError:  # where it stands is better than where it started
            break
        while not (after := loss(at - step)) <= lowest and np.abs(step).max() > 1e-12 * np.abs(at).max():
            step /= 2
        if not after < lowest:
            break
        at, lowest = at - step, after
    return at / np.where(size > 0, size, 1.0), lowest
