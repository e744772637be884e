"""Ensemble temperature scaling: a mixture of the scaled, the unscaled and the uniform distribution."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import softmax
from selfcal.calibrators._safeguard import Safeguarded
from selfcal.calibrators.formula import Head, Operations
from selfcal.calibrators.temperature import TemperatureScaling


class EnsembleTemperatureScaling(Safeguarded):
    """Mix the temperature-scaled probabilities with the network's own and with equal ones.

    ``w1 * softmax(z / T) + w2 * softmax(z) + w3 / k`` with weights that are not negative and sum to one. T is
    that of temperature scaling; then the weights have the lowest log loss, a convex problem. The choice
    of class never changes.

    Args:
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        scaling_: The fitted temperature scaling.
        weights_: The weights w1, w2 and w3.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[9.0, 0.0], [9.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> calibrator = EnsembleTemperatureScaling(safeguard=False).fit(logits, [0, 0, 0, 1])
        >>> calibrator.confidence(logits[1:3]).round(3)
        array([0.987, 0.618])

    Reference:
        Zhang, Kailkhura and Han, Mix-n-match: ensemble and compositional methods for uncertainty calibration
        in deep learning, 2020.
    """

    keeps_choice = True

    scaling_: TemperatureScaling
    weights_: Float

    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        self.scaling_ = TemperatureScaling().fit(z, codes, weight)
        rows = np.arange(len(z)), codes
        of_true = np.column_stack([part[rows] for part in self._parts(z)])
        self.weights_ = _mixture_weights(of_true, weight / weight.sum())

    def _map(self, z: Float) -> Float:
        return sum(w * part for w, part in zip(self.weights_, self._parts(z), strict=True))

    def formula(self, ops: Operations) -> Head:
        """``w1 * softmax(z / T) + w2 * softmax(z) + w3 / k``."""
        scaled, own, even = self.weights_.tolist()
        temperature, uniform = self.scaling_.temperature_, even / self.n_classes_
        return self._mixed_formula(
            lambda z: scaled * ops.softmax(z / temperature) + own * ops.softmax(z) + uniform, ops
        )

    def _parts(self, z: Float) -> tuple[Float, Float, Float]:
        return self.scaling_.predict_proba(z), softmax(z), np.full(z.shape, 1 / z.shape[1])


def _mixture_weights(of_true: Float, normalized: Float) -> Float:
    """The weights of the highest likelihood.

    The lowest point of ``sum(w) - mean(log(of_true @ w))`` over w >= 0 has sum one, so that the sum
    needs no constraint.
    """

    def objective(w: Float) -> tuple[float, Float]:
        mixed = of_true @ w
        return float(w.sum() - normalized @ np.log(mixed)), 1 - of_true.T @ (normalized / mixed)

    options = {"maxiter": 500, "ftol": 1e-15, "gtol": 1e-10}
    bounds = [
        (0.0, None),
        (0.0, None),
        (1e-12, None),
    ]  # a positive uniform part, so that no probability is zero
    best = minimize(objective, [0.8, 0.1, 0.1], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return best.x / best.x.sum()
