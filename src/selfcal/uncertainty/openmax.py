"""OpenMax: one more class, "none of these", by the extreme distances of training rows."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from sklearn.utils.validation import check_is_fitted

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.errors import DataError
from selfcal.uncertainty._base import LogitScore

MAX_SHAPE = 1e4
"""The largest shape of a Weibull distribution, for tails of (nearly) equal distances."""


class OpenMax(LogitScore):
    """The probability of one more class, "none of these", after a correction of the logits.

    For each class, the largest distances of its correctly classified rows from their mean logits follow a Weibull
    distribution with cumulative F. The logits of the `top` classes become ``v_i = z_i (1 - a_i F_i(d_i))`` with
    ``a_i = (top - rank_i + 1) / top``, what they lose is the logit of the new class, and the score is its probability
    by the softmax.

    Args:
        tail: Number of the largest distances of each class that the Weibull distribution is fitted to.
        top: Number of classes, those with the largest logits, that are corrected.

    >>> logits = [[4.0, 0.0], [5.0, 0.0], [7.0, 0.0], [0.0, 4.0], [0.0, 5.0], [0.0, 7.0]]
    >>> OpenMax(tail=3).fit(logits, [0, 0, 0, 1, 1, 1]).score([[5.0, 0.0], [30.0, 30.0]]).round(2)
    array([0.01, 1.  ])

    Reference: Bendale, Boult, Towards Open Set Deep Networks, CVPR 2016.
    """

    means_: Float
    shape_: Float
    scale_: Float
    shift_: Float

    def __init__(self, tail: int = 20, top: int = 10) -> None:
        self.tail = tail
        self.top = top

    def _check_settings(self) -> None:
        checks.positive_int("tail", self.tail, low=2)
        checks.positive_int("top", self.top)

    def _learn(self, z: Float, codes: Int) -> None:
        right = z.argmax(axis=1) == codes
        k = z.shape[1]
        self.means_, self.shape_ = np.zeros((k, k)), np.ones(k)
        self.scale_, self.shift_ = np.ones(k), np.zeros(k)
        for code in range(k):
            rows = z[right & (codes == code)]
            if len(rows) < 2:
                raise DataError(
                    f"OpenMax needs at least two correctly classified rows of each class; class {code} has "
                    f"{len(rows)}. Fit it on more rows, or leave the class out."
                )
            self.means_[code] = rows.mean(axis=0)
            distances = np.sort(np.linalg.norm(rows - self.means_[code], axis=1))[-self.tail :]
            self.shift_[code] = 1.0 - distances[0]
            self.shape_[code], self.scale_[code] = weibull(distances + self.shift_[code])

    def _checked(self, z: Float) -> Float:
        check_is_fitted(self, "means_")
        if z.shape[1] != len(self.means_):
            raise DataError(f"logits must have {len(self.means_)} columns as in fit; got {z.shape[1]}.")
        return z

    def _doubt(self, z: Float) -> Float:
        distances = np.stack([np.linalg.norm(z - mean, axis=1) for mean in self.means_], axis=1)
        shifted = np.maximum(distances + self.shift_, 0.0) / self.scale_
        top = np.argsort(-z, axis=1, kind="stable")[:, : self.top]
        with np.errstate(over="ignore"):
            extreme = -np.expm1(-(np.take_along_axis(shifted, top, axis=1) ** self.shape_[top]))
        logits = np.take_along_axis(z, top, axis=1)
        lost = logits * extreme * np.linspace(1.0, 0.0, top.shape[1], endpoint=False)
        corrected, unknown = z.copy(), lost.sum(axis=1)
        np.put_along_axis(corrected, top, logits - lost, axis=1)
        largest = np.maximum(corrected.max(axis=1), unknown)
        mass = np.exp(unknown - largest)
        return mass / (mass + np.exp(corrected - largest[:, None]).sum(axis=1))


def weibull(values: Float) -> tuple[float, float]:
    """Return shape and scale of the Weibull distribution of maximum likelihood, for positive values.

    >>> shape, scale = weibull(np.random.default_rng(0).weibull(2.0, 10_000) * 3.0)
    >>> round(shape, 1), round(scale, 1)
    (2.0, 3.0)
    """
    logs = np.log(values / values.max())

    def slope(shape: float) -> float:
        """The derivative of the log-likelihood in the shape, which falls."""
        power = np.exp(shape * logs)
        return float(1 / shape + logs.mean() - power @ logs / power.sum())

    shape = MAX_SHAPE if slope(MAX_SHAPE) >= 0 else float(brentq(slope, 1e-3, MAX_SHAPE))
    return shape, float(values.max() * np.mean(np.exp(shape * logs)) ** (1 / shape))
