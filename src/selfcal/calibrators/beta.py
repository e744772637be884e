"""Beta calibration: a curve with a slope at either end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.calibrators._logistic import logistic_fit
from selfcal.calibrators._one_vs_rest import Curve, OneVsRest
from selfcal.calibrators.formula import Head, Operations


@dataclass(frozen=True)
class BetaCurve:
    """``expit(a * log(p) - b * log(1 - p) + c)`` of the probability p."""

    a: float
    b: float
    c: float

    def __call__(self, log_odds: Float) -> Float:
        log_p, against = _columns(log_odds)
        return expit(self.a * log_p + self.b * against + self.c)


class BetaCalibration(OneVsRest):
    """Fit ``expit(a * log(p) - b * log(1 - p) + c)`` with a, b >= 0, for each class against the rest.

    This is the posterior when p has a beta distribution in either class. With ``a = b = 1, c = 0`` it is the
    identity, which is what a class keeps that no row, or every row, belongs to. More than two classes have
    one curve each, of their softmax probability, and the rows are normalised to sum to one.

    Args:
        parameters: ``"abm"`` for all three; ``"am"`` for ``a = b``, a sigmoid of the log odds; ``"ab"`` for
            a curve through (1/2, 1/2).
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        curves_: The curves, with `a`, `b` and `c`.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, 3.0], [0.0, 3.0], [0.0, 3.0], [0.0, -3.0], [0.0, -3.0]])
        >>> calibrator = BetaCalibration("am", safeguard=False).fit(logits, [1, 1, 0, 0, 1])
        >>> calibrator.predict_proba([[0.0, 3.0]]).round(3)
        array([[0.333, 0.667]])

    Reference:
        Kull, Silva Filho and Flach, Beta calibration: a well-founded and easily implemented improvement on
        logistic calibration for binary classifiers, 2017.
    """

    curves_: tuple[BetaCurve, ...]

    def __init__(self, parameters: str = "abm", *, safeguard: bool = True) -> None:
        super().__init__(safeguard=safeguard)
        self.parameters = parameters

    def _check_settings(self) -> None:
        super()._check_settings()
        checks.one_of("parameters", self.parameters, ("abm", "am", "ab"))

    def _fit_binary(self, log_odds: Float, is_class: NDArray[np.bool_], weight: Float) -> Curve:
        if is_class.all() or not is_class.any():
            return BetaCurve(1.0, 1.0, 0.0)
        log_p, against = _columns(log_odds)
        one, none = np.ones((len(log_p), 1)), np.ones((len(log_p), 0))
        if self.parameters == "am":
            slopes, fixed = log_odds[:, None], one
        elif self.parameters == "ab":
            slopes, fixed = np.column_stack([log_p + np.log(2), against - np.log(2)]), none
        else:
            slopes, fixed = np.column_stack([log_p, against]), one
        found = _rising_fit(slopes, fixed, is_class.astype(np.float64), weight)
        a, b = (found[0], found[0]) if self.parameters == "am" else found[:2]
        c = (a - b) * np.log(2) if self.parameters == "ab" else found[-1]
        return BetaCurve(float(a), float(b), float(c))

    def formula(self, ops: Operations) -> Head:
        """``expit(a * log(p) - b * log(1 - p) + c)``, the rows normalised to sum to one."""
        a, b, c = (ops.constant(self._of_curves(name)) for name in "abc")

        def head(z: Any) -> Any:
            odds = ops.log_odds(z)
            log_p, against = -ops.softplus(-odds), ops.softplus(odds)
            return ops.one_vs_rest(ops.sigmoid(a * log_p + b * against + c))

        return self._mixed_formula(head, ops)


def _columns(log_odds: Float) -> tuple[Float, Float]:
    """``log(p)`` and ``-log(1 - p)``."""
    return -np.logaddexp(0, -log_odds), np.logaddexp(0, log_odds)


def _rising_fit(slopes: Float, fixed: Float, target: Float, weight: Float) -> Float:
    """Logistic regression whose coefficients of `slopes` are not negative: the best of those with some at zero."""
    n_slopes, best, lowest = slopes.shape[1], np.zeros(slopes.shape[1] + fixed.shape[1]), np.inf
    for kept in ([0, 1], [0], [1], []) if n_slopes == 2 else ([0], []):
        columns = [*kept, *range(n_slopes, len(best))]
        if not columns:
            return best if lowest < np.inf else np.zeros(len(best))
        found, loss = logistic_fit(np.column_stack([slopes, fixed])[:, columns], target, weight)
        if (found[: len(kept)] >= 0).all() and loss < lowest:
            lowest = loss
            best = np.zeros(len(best))
            best[columns] = found
            if len(kept) == n_slopes:
                break
    return best
