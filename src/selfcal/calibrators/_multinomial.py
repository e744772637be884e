"""The log loss of linear maps of the logits, and its minimisation."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from scipy.optimize import minimize

from selfcal._support.binning import row_blocks
from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import SMALLEST, softmax
from selfcal.calibrators._safeguard import Safeguarded
from selfcal.calibrators._share import safe_temperature
from selfcal.calibrators.temperature import best_log_beta

PILOT_ROWS = 4096
"""Rows on which the curvature is estimated; it preconditions the optimisation and need not be exact."""
MAX_BLOCK_ELEMENTS = 1 << 22
"""Elements in all blocks of the curvature; beyond, only their diagonals are used."""

MAX_EXACT_PARAMETERS = 1 << 18
"""Up to this many parameters the optimisation is exact; beyond (a matrix for 500 classes), it ends after 20 steps."""


class Linear(ABC):
    """A linear map of k features by parameters with one column per class, the bias last."""

    @abstractmethod
    def scaling(self, n_classes: int, factor: float) -> Float:
        """The parameters that multiply all features by `factor`."""

    @abstractmethod
    def apply(self, parameters: Float, x: Float) -> Float:
        """The logits."""

    @abstractmethod
    def pull_back(self, slope: Float, x: Float) -> Float:
        """Sum over rows of the slope in the logits times their derivative in the parameters."""

    @abstractmethod
    def seen_by(self, c: int, x: Float) -> Float:
        """The features that the logit of class c depends on."""


class Diagonal(Linear):
    """One factor and one bias for each class: parameters of shape (2, k)."""

    def scaling(self, n_classes: int, factor: float) -> Float:
        return np.vstack([np.full(n_classes, factor), np.zeros(n_classes)])

    def apply(self, parameters: Float, x: Float) -> Float:
        return x * parameters[0] + parameters[1]

    def pull_back(self, slope: Float, x: Float) -> Float:
        return np.vstack([np.einsum("ij,ij->j", slope, x), slope.sum(axis=0)])

    def seen_by(self, c: int, x: Float) -> Float:
        return x[:, c : c + 1]


class Full(Linear):
    """A matrix and a bias: parameters of shape (k + 1, k)."""

    def scaling(self, n_classes: int, factor: float) -> Float:
        return np.vstack([factor * np.eye(n_classes), np.zeros(n_classes)])

    def apply(self, parameters: Float, x: Float) -> Float:
        return x @ parameters[:-1] + parameters[-1]

    def pull_back(self, slope: Float, x: Float) -> Float:
        return np.vstack([x.T @ slope, slope.sum(axis=0)])

    def seen_by(self, c: int, x: Float) -> Float:
        return x


class LinearLogits(Safeguarded):
    """The softmax of a linear map with the lowest penalised log loss; subclasses define the map and the penalty.

    The penalty is on the squared distance from the identity, or, where `_towards_temperature` says so, on that of the
    map of the features after temperature scaling.
    """

    doubt = 0.0  # the penalty, which falls with the number of rows, is doubt enough

    linear: Linear

    parameters_: Float

    @abstractmethod
    def _penalty(self, n_classes: int, n_rows: float) -> Float:
        """Return the penalty on each parameter."""

    @abstractmethod
    def _features(self, z: Float) -> Float:
        """Return the features that the map is linear in."""

    def _towards_temperature(self) -> bool:
        """Whether the penalty is zero at temperature scaling, and not at the identity."""
        return False

    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        x, total = self._features(z), float(weight.sum())
        scale = 1.0
        if self._towards_temperature():
            scale = 1 / safe_temperature(x, codes, weight)
        found = lowest(self.linear, scale * x, codes, weight / total, self._penalty(z.shape[1], total))
        found[:-1] *= scale
        self.parameters_ = found

    def _map(self, z: Float) -> Float:
        return softmax(self.linear.apply(self.parameters_, self._features(z)))


def lowest(linear: Linear, x: Float, codes: Int, weight: Float, penalty: Float) -> Float:
    """The parameters of the lowest weighted mean log loss plus penalty, from the best temperature on.

    L-BFGS is preconditioned such that each class has unit curvature at the start: on 100 classes that takes a fifth
    of the passes over the data.
    """
    identity = linear.scaling(x.shape[1], 1.0)
    start = linear.scaling(x.shape[1], float(np.exp(best_log_beta(x, codes, weight))))
    units = _units(linear, start, x, weight, penalty)

    def parameters(step: Float) -> Float:
        step = step.reshape(start.shape)
        return start + (
            units * step if units.ndim == 2 else np.einsum("cij,ic->jc", units, step, optimize=True)
        )

    def objective(step: Float) -> tuple[float, Float]:
        at = parameters(step)
        loss, slope = _loss_and_slope(linear, at, x, codes, weight)
        slope += 2 * penalty * (at - identity)
        slope = units * slope if units.ndim == 2 else np.einsum("cij,jc->ic", units, slope, optimize=True)
        return loss + float(np.sum(penalty * (at - identity) ** 2)), slope.ravel()

    exact = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-8, "maxcor": 20}
    rough = {"maxiter": 20, "ftol": 1e-6, "gtol": 1e-6, "maxcor": 5}  # here the optimiser dominates the cost
    options = rough if start.size > MAX_EXACT_PARAMETERS else exact
    best = minimize(objective, np.zeros(start.size), jac=True, method="L-BFGS-B", options=options)
    return parameters(best.x)


def _units(linear: Linear, start: Float, x: Float, weight: Float, penalty: Float) -> Float:
    """For each class the inverse Cholesky factor of its block of the curvature, or its diagonal alone."""
    pilot = slice(None, None, max(1, len(x) // PILOT_ROWS))
    x, weight = x[pilot], weight[pilot] / weight[pilot].sum()
    p = softmax(linear.apply(start, x))
    bend = weight[:, None] * p * (1 - p)
    diagonal = linear.pull_back(bend, x**2) + 2 * penalty
    ridge = 1e-6 * diagonal.sum(axis=0) + 1e-12 * diagonal.max() + SMALLEST
    size, n_classes = start.shape
    if n_classes * size**2 > MAX_BLOCK_ELEMENTS:
        return 1 / np.sqrt(diagonal + ridge)
    blocks = np.empty((n_classes, size, size))
    for c in range(n_classes):
        seen = np.column_stack([linear.seen_by(c, x), np.ones(len(x))])
        blocks[c] = (seen * bend[:, c : c + 1]).T @ seen + np.diag(2 * penalty[:, c] + ridge[c])
    try:
        return np.linalg.inv(np.linalg.cholesky(blocks))
    except np.linalg.LinAlgError:  # classes that hardly differ, or numbers out of range
        return 1 / np.sqrt(diagonal + ridge)


def _loss_and_slope(
    linear: Linear, parameters: Float, x: Float, codes: Int, weight: Float
) -> tuple[float, Float]:
    """The log loss and its slope, in blocks that stay in the processor's cache."""
    loss, slope = 0.0, np.zeros_like(parameters)
    for rows in row_blocks(*x.shape):
        z = linear.apply(parameters, x[rows])
        z -= z.max(axis=1, keepdims=True)
        true = np.arange(len(z)), codes[rows]
        of_true = z[true]
        np.exp(z, out=z)
        total = z.sum(axis=1)
        loss += float(weight[rows] @ (np.log(total) - of_true))
        z *= (weight[rows] / total)[:, None]
        z[true] -= weight[rows]
        slope += linear.pull_back(z, x[rows])
    return loss, slope
