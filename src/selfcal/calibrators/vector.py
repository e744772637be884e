"""Vector scaling: a factor and a bias for each class."""

from __future__ import annotations

import numpy as np

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.calibrators._multinomial import Diagonal, LinearLogits
from selfcal.calibrators.formula import Head, Operations


class VectorScaling(LinearLogits):
    """Multiply each logit by its class's factor and add its bias, at the lowest penalised log loss.

    For n rows of k classes and the temperature T of `TemperatureScaling`, ``softmax(w * z / T + b)`` minimises
    ``log loss + k / n * (sum((w - 1)**2) + sum(b**2))``, which is convex. The penalty of Berta et al. fades as rows
    are added; without one, 500 rows of 10 classes have a higher log loss on new rows than temperature scaling.

    Args:
        l2: None for this penalty; or the strength of one on the distance from the identity, in which T = 1 and l2
            replaces k / n: 0 as published by Guo et al.
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        parameters_: The factors w / T and the biases b, one row each.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
        >>> calibrator = VectorScaling(l2=0.0, safeguard=False).fit(logits, [0, 1, 1, 1, 0])
        >>> calibrator.predict_proba([[1.0, 0.0], [0.0, 1.0]]).round(4)
        array([[0.5   , 0.5   ],
               [0.3333, 0.6667]])

    Reference:
        Guo, Pleiss, Sun and Weinberger, On calibration of modern neural networks, 2017; the penalty: Berta,
        Holzmüller, Jordan and Bach, Structured matrix scaling for multi-class calibration, 2026.
    """

    linear = Diagonal()

    def __init__(self, l2: float | None = None, *, safeguard: bool = True) -> None:
        super().__init__(safeguard=safeguard)
        self.l2 = l2

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.l2 is not None:
            checks.in_range("l2", self.l2, 0.0)

    def _towards_temperature(self) -> bool:
        return self.l2 is None

    def _penalty(self, n_classes: int, n_rows: float) -> Float:
        return np.full((2, n_classes), n_classes / n_rows if self.l2 is None else self.l2)

    def _features(self, z: Float) -> Float:
        return z

    def formula(self, ops: Operations) -> Head:
        """``softmax(w * z / T + b)``."""
        factor, bias = ops.constant(self.parameters_)
        return self._mixed_formula(lambda z: ops.softmax(z * factor + bias), ops)
