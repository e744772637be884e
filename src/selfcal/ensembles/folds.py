"""Splits into training and held-out rows for each member of an ensemble."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from selfcal._support.checks import Int, positive_int
from selfcal._support.splits import fold_numbers


class Split(NamedTuple):
    """The rows that one network is trained on, and those that are held out from it."""

    train: Int
    held_out: Int


class Splitter(ABC):
    """Splits rows into training and held-out rows, once for each network of an ensemble."""

    @abstractmethod
    def splits(self, codes: Int, groups: Int | None = None, *, seed: int) -> list[Split]:
        """One split for each network. Each class is spread evenly; the rows of a group stay together."""

    @property
    @abstractmethod
    def predictions_per_row(self) -> int:
        """Maximum number of networks that a row is held out from."""

    @property
    def rounds(self) -> int:
        """Number of equal parts of the splits, one after the other, each of which holds out all rows it can."""
        return 1


@dataclass(frozen=True)
class CrossFit(Splitter):
    """K-fold cross-fitting: network k is trained on all folds but fold k, so that every row is held out once.

    Args:
        folds: Number of folds, and of networks.
        repeats: Number of repetitions with different folds: every row is held out once in each.

    Example:
        >>> splits = CrossFit(folds=2).splits(np.array([0, 0, 1, 1]), seed=0)
        >>> sorted(np.concatenate([split.held_out for split in splits]).tolist())
        [0, 1, 2, 3]
    """

    folds: int = 5
    repeats: int = 1

    def __post_init__(self) -> None:
        positive_int("folds", self.folds, low=2)
        positive_int("repeats", self.repeats)

    def splits(self, codes: Int, groups: Int | None = None, *, seed: int) -> list[Split]:
        """All folds but one to train on, and that one held out, for each network in turn."""
        repeated = [fold_numbers(codes, self.folds, groups, seed=seed + turn) for turn in range(self.repeats)]
        return [_split(fold == number) for fold in repeated for number in range(self.folds)]

    @property
    def predictions_per_row(self) -> int:
        """One for each repeat."""
        return self.repeats

    @property
    def rounds(self) -> int:
        """The repeats."""
        return self.repeats


@dataclass(frozen=True)
class SameRows(Splitter):
    """Networks that differ only in their initialisation and the order of the rows: a deep ensemble.

    Args:
        networks: Number of networks.
        held_out: One row in so many is held out from all of them.

    Example:
        >>> first, second = SameRows(networks=2).splits(np.arange(20) % 2, seed=0)
        >>> first.held_out.tolist() == second.held_out.tolist(), len(first.held_out)
        (True, 4)

    Reference:
        Lakshminarayanan, Pritzel and Blundell, Simple and scalable predictive uncertainty estimation using deep
        ensembles, 2017.
    """

    networks: int = 5
    held_out: int = 5

    def __post_init__(self) -> None:
        positive_int("networks", self.networks)
        positive_int("held_out", self.held_out, low=2)

    def splits(self, codes: Int, groups: Int | None = None, *, seed: int) -> list[Split]:
        """The same for every network."""
        return [_split(fold_numbers(codes, self.held_out, groups, seed=seed) == 0)] * self.networks

    @property
    def predictions_per_row(self) -> int:
        """Held-out rows are held out from every network."""
        return self.networks


def _split(held_out: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Split:
    return Split(np.flatnonzero(~held_out), np.flatnonzero(held_out))
