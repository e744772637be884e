"""Disjoint parts of a data set: for training, for the outer level, for early stopping."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from selfcal._support.checks import Int
from selfcal._support.splits import split_groups
from selfcal.errors import DataError


@dataclass(frozen=True)
class Parts:
    """The row numbers of each part; None for a part that is not needed."""

    train: Int
    outer: Int | None
    selection: Int | None


def hold_out(
    codes: Int, groups: Int, rows: Int, fraction: float, *, outer: bool, selection: bool, seed: int
) -> Parts:
    """Hold out a fraction of `rows` for the parts that are needed, class by class and whole groups at a time.

    A class with too few rows for every part goes to training first, then to the outer level.

    Args:
        codes: The class of every row there is.
        groups: The group of every row there is.
        rows: The rows to split.
        fraction: The total fraction of them to hold out.
        outer: Whether the outer level or a calibrator needs rows.
        selection: Whether early stopping needs rows.
        seed: Seed of the split.
    """
    needed = outer + selection
    if not needed:
        return Parts(rows, None, None)
    fractions = (1 - fraction, *[fraction / needed] * needed)
    train, *held_out = (rows[part] for part in split_groups(codes[rows], groups[rows], fractions, seed=seed))
    counts = _groups_by_class(codes[rows], groups[rows])
    if any(len(part) == 0 for part in held_out):
        raise DataError(
            f"Too few rows to hold out {fraction:.0%} of them from training: got {len(rows)} rows in {len(counts)} "
            f"classes, none of which has the {needed + 1} rows it takes to be in every part (some classes may "
            "have one sample only; copies and rows of one group count once). Give more rows of each class, or pass "
            "X_val and y_val."
        )
    rare = int(np.sum(counts <= needed))
    if rare:
        warnings.warn(
            f"{rare} of {len(counts)} classes {'has' if rare == 1 else 'have'} fewer than {needed + 1} rows and "
            f"{'is' if rare == 1 else 'are'} missing from a part that was held out: the calibration for "
            f"{'it' if rare == 1 else 'them'} cannot be checked.",
            stacklevel=4,  # the caller of `fit`
        )
    return Parts(train, *_assign(held_out, outer, selection))


def with_validation(
    rows: Int, codes: Int, groups: Int, first: int, *, outer: bool, selection: bool, seed: int
) -> Parts:
    """Train on `rows`; split the validation rows into two halves if both other parts are needed.

    Args:
        rows: The training rows.
        codes: The classes of the validation rows.
        groups: The groups of the validation rows, which are not divided.
        first: The number of the first validation row; the others follow.
        outer: Whether the outer level or a calibrator needs rows.
        selection: Whether early stopping needs rows.
        seed: Seed of the split.
    """
    halves = [np.arange(len(codes))]
    if outer and selection:
        halves = split_groups(codes, groups, (0.5, 0.5), seed=seed)
        if len(halves[1]) == 0:
            raise DataError(
                "X_val must hold at least two rows of a class, since the method needs one half and early stopping "
                f"the other; got {len(codes)} rows. Give more rows, or set early_stopping=False."
            )
    return Parts(rows, *_assign([first + part for part in halves], outer, selection))


def _groups_by_class(codes: Int, groups: Int) -> Int:
    """In how many groups each class occurs, of those that do."""
    width = int(groups.max()) + 1
    counts = np.bincount(np.unique(codes * width + groups) // width)
    return counts[counts > 0]


def _assign(parts: list[Int], outer: bool, selection: bool) -> tuple[Int | None, Int | None]:
    """The part of the outer level and the part of the selection; None where it is not needed."""
    left = iter(parts)
    return next(left) if outer else None, next(left) if selection else None
