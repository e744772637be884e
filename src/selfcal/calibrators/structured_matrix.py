"""Structured matrix scaling: a matrix whose parts are penalised by how many numbers they have."""

from __future__ import annotations

import numpy as np

from selfcal._support.checks import Float, Int
from selfcal.calibrators._multinomial import Full, LinearLogits
from selfcal.calibrators._share import safe_temperature
from selfcal.calibrators.dirichlet import log_probabilities
from selfcal.calibrators.formula import Head, Operations


class StructuredMatrixScaling(LinearLogits):
    """Map the log probabilities by a matrix and a bias that stay as near to temperature scaling as few rows demand.

    With ``x = log softmax(z / T)``, T the temperature of the lowest log loss, n rows and k classes,
    ``softmax(x + v * x + x @ M + b)``, M zero on the diagonal, minimises the convex
    ``log loss + k / n * (sum(v**2) + sum(b**2)) + k (k - 1) / n * sum(M**2)``: the more numbers a part has, the
    stronger its penalty, and the more rows, the weaker are all.

    Args:
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        temperature_: The temperature T of the first step.
        parameters_: The matrix ``I + diag(v) + M``, one column for each class's new logit, and below it the biases b.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        Classes 1 and 2 are often confused, and the network prefers 1:

        >>> import numpy as np
        >>> logits = np.array([[4.0, 0.0, 0.0]] * 40 + [[0.0, 3.0, 2.0]] * 40)
        >>> calibrator = StructuredMatrixScaling().fit(logits, [0] * 40 + [1] * 10 + [2] * 30)
        >>> calibrator.predict([[4.0, 0.0, 0.0], [0.0, 3.0, 2.0]])
        array([0, 2])

    Reference:
        Berta, Holzmüller, Jordan and Bach, Structured matrix scaling for multi-class calibration, 2026.
    """

    linear = Full()

    temperature_: float

    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        self.temperature_ = safe_temperature(z, codes, weight)
        super()._fit(z, codes, weight)

    def _features(self, z: Float) -> Float:
        return log_probabilities(z / self.temperature_)

    def _penalty(self, n_classes: int, n_rows: float) -> Float:
        penalty = np.full((n_classes + 1, n_classes), n_classes * (n_classes - 1) / n_rows)
        penalty[-1] = n_classes / n_rows
        np.fill_diagonal(penalty, n_classes / n_rows)
        return penalty

    def formula(self, ops: Operations) -> Head:
        """``softmax(log_softmax(z / T) @ W + b)``."""
        matrix, bias = ops.constant(self.parameters_[:-1]), ops.constant(self.parameters_[-1])
        return self._mixed_formula(
            lambda z: ops.softmax(ops.log_softmax(z / self.temperature_) @ matrix + bias), ops
        )
