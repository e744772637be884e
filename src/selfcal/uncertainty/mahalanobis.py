"""The distance to the nearest class mean, in units of the spread within classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support.checks import Float, Int
from selfcal.uncertainty._base import FeatureScore, in_blocks

RIDGE = 1e-6
"""What is added to the variances, relative to their mean over the columns: a constant column has a variance, too."""


class Mahalanobis(FeatureScore):
    """The squared Mahalanobis distance to the nearest class mean, ``min_c (x - m_c)' S^-1 (x - m_c)``.

    S is the covariance of the rows around the mean of their class, the same for all classes.

    >>> X = [[-4.0, 0.0], [-2.0, 0.0], [2.0, 1.0], [4.0, 1.0], [3.0, 2.0], [3.0, 0.0], [-3.0, 1.0], [-3.0, -1.0]]
    >>> Mahalanobis().fit(X, [0, 0, 1, 1, 1, 1, 0, 0]).score([[-3.0, 0.0], [0.0, 1.0]]).round(3)
    array([ 0., 18.])

    Reference: Lee, Lee, Lee, Shin, A Simple Unified Framework for Detecting Out-of-Distribution Samples and
    Adversarial Attacks, NeurIPS 2018.
    """

    whitening_: Float
    means_: Float

    def _learn(self, x: Float, codes: Int) -> None:
        present = np.unique(codes)
        means = np.array([x[codes == code].mean(axis=0) for code in present])
        within = x - means[np.searchsorted(present, codes)]
        covariance = within.T @ within / len(x)
        variance = np.trace(covariance) / len(covariance)
        covariance[np.diag_indices_from(covariance)] += RIDGE * variance if variance > 0 else 1.0
        self.whitening_ = np.linalg.inv(np.linalg.cholesky(covariance))
        self.means_ = means

    def _doubts(self, x: Float, predicted: ArrayLike | None) -> Float:
        return in_blocks(self._doubt, x)

    def _doubt(self, x: Float) -> Float:
        nearest = np.full(len(x), np.inf)
        white = (x - self.means_[0]) @ self.whitening_.T
        for mean in (self.means_ - self.means_[0]) @ self.whitening_.T:
            gap = white - mean
            np.minimum(nearest, np.einsum("ij,ij->i", gap, gap), out=nearest)
        return nearest
