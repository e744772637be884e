"""How rows are shared out among the networks of a team."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from selfcal._support.checks import Int, positive_int
from selfcal._support.splits import fold_numbers
from selfcal.training.interfaces import Split, Splitter


@dataclass(frozen=True)
class CrossFit(Splitter):
    """As many networks as folds; each is kept away from one fold. Every row is held out once, and trains the others.

    Args:
        folds: How many.
        repeats: Do so again, with other folds: every row is held out as many times.

    Example:
        >>> shares = CrossFit(folds=2).splits(np.array([0, 0, 1, 1]), seed=0)
        >>> sorted(np.concatenate([share.held_out for share in shares]).tolist())
        [0, 1, 2, 3]
    """

    folds: int = 5
    repeats: int = 1

    def __post_init__(self) -> None:
        positive_int("folds", self.folds, low=2)
        positive_int("repeats", self.repeats)

    def splits(self, codes: Int, groups: Int | None = None, *, seed: int) -> list[Split]:
        """All folds but one to train on, and that one held out, for each network in turn."""
        dealt = [fold_numbers(codes, self.folds, groups, seed=seed + turn) for turn in range(self.repeats)]
        return [_share(fold == number) for fold in dealt for number in range(self.folds)]


@dataclass(frozen=True)
class SameRows(Splitter):
    """Networks that differ in their random start and the order of the rows alone: a deep ensemble.

    Args:
        networks: How many.
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
        return [_share(fold_numbers(codes, self.held_out, groups, seed=seed) == 0)] * self.networks


def _share(held_out: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Split:
    return Split(np.flatnonzero(~held_out), np.flatnonzero(held_out))
