"""Scores of probabilities: the model's own opinion of its prediction."""

from __future__ import annotations

import numpy as np
from scipy.special import entr

from selfcal._support.checks import Float
from selfcal.uncertainty._base import ProbabilityScore


class MaximumProbability(ProbabilityScore):
    """One minus the largest probability, ``1 - max p``: the expected error of a calibrated model.

    >>> MaximumProbability().score([[0.5, 0.25, 0.25]])
    array([0.5])

    Reference: Hendrycks, Gimpel, A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural
    Networks, ICLR 2017.
    """

    def _doubt(self, probs: Float) -> Float:
        return 1.0 - probs.max(axis=1)


class Margin(ProbabilityScore):
    """One minus the gap of the two largest probabilities, ``1 - (p_1 - p_2)``.

    >>> Margin().score([[0.5, 0.25, 0.25]])
    array([0.75])

    Reference: Scheffer, Decomain, Wrobel, Active Hidden Markov Models for Information Extraction, IDA 2001.
    """

    def _doubt(self, probs: Float) -> Float:
        largest = np.partition(probs, -2, axis=1)[:, -2:]
        return 1.0 - (largest[:, 1] - largest[:, 0])


class Entropy(ProbabilityScore):
    """The entropy, ``- sum p log p``, in nats.

    >>> Entropy().score([[0.5, 0.5], [1.0, 0.0]]).round(4)
    array([0.6931, 0.    ])

    Reference: Shannon, A Mathematical Theory of Communication, Bell Syst. Tech. J. 27 (1948).
    """

    def _doubt(self, probs: Float) -> Float:
        entropy: Float = entr(probs).sum(axis=1)
        return entropy
