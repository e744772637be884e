"""Dirichlet calibration: a linear map of the log probabilities."""

from __future__ import annotations

import numpy as np

from selfcal._support.checks import Float
from selfcal.calibrators.formula import Head, Operations
from selfcal.calibrators.matrix import RegularisedMatrix


class DirichletCalibration(RegularisedMatrix):
    """Map the log probabilities by a matrix and a bias, at the lowest penalised log loss.

    ``softmax(log_softmax(z) @ W + b)`` is the posterior when the network's probabilities have a Dirichlet
    distribution in each class. It is matrix scaling of logits shifted to ``logsumexp(z) = 0``, with the same
    penalties, and the same for logits that differ by a constant in each row.

    Args:
        l2: Strength of the penalty on the distance from temperature scaling, as in `MatrixScaling`.
        odir: Off-diagonal and intercept regularisation, as in `MatrixScaling`.
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        parameters_: The matrix W, one column for each class's new logit, and below it the biases b.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
        >>> calibrator = DirichletCalibration(l2=1e-4, odir=0.01, safeguard=False).fit(logits, [0, 1, 1, 1, 0])
        >>> calibrator.predict_proba([[1.0, 0.0], [7.0, 8.0]]).round(3)
        array([[0.5  , 0.5  ],
               [0.333, 0.667]])

    Reference:
        Kull, Perello-Nieto, Kängsepp, Silva Filho, Song and Flach, Beyond temperature scaling: obtaining
        well-calibrated multiclass probabilities with Dirichlet calibration, 2019.
    """

    def _features(self, z: Float) -> Float:
        return log_probabilities(z)

    def formula(self, ops: Operations) -> Head:
        """``softmax(log_softmax(z) @ W + b)``."""
        matrix, bias = ops.constant(self.parameters_[:-1]), ops.constant(self.parameters_[-1])
        return self._mixed_formula(lambda z: ops.softmax(ops.log_softmax(z) @ matrix + bias), ops)


def log_probabilities(z: Float) -> Float:
    """Return the logarithms of the softmax, finite for logits of any size."""
    below = z - z.max(axis=1, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=1, keepdims=True))
