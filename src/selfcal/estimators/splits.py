"""The parts of a data set, disjoint: for training, for the outer level, for early stopping."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from selfcal._support.checks import Int
from selfcal._support.splits import split_groups
from selfcal.errors import DataError


@dataclass(frozen=True)
class Parts:
    """The row numbers of each part; None for a part that nobody needs."""

    train: Int
    outer: Int | None
    selection: Int | None


def keep_back(
    codes: Int, groups: Int, rows: Int, share: float, *, outer: bool, selection: bool, seed: int
) -> Parts:
    """Keep a share of `rows` back for those parts that are needed, class by class and whole groups at a time.

    A class with too few rows for every part goes to training first, then to the outer level.

    Args:
        codes: The class of every row there is.
        groups: The group of every row there is.
        rows: The rows to share out.
        share: How much of them to keep back in all.
        outer: Whether the outer level or a calibrator needs rows.
        selection: Whether early stopping needs rows.
        seed: Which rows go where.
    """
    needed = outer + selection
    if not needed:
        return Parts(rows, None, None)
    fractions = (1 - share, *[share / needed] * needed)
    train, *kept = (rows[part] for part in split_groups(codes[rows], groups[rows], fractions, seed=seed))
    counts = _groups_by_class(codes[rows], groups[rows])
    if any(len(part) == 0 for part in kept):
        raise DataError(
            f"Too few rows to keep {share:.0%} of them back from training: got {len(rows)} rows in {len(counts)} "
            f"classes, none of which has the {needed + 1} rows it takes to be in every part (some classes may "
            "have one sample only; copies and rows of one group count once). Give more rows of each class, or pass "
            "X_val and y_val."
        )
    rare = int(np.sum(counts <= needed))
    if rare:
        warnings.warn(
            f"{rare} of {len(counts)} classes have fewer than {needed + 1} rows and are missing from a part "
            "that was kept back: their calibration cannot be checked.",
            stacklevel=4,  # the caller of `fit`
        )
    return Parts(train, *_deal(kept, outer, selection))


def with_validation(
    rows: Int, codes: Int, groups: Int, first: int, *, outer: bool, selection: bool, seed: int
) -> Parts:
    """Train on `rows`; divide the validation rows in two halves if both other parts are needed.

    Args:
        rows: The training rows.
        codes: The classes of the validation rows.
        groups: The groups of the validation rows, which are not divided.
        first: The number of the first validation row; the others follow.
        outer: Whether the outer level or a calibrator needs rows.
        selection: Whether early stopping needs rows.
        seed: Which rows go where.
    """
    shares = [np.arange(len(codes))]
    if outer and selection:
        shares = split_groups(codes, groups, (0.5, 0.5), seed=seed)
        if len(shares[1]) == 0:
            raise DataError(
                "X_val must hold at least two rows of a class, since the method needs one half and early stopping "
                f"the other; got {len(codes)} rows. Give more rows, or set early_stopping=False."
            )
    return Parts(rows, *_deal([first + share for share in shares], outer, selection))


def _groups_by_class(codes: Int, groups: Int) -> Int:
    """In how many groups each class occurs, of those that do."""
    width = int(groups.max()) + 1
    counts = np.bincount(np.unique(codes * width + groups) // width)
    return counts[counts > 0]


def _deal(shares: list[Int], outer: bool, selection: bool) -> tuple[Int | None, Int | None]:
    """Hand the shares to those who need one."""
    dealt = iter(shares)
    return next(dealt) if outer else None, next(dealt) if selection else None
