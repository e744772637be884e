"""Rows unlike those a classifier knows, at a stated rate of false alarms."""

from __future__ import annotations

import math
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.conformal.guarantee import percent, rank_for_coverage, rows_for_coverage
from selfcal.errors import ConfigError, PromiseWarning
from selfcal.storage.novelty import NoveltyState
from selfcal.uncertainty import UncertaintyScore


class NoveltyDetector(BaseEstimator):
    """Flags rows that are stranger to a fitted classifier than nearly all held-out rows.

    A row is flagged if its score is above that of rank ``ceil((n + 1) (1 - false_alarms))`` among n held-out rows: a
    new row from their distribution is flagged with probability at most `false_alarms`, whatever the score is. How
    many strange rows are flagged depends on the score, and is not guaranteed.

    Args:
        estimator: A fitted classifier; None if `X` is the input of the score itself, such as features.
        score: A fitted score of `selfcal.uncertainty`, such as ``KNearestNeighbors().fit(X_train, y_train)``.
        false_alarms: The fraction of ordinary rows that may be flagged, in (0, 1).

    Attributes:
        threshold_: Rows with a higher score are flagged.
        guarantee_: The guarantee, in words.
        held_out_: The scores of the held-out rows, in ascending order.

    Example:
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from selfcal.datasets import Blobs
        >>> from selfcal.uncertainty import KNearestNeighbors
        >>> X, y = Blobs(std=1.3).sample(2000, seed=0)
        >>> model = GaussianNB().fit(X[:1000], y[:1000])
        >>> distance = KNearestNeighbors().fit(X[:1000], y[:1000])
        >>> detector = NoveltyDetector(model, distance, false_alarms=0.01).fit(X[1000:])
        >>> detector.is_novel([[0.0, 0.0], [90.0, 90.0]])
        array([False,  True])
        >>> print(detector.guarantee_)
        A row like the 1,000 held-out rows is flagged with probability at most 1%.

    Reference: Bates, Candès, Lei, Romano, Sesia, Testing for Outliers with Conformal p-Values, Ann. Stat. 51 (2023).
    """

    def __init__(self, estimator: Any, score: UncertaintyScore, *, false_alarms: float = 0.05) -> None:
        self.estimator = estimator
        self.score = score
        self.false_alarms = false_alarms

    def fit(self, X: Any, y: None = None) -> Self:
        """Choose the threshold on rows that neither the estimator nor the score was fitted on.

        Args:
            X: The input of the estimator; no labels are needed.
            y: Not used.
        """
        try:
            checks.in_range("false_alarms", self.false_alarms, 1e-6, 1 - 1e-6)
        except ConfigError:
            raise ConfigError(
                f"false_alarms must be between 0 and 1, for example 0.05; got {self.false_alarms!r}."
            ) from None
        if not isinstance(self.score, UncertaintyScore):
            raise ConfigError(
                f"score must be a fitted score of selfcal.uncertainty; got {self.score!r}. Pass one such as "
                "KNearestNeighbors().fit(X_train, y_train)."
            )
        return self._calibrated(np.sort(self._strangeness(X)))

    def is_novel(self, X: Any) -> NDArray[np.bool_]:
        """Whether each row is flagged."""
        check_is_fitted(self)
        return self._strangeness(X) > self.threshold_

    def p_value(self, X: Any) -> Float:
        """The conformal p-value of each row: the fraction of held-out rows, and itself, that are as strange."""
        check_is_fitted(self)
        n = len(self.held_out_)
        below = np.searchsorted(self.held_out_, self._strangeness(X), side="left")
        return (n - below + 1) / (n + 1)

    def p_value_of_many(self, n_flagged: int, n_rows: int) -> float:
        """The probability of at least so many flagged rows among rows from the distribution of the held-out ones.

        A small one tells that a table as a whole differs from them. With the threshold at rank j from the top of n
        held-out rows, it is the probability that the `n_flagged` + j - 1 strangest of all rows have fewer than j
        held-out ones: a sum of the hypergeometric distribution.

        Example:
            >>> from selfcal.uncertainty import KNearestNeighbors
            >>> score = KNearestNeighbors().fit([[-1.0], [1.0]], [0, 1])
            >>> detector = NoveltyDetector(None, score).fit(np.linspace(-2, 2, 99)[:, None])
            >>> detector.p_value_of_many(5, 100) > 0.4, detector.p_value_of_many(20, 100) < 1e-3
            (True, True)
        """
        check_is_fitted(self)
        n = len(self.held_out_)
        from_top = n + 1 - self._rank
        if not n_flagged or from_top < 1:
            return 1.0
        return float(hypergeom.cdf(from_top - 1, n + n_rows, n, n_flagged + from_top - 1))

    @property
    def state(self) -> NoveltyState:
        """The fitted state, for storage."""
        check_is_fitted(self)
        return NoveltyState(self.score, self.held_out_, self.false_alarms)

    @classmethod
    def from_state(cls, state: NoveltyState) -> Self:
        """The detector with this state, for the input of the score."""
        return cls(None, state.score, false_alarms=state.false_alarms)._calibrated(state.held_out)

    def _strangeness(self, X: Any) -> Float:
        """The score of each row; of rows so far away that it overflows, infinity."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.score.score(X) if self.estimator is None else self.score.of(self.estimator, X)
        return np.where(np.isnan(found), np.inf, found)

    def _calibrated(self, held_out: Float) -> Self:
        self.held_out_ = held_out
        n = len(held_out)
        usual = float(f"{1 - self.false_alarms:.12g}")  # 0.99, and not 0.98999...
        rank = self._rank = rank_for_coverage(usual, n)
        self.threshold_ = float(held_out[rank - 1]) if rank <= n else math.inf
        if rank <= n:
            rate = percent(self.false_alarms)
            self.guarantee_ = (
                f"A row like the {n:,} held-out rows is flagged with probability at most {rate}."
            )
        else:
            self.guarantee_ = (
                f"No row is flagged: at most {percent(self.false_alarms)} false alarms take at least "
                f"{rows_for_coverage(usual):,} held-out rows; there are {n:,}. Pass more rows, or a higher rate."
            )
            warnings.warn(self.guarantee_, PromiseWarning, stacklevel=3)
        return self

    def __sklearn_clone__(self) -> NoveltyDetector:
        """The same estimator and score, which stay fitted, with no threshold chosen."""
        return NoveltyDetector(**self.get_params(deep=False))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "held_out_")
