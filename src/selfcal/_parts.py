"""The three disjoint parts of a data set: for training, for the outer level, for early stopping."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from selfcal._checks import Float, Int
from selfcal.datasets import stratified_split
from selfcal.errors import DataError


@dataclass(frozen=True)
class Rows:
    """Rows of a table with their label codes and weights."""

    x: Float
    y: Int
    weight: Float | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Int) -> Rows:
        """The rows at these places."""
        return Rows(self.x[rows], self.y[rows], None if self.weight is None else self.weight[rows])


@dataclass(frozen=True)
class Parts:
    """The parts; those that nobody needs are None. `train_rows` says which rows are the training part."""

    train: Rows
    train_rows: Int
    outer: Rows | None
    selection: Rows | None


def keep_back(data: Rows, share: float, *, outer: bool, selection: bool, seed: int) -> Parts:
    """Keep a share of the rows back for those parts that are needed, class by class.

    Rows of weight zero stay in training. A class with too few rows for every part goes to training first.
    """
    needed = outer + selection
    everything = np.arange(len(data))
    counted = everything if data.weight is None else np.flatnonzero(data.weight)
    kept: list[Int] = []
    if needed:
        fractions = (1 - share, *[share / needed] * needed)
        kept = [counted[part] for part in stratified_split(data.y[counted], fractions, seed=seed)[1:]]
        if any(len(part) == 0 for part in kept):
            n_classes = len(np.unique(data.y))
            raise DataError(
                f"Too few rows to keep {share:.0%} of them back from training: got {len(data)} rows in "
                f"{n_classes} classes, at least one with one sample only. Give more rows of each class, "
                "or pass X_val and y_val."
            )
        _warn_of_rare_classes(data.y[counted], needed + 1)
    train = np.setdiff1d(everything, np.concatenate(kept)) if kept else everything
    return Parts(data.take(train), train, *_deal([data.take(part) for part in kept], outer, selection))


def with_validation(data: Rows, validation: Rows, *, outer: bool, selection: bool, seed: int) -> Parts:
    """Train on all of `data`; divide `validation` in two halves if both other parts are needed."""
    needed = outer + selection
    shares = [validation]
    if needed == 2:
        shares = [validation.take(part) for part in stratified_split(validation.y, (0.5, 0.5), seed=seed)]
        if any(len(part) == 0 for part in shares):
            raise DataError(f"X_val must hold at least two rows to be divided; got {len(validation)}.")
    return Parts(data, np.arange(len(data)), *_deal(shares, outer, selection))


def _deal(shares: list[Rows], outer: bool, selection: bool) -> tuple[Rows | None, Rows | None]:
    """Hand the shares to those who need one."""
    dealt = iter(shares)
    return next(dealt) if outer else None, next(dealt) if selection else None


def _warn_of_rare_classes(codes: Int, needed: int) -> None:
    rare = np.flatnonzero((counts := np.bincount(codes)) < needed)
    rare = rare[counts[rare] > 0]
    if len(rare):
        warnings.warn(
            f"{len(rare)} of {len(counts)} classes have fewer than {needed} rows and are missing from a part "
            "that was kept back: their calibration cannot be checked.",
            stacklevel=4,
        )
