"""Platt scaling: a sigmoid of the log odds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from selfcal._support.checks import Float
from selfcal.calibrators._logistic import logistic_fit
from selfcal.calibrators._one_vs_rest import Curve, OneVsRest
from selfcal.calibrators.formula import Head, Operations


@dataclass(frozen=True)
class Sigmoid:
    """``expit(slope * s + intercept)``."""

    slope: float
    intercept: float

    def __call__(self, log_odds: Float) -> Float:
        return expit(self.slope * log_odds + self.intercept)


class PlattScaling(OneVsRest):
    """Fit a sigmoid of the log odds to smoothed labels, for each class against the rest.

    ``expit(a * s + b)``, where s is the difference of the two logits, has the lowest log loss with respect to
    the targets ``(n1 + 1) / (n1 + 2)`` for the n1 rows of the class and ``1 / (n0 + 2)`` for the n0 others,
    so that a and b are finite even if s separates the two. Weights are treated as numbers of rows. More than two
    classes have one sigmoid each, of the log odds against the rest, and the rows are normalised to sum to one.

    Args:
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        curves_: The sigmoids, with `slope` and `intercept`.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, 3.0], [0.0, 3.0], [0.0, -3.0], [0.0, -3.0]])
        >>> calibrator = PlattScaling(safeguard=False).fit(logits, [1, 1, 0, 1])
        >>> calibrator.predict_proba([[0.0, 3.0]]).round(3)
        array([[0.2, 0.8]])

    Reference:
        Platt, Probabilistic outputs for support vector machines, 1999.
    """

    curves_: tuple[Sigmoid, ...]

    def _fit_binary(self, log_odds: Float, is_class: NDArray[np.bool_], weight: Float) -> Curve:
        with_class, without = weight[is_class].sum(), weight[~is_class].sum()
        target = np.where(is_class, (with_class + 1) / (with_class + 2), 1 / (without + 2))
        features = np.column_stack([log_odds, np.ones(len(log_odds))])
        slope, intercept = logistic_fit(features, target, weight)[0]
        return Sigmoid(float(slope), float(intercept))

    def formula(self, ops: Operations) -> Head:
        """``expit(a * s + b)`` of the log odds s, the rows normalised to sum to one."""
        slope, intercept = (ops.constant(self._of_curves(name)) for name in ("slope", "intercept"))
        return self._mixed_formula(
            lambda z: ops.one_vs_rest(ops.sigmoid(slope * ops.log_odds(z) + intercept)), ops
        )
