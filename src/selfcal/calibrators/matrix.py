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

    def __init__(self, l2: float = 1e-4, odir: float = 0.5) -> None:
        self.l2 = l2
        self.odir = odir

    def _check_settings(self) -> None:
        checks.in_range("l2", self.l2, 0.0)
        checks.in_range("odir", self.odir, 0.0)

    def _penalty(self, n_classes: int) -> Float:
        off_diagonal = 1 - np.eye(n_classes + 1, n_classes)
        return self.l2 + self.odir * off_diagonal


class MatrixScaling(RegularisedMatrix):
    """Map the logits by a matrix and a bias, at the lowest penalised log loss.

    ``softmax(z @ W + b)`` minimises the convex ``log loss + odir * (sum of squares of b and of W off the
    diagonal) + l2 * (sum of squares of b and of W - I)``. Without a penalty, 100 classes have 10,100 free
    parameters and overfit 5,000 rows completely. The default suits some hundred rows per class; with
    100 classes and 25 rows of each it had a higher log loss on new rows than temperature scaling.

    Args:
        l2: Strength of the penalty on the distance from the identity.
        odir: Off-diagonal and intercept regularisation, which leaves the diagonal free: very strong, it
            makes a vector scaling without bias. The paper's lambda is ``k * (k - 1)`` times, its mu ``k``
            times this, for k classes.

    Attributes:
        parameters_: The matrix W, one column for each class's new logit, and below it the biases b.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
        >>> calibrator = MatrixScaling(odir=0.01).fit(logits, [0, 1, 1, 1, 0])
        >>> calibrator.predict_proba([[1.0, 0.0], [0.0, 1.0]]).round(3)
        array([[0.5  , 0.5  ],
               [0.333, 0.667]])

    Reference:
        Guo, Pleiss, Sun and Weinberger, On calibration of modern neural networks, 2017; the penalty: Kull,
        Perello-Nieto, Kängsepp, Silva Filho, Song and Flach, Beyond temperature scaling, 2019.
    """

    def _features(self, z: Float) -> Float:
        return z

    def formula(self, ops: Operations) -> Head:
        """``softmax(z @ W + b)``."""
        matrix, bias = ops.constant(self.parameters_[:-1]), ops.constant(self.parameters_[-1])
        return lambda z: ops.softmax(z @ matrix + bias)
