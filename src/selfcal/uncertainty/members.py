"""Scores of several answers: how much the members of an ensemble disagree."""

from __future__ import annotations

import numpy as np
from scipy.special import entr

from selfcal._support.checks import Float, Int
from selfcal.uncertainty._base import MemberScore


class MutualInformation(MemberScore):
    """The entropy of the mean minus the mean entropy, ``H(mean p) - mean H(p)``: doubt that more data would remove.

    >>> MutualInformation().score([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]]).round(4)
    array([0.6931, 0.    ])

    Reference: Houlsby, Huszár, Ghahramani, Lengyel, Bayesian Active Learning for Classification and Preference
    Learning, arXiv:1112.5745 (2011).
    """

    def _doubt(self, probs: Float) -> Float:
        between = entr(probs.mean(axis=1)).sum(axis=1) - entr(probs).sum(axis=2).mean(axis=1)
        return np.maximum(between, 0.0)


class VariationRatio(MemberScore):
    """The fraction of members that do not predict the most frequent class, ``1 - n_mode / m``.

    >>> VariationRatio().score([[[0.9, 0.1]], [[0.8, 0.2]], [[0.4, 0.6]], [[0.7, 0.3]]])
    array([0.25])

    Reference: Freeman, Elementary Applied Statistics (1965); Gal, Uncertainty in Deep Learning (2016).
    """

    def _doubt(self, probs: Float) -> Float:
        return 1.0 - _predictions(probs).max(axis=1) / probs.shape[1]


class Disagreement(MemberScore):
    """The fraction of pairs of members that predict different classes, ``1 - sum n_c (n_c - 1) / (m (m - 1))``.

    >>> Disagreement().score([[[0.9, 0.1]], [[0.8, 0.2]], [[0.4, 0.6]], [[0.7, 0.3]]])
    array([0.5])

    Reference: Kuncheva, Whitaker, Measures of Diversity in Classifier Ensembles, Machine Learning 51 (2003).
    """

    def _doubt(self, probs: Float) -> Float:
        counts, m = _predictions(probs), probs.shape[1]
        return 1.0 - (counts * (counts - 1)).sum(axis=1) / (m * (m - 1))


def _predictions(probs: Float) -> Int:
    """The number of members that predict each class."""
    chosen = probs.argmax(axis=2)
    counts: Int = (chosen[:, :, None] == np.arange(probs.shape[2])).sum(axis=1)
    return counts
