"""Shape-restricted polynomial regression of each class against the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.special import bdtrc, expit

from selfcal._support import checks
from selfcal._support.binning import row_blocks
from selfcal._support.checks import Float, Int
from selfcal.calibrators._one_vs_rest import Curve, OneVsRest
from selfcal.calibrators.histogram import smoothed
from selfcal.calibrators.temperature import TemperatureScaling


class PolynomialCalibration(OneVsRest):
    """An increasing polynomial from [0, 1] to [0, 1] of least squared error.

    In the Bernstein basis of degree d, ``f(u) = sum_j beta_j C(d, j) u^j (1 - u)^(d - j)``, and
    ``0 <= beta_0 <= ... <= beta_d <= 1`` makes f rise and stay in [0, 1]. Least squares under these
    constraints is the search for the point of a simplex that is nearest to the labels, which one non-negative
    least-squares problem of d + 2 rows solves exactly. (The paper allows every increasing polynomial, with
    semidefinite constraints; each of them is the limit of these as d grows.) The score u is the probability
    after temperature scaling: the rows of an over-confident network would all be at the ends of the interval.
    For n rows and k classes the prediction is ``(n f + 1/k) / (n + 1)``, as if one more row were divided equally
    between the classes, so that no probability is zero. Each class has its polynomial, and the rows are normalised;
    two classes use that of the second.

    Args:
        degree: Degree of the polynomial.
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        temperature_: The temperature the logits are divided by first.
        curves_: For each class the Bernstein coefficients `beta`.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, -9.0]] * 8 + [[0.0, 9.0]] * 8)
        >>> y = [0] * 7 + [1] * 2 + [0] + [1] * 6
        >>> calibrator = PolynomialCalibration(degree=2, safeguard=False).fit(logits, y)
        >>> calibrator.predict_proba([[0.0, -9.0], [0.0, 0.0], [0.0, 9.0]])[:, 1].round(3)
        array([0.147, 0.5  , 0.853])

    Reference:
        Wang, Li and Dang, Calibrating classification probabilities with shape-restricted polynomial
        regression, 2019.
    """

    temperature_: float
    curves_: tuple[Polynomial, ...]

    def __init__(self, degree: int = 6, *, safeguard: bool = True) -> None:
        super().__init__(safeguard=safeguard)
        self.degree = degree

    def _check_settings(self) -> None:
        super()._check_settings()
        checks.positive_int("degree", self.degree)

    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        self.temperature_ = TemperatureScaling().fit(z, codes, weight).temperature_
        super()._fit(z / self.temperature_, codes, weight)

    def _map(self, z: Float) -> Float:
        return super()._map(z / self.temperature_)

    def _fit_binary(self, log_odds: Float, is_class: NDArray[np.bool_], weight: Float) -> Curve:
        total = float(weight.sum())
        beta = rising_coefficients(expit(log_odds), is_class, weight / total, self.degree)
        return Polynomial(smoothed(beta, total, self.n_classes_))


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A curve that is a polynomial of the probability."""

    beta: Float

    def __call__(self, log_odds: Float) -> Float:
        u = expit(log_odds)
        rise = np.diff(self.beta, prepend=0.0)
        return np.concatenate(
            [tails(u[rows], len(rise) - 1) @ rise for rows in row_blocks(len(u), len(rise))]
        )


def rising_coefficients(u: Float, y: NDArray[np.bool_], weight: Float, degree: int) -> Float:
    """The Bernstein coefficients, increasing within [0, 1], of least weighted squared error.

    With tails T_j, the sums of the basis from j on, and increments v_j of the coefficients (and one more, v_{d+1},
    of the constant 0, to make the sum one), the residual is ``sum_j v_j (T_j - y)``. Of the non-negative v,
    the minimiser of ``|M v|^2 + (sum v - 1)^2`` has the direction of the best one on the simplex, since along any ray
    the least value rises with the residual at sum one.
    """
    reduced = np.zeros((0, degree + 2))
    for rows in row_blocks(len(u), degree + 2):
        columns = np.column_stack([tails(u[rows], degree), np.zeros(len(u[rows]))]) - y[rows, None]
        _, reduced = np.linalg.qr(np.vstack([reduced, columns * np.sqrt(weight[rows])[:, None]]))
    target = np.append(np.zeros(len(reduced)), 1.0)
    increments, _ = nnls(np.vstack([reduced, np.ones(degree + 2)]), target)
    return np.minimum(np.cumsum(increments[:-1]) / increments.sum(), 1.0)


def tails(u: Float, degree: int) -> Float:
    """Return P(at least j successes in `degree` trials of probability u) for each j, the cumulative basis."""
    return np.column_stack([np.ones(len(u)), bdtrc(np.arange(degree), degree, u[:, None])])
