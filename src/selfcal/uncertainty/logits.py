"""Scores of logits, which the softmax has not yet compared with one another."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.uncertainty._base import LogitScore


class MaximumLogit(LogitScore):
    """Minus the largest logit, ``- max z``: low where no class has evidence.

    >>> MaximumLogit().score([[3.0, 1.0], [0.5, 0.0]])
    array([-3. , -0.5])

    Reference: Hendrycks et al., Scaling Out-of-Distribution Detection for Real-World Settings, ICML 2022.
    """

    def _doubt(self, z: Float) -> Float:
        return -z.max(axis=1)


class PNormLogit(LogitScore):
    """Minus the largest centred logit in units of their p-norm, ``- max (z - m) / ||z - m||_p`` with m the mean of z.

    The size of the logits, which overconfident networks get wrong, is divided out.

    Args:
        p: The exponent of the norm; the reference selects it on held-out rows.

    >>> PNormLogit(p=1).score([[3.0, 1.0, -4.0], [0.0, 0.0, 0.0]])
    array([-0.375,  0.   ])

    Reference: Cattelan, Silva, How to Fix a Broken Confidence Estimator: Evaluating Post-hoc Methods for Selective
    Classification with Deep Neural Networks, UAI 2024.
    """

    def __init__(self, p: float = 5.0) -> None:
        self.p = p

    def _check_settings(self) -> None:
        checks.in_range("p", self.p, 1.0)

    def _doubt(self, z: Float) -> Float:
        centred = z - z.mean(axis=1, keepdims=True)
        largest = np.abs(centred).max(axis=1)
        unit = centred / np.where(largest > 0, largest, 1.0)[:, None]  # powers of it do not overflow
        norm = (np.abs(unit) ** self.p).sum(axis=1) ** (1 / self.p)
        return 0.0 - unit.max(axis=1) / np.maximum(norm, 1.0)


class Energy(LogitScore):
    """The free energy, ``- T log sum exp(z / T)``: minus the logarithm of the evidence for all classes together.

    Args:
        temperature: T.

    >>> Energy().score([[3.0, 3.0], [0.0, 0.0]]).round(4)
    array([-3.6931, -0.6931])

    Reference: Liu, Wang, Owens, Li, Energy-based Out-of-distribution Detection, NeurIPS 2020.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        self.temperature = temperature

    def _check_settings(self) -> None:
        checks.in_range("temperature", self.temperature, 0.0, open_low=True)

    def _doubt(self, z: Float) -> Float:
        energy: Float = -self.temperature * logsumexp(z / self.temperature, axis=1)
        return energy
