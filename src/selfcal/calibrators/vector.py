"""Vector scaling: a factor and a bias for each class."""

from __future__ import annotations

import numpy as np

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.calibrators._multinomial import Diagonal, LinearLogits
from selfcal.calibrators.formula import Head, Operations


class VectorScaling(LinearLogits):
    """Multiply each logit by its class's factor and add its bias, at the lowest log loss.

    ``softmax(w * z + b)`` minimises ``log loss + l2 * (sum((w - 1)**2) + sum(b**2))``, which is convex.

    Args:
        l2: Strength of the penalty on the distance from the identity; 0 as published.

    Attributes:
        parameters_: The factors w and the biases b, one row each.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
        >>> calibrator = VectorScaling().fit(logits, [0, 1, 1, 1, 0])
        >>> calibrator.predict_proba([[1.0, 0.0], [0.0, 1.0]]).round(4)
        array([[0.5   , 0.5   ],
               [0.3333, 0.6667]])

    Reference:
        Guo, Pleiss, Sun and Weinberger, On calibration of modern neural networks, 2017.
    """

    linear = Diagonal()

    def __init__(self, l2: float = 0.0) -> None:
        self.l2 = l2

    def _check_settings(self) -> None:
        checks.in_range("l2", self.l2, 0.0)

    def _penalty(self, n_classes: int) -> Float:
        return np.full((2, n_classes), self.l2)

    def _features(self, z: Float) -> Float:
        return z

    def formula(self, ops: Operations) -> Head:
        """``softmax(w * z + b)``."""
        factor, bias = ops.constant(self.parameters_)
        return lambda z: ops.softmax(z * factor + bias)
