"""Matrix scaling: a linear map of all logits."""

from __future__ import annotations

import numpy as np

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.calibrators._multinomial import Full, LinearLogits
from selfcal.calibrators.formula import Head, Operations


class RegularisedMatrix(LinearLogits):
    """The common penalty of matrix scaling and Dirichlet calibration."""

    linear = Full()

    def __init__(self, l2: float | None = None, odir: float | None = None, *, safeguard: bool = True) -> None:
        super().__init__(safeguard=safeguard)
        self.l2 = l2
        self.odir = odir

    def _check_settings(self) -> None:
        super()._check_settings()
        for name in ("l2", "odir"):
            if getattr(self, name) is not None:
                checks.in_range(name, getattr(self, name), 0.0)

    def _towards_temperature(self) -> bool:
        return self.l2 is None

    def _penalty(self, n_classes: int, n_rows: float) -> Float:
        off_diagonal = 1 - np.eye(n_classes + 1, n_classes)
        l2 = n_classes / n_rows if self.l2 is None else self.l2
        odir = n_classes * (n_classes - 1) / n_rows if self.odir is None else self.odir
        return l2 + odir * off_diagonal


class MatrixScaling(RegularisedMatrix):
    """Map the logits by a matrix and a bias, at the lowest penalised log loss.

    With the temperature T of `TemperatureScaling`, ``softmax(z @ W / T + b)`` minimises the convex ``log loss +
    odir * (sum of squares of b and of W off the diagonal) + l2 * (sum of squares of b and of W - I)``. Without a
    penalty, 100 classes have 10,100 free parameters and overfit 5,000 rows completely.

    Args:
        l2: Strength of the penalty on the distance from temperature scaling: None for k / n, with n rows and k
            classes. A number is that of a penalty on the distance from the identity, with T = 1.
        odir: Off-diagonal and intercept regularisation, which leaves the diagonal free: very strong, it
            makes a vector scaling without bias. None for k (k - 1) / n. The paper's lambda is ``k * (k - 1)``
            times, its mu ``k`` times this.
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        parameters_: The matrix W / T, one column for each class's new logit, and below it the biases b.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
        >>> calibrator = MatrixScaling(l2=1e-4, odir=0.01, safeguard=False).fit(logits, [0, 1, 1, 1, 0])
        >>> calibrator.predict_proba([[1.0, 0.0], [0.0, 1.0]]).round(3)
        array([[0.5  , 0.5  ],
               [0.333, 0.667]])

    Reference:
        Guo, Pleiss, Sun and Weinberger, On calibration of modern neural networks, 2017; the penalty: Kull,
        Perello-Nieto, Kängsepp, Silva Filho, Song and Flach, Beyond temperature scaling, 2019; its strength: Berta,
        Holzmüller, Jordan and Bach, Structured matrix scaling for multi-class calibration, 2026.
    """

    def _features(self, z: Float) -> Float:
        return z

    def formula(self, ops: Operations) -> Head:
        """``softmax(z @ W / T + b)``."""
        matrix, bias = ops.constant(self.parameters_[:-1]), ops.constant(self.parameters_[-1])
        return self._mixed_formula(lambda z: ops.softmax(z @ matrix + bias), ops)
