"""Conformity scores: how badly each class fits the probabilities of a row."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from selfcal._support import checks
from selfcal._support.checks import Float


class ConformityScore(ABC):
    """A score for each row and class; a class is in the set of a row if its score there is low enough.

    The score of a row must depend on that row alone: the guarantee rests on nothing else, not even on good
    probabilities.
    """

    @abstractmethod
    def __call__(self, probs: Float, share: Float) -> Float:
        """Return the score of each class.

        Args:
            probs: Probabilities, one row per sample and one column per class.
            share: For each row, the part of the probability of a class that counts for its own score: 1, or a
                uniform number if sets are randomised.
        """


@dataclass(frozen=True)
class LAC(ConformityScore):
    """One minus the probability of the class, also called THR: the smallest sets on average.

    ``s(x, c) = 1 - p_c``. A set may be empty, where no class is probable enough. Nothing is randomised but ties.

    >>> LAC()(np.array([[0.5, 0.375, 0.125]]), np.ones(1))
    array([[0.5  , 0.625, 0.875]])

    Reference: Sadinle, Lei, Wasserman, Least Ambiguous Set-Valued Classifiers With Bounded Error Levels, J. Am. Stat.
    Assoc. 114 (2019).
    """

    def __call__(self, probs: Float, share: Float) -> Float:
        return 1.0 - probs


@dataclass(frozen=True)
class APS(ConformityScore):
    """The probability of all classes that are at least as probable: sets grow where the model is in doubt.

    ``s(x, c) = u p_c + sum of p_j over the classes before c``, by falling probability, with u = 1 or uniform.
    Sets are larger than those of `LAC`; in exchange, the coverage varies less between easy and difficult rows.

    >>> APS()(np.array([[0.375, 0.5, 0.125]]), np.ones(1))
    array([[0.875, 0.5  , 1.   ]])

    Reference: Romano, Sesia, Candès, Classification with Valid and Adaptive Coverage, NeurIPS 2020.
    """

    def __call__(self, probs: Float, share: Float) -> Float:
        order = _order(probs)
        falling = np.take_along_axis(probs, order, axis=1)
        mass = np.cumsum(falling, axis=1)
        mass[:, -1] = 1.0
        return _back(mass - (1.0 - share[:, None]) * falling, order)


@dataclass(frozen=True)
class RAPS(ConformityScore):
    """`APS` with a penalty for improbable classes: smaller sets where there are many classes.

    ``s(x, c) = APS + penalty * max(0, rank(c) - free)``, where the most probable class has rank 1.

    Args:
        penalty: What each further class costs.
        free: Number of classes without a penalty.

    >>> RAPS(penalty=0.5, free=1)(np.array([[0.375, 0.5, 0.125]]), np.ones(1))
    array([[1.375, 0.5  , 2.   ]])

    Reference: Angelopoulos, Bates, Malik, Jordan, Uncertainty Sets for Image Classifiers using Conformal Prediction,
    ICLR 2021.
    """

    penalty: float = 0.01
    free: int = 5

    def __post_init__(self) -> None:
        checks.in_range("penalty", self.penalty, 0.0)
        checks.positive_int("free", self.free, low=0)

    def __call__(self, probs: Float, share: Float) -> Float:
        rank = np.arange(1, probs.shape[1] + 1)
        extra = np.broadcast_to(self.penalty * np.maximum(0, rank - self.free), probs.shape)
        return APS()(probs, share) + _back(extra, _order(probs))


SCORES: dict[str, ConformityScore] = {"lac": LAC(), "aps": APS(), "raps": RAPS()}
"""The scores with their default settings, by the name that `ConformalClassifier` takes."""


def _order(probs: Float) -> NDArray[np.intp]:
    """Return the classes of each row from the most probable to the least; equal ones in the order of the columns."""
    return np.argsort(-probs, axis=1, kind="stable")


def _back(values: Float, order: NDArray[np.intp]) -> Float:
    """Return values that are in this order in the order of the columns."""
    placed = np.empty_like(values)
    np.put_along_axis(placed, order, values, axis=1)
    return placed
