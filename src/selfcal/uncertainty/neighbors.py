"""Scores of distances to training rows."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.errors import ConfigError
from selfcal.uncertainty._base import FeatureScore
from selfcal.uncertainty._rows import drawn, nearest, scaling


class _Distances(FeatureScore):
    """Training rows, standardised, with the settings that both scores have."""

    rows_: Float
    mean_: Float
    scale_: Float

    def __init__(self, k: int = 1, max_rows: int | None = 500, random_state: int = 0) -> None:
        self.k = k
        self.max_rows = max_rows
        self.random_state = random_state

    def _check_settings(self) -> None:
        checks.positive_int("k", self.k)
        checks.positive_int("random_state", self.random_state, low=0)
        if self.max_rows is not None:
            checks.positive_int("max_rows", self.max_rows)

    def _standardized(self, x: Float) -> Float:
        return (x - self.mean_) / self.scale_


class KNearestNeighbors(_Distances):
    """The distance to the k-th nearest training row, ``||x - x_(k)||``, in standardised columns.

    Args:
        k: The rank of the neighbour. Where training rows are drawn, k = 1 among 1 in 50 of them measures the same
            density as k = 50 among all.
        max_rows: Maximum number of training rows that distances are measured to, drawn as equally from each class as
            there are rows; None keeps all, which takes memory and time in proportion.
        random_state: Seeds the draw.

    >>> X = [[-1.0], [-1.0], [1.0], [1.0]]
    >>> KNearestNeighbors(k=3).fit(X, [0, 0, 1, 1]).score([[-2.0], [0.0]])
    array([3., 1.])

    Reference: Sun, Ming, Zhu, Li, Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022.
    """

    def _learn(self, x: Float, codes: Int) -> None:
        self.mean_, self.scale_ = scaling(x)
        self.rows_ = self._standardized(x[drawn(codes, self.max_rows, self.random_state)])

    def _doubts(self, x: Float, predicted: ArrayLike | None) -> Float:
        return nearest(self._standardized(x), self.rows_, np.zeros(1, dtype=np.int64), self.k)[:, 0]


class TrustScore(_Distances):
    """The relative distance to the predicted class, ``d_predicted / (d_predicted + d_other)``.

    With the trust score ``t = d_other / d_predicted`` of the reference this is ``1 / (1 + t)``, which has the reverse
    order and is finite. The distance to a class is that to its nearest training row, in standardised columns; the
    sparsest rows of each class are dropped before.

    Args:
        k: The rank of the neighbour whose distance says how sparse a row lies in its class.
        alpha: The fraction of the rows of each class to drop, the sparsest ones, in [0, 1).
        max_rows: Maximum number of training rows that distances are measured to, drawn as equally from each class as
            there are rows; None keeps all, which takes memory and time in proportion.
        random_state: Seeds the draw.

    >>> X = [[-1.0], [-1.0], [1.0], [1.0]]
    >>> score = TrustScore(alpha=0).fit(X, [0, 0, 1, 1])
    >>> score.score([[-0.5], [-0.5]], predicted=[0, 1])
    array([0.25, 0.75])

    Reference: Jiang, Kim, Guan, Gupta, To Trust Or Not To Trust A Classifier, NeurIPS 2018.
    """

    starts_: Float

    def __init__(
        self, k: int = 10, alpha: float = 0.1, max_rows: int | None = 500, random_state: int = 0
    ) -> None:
        super().__init__(k, max_rows, random_state)
        self.alpha = alpha

    def _check_settings(self) -> None:
        super()._check_settings()
        checks.in_range("alpha", self.alpha, 0.0, math.nextafter(1, 0))

    def _learn(self, x: Float, codes: Int) -> None:
        self.mean_, self.scale_ = scaling(x)
        kept = drawn(codes, self.max_rows, self.random_state)
        rows, of_rows = self._standardized(x[kept]), codes[kept]
        parts = [self._dense(rows[of_rows == code]) for code in range(self.n_classes_)]
        self.rows_ = np.concatenate(parts)
        self.starts_ = np.cumsum([0, *map(len, parts[:-1])]).astype(np.float64)

    def _doubts(self, x: Float, predicted: ArrayLike | None) -> Float:
        if predicted is None:
            raise ConfigError("TrustScore needs the predicted class of each row. Pass predicted=, as codes.")
        codes = checks.label_codes(predicted, self.n_classes_, name="predicted")
        checks.same_length(X=x, predicted=codes)
        starts = self.starts_.astype(np.int64)
        known = (
            np.diff([*starts, len(self.rows_)]) > 0
        )  # a class without training rows is infinitely far away
        to_class = np.full((len(x), self.n_classes_), np.inf)
        to_class[:, known] = nearest(self._standardized(x), self.rows_, starts[known], 1)
        every = np.arange(len(x))
        own = to_class[every, codes]
        to_class[every, codes] = np.inf
        other = to_class.min(axis=1)
        relative = np.where(
            own == other, 0.5, 1.0
        )  # neither distance says anything, or the own class is unknown
        np.divide(own, own + other, out=relative, where=np.isfinite(own) & (own + other > 0))
        return relative

    def _dense(self, rows: Float) -> Float:
        """The rows of a class without the sparsest ones."""
        dropped = int(self.alpha * len(rows))
        if not dropped:
            return rows
        # the nearest row is the row itself
        radius = nearest(rows, rows, np.zeros(1, dtype=np.int64), self.k + 1)[:, 0]
        return rows[np.sort(np.argsort(radius, kind="stable")[: len(rows) - dropped])]
