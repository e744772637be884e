"""What prediction sets guarantee, and how many calibration rows that takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from scipy.special import betaincinv

from selfcal._support import checks
from selfcal._support.checks import plain
from selfcal.errors import ConfigError

LEVEL = 0.95
"""The probability of the statement about the calibration rows at hand."""

Kind = Literal["class", "group", "class of a group"]

CONSEQUENCE: dict[Kind, str] = {
    "class": "such a class is in every set",
    "group": "the sets of such a group have all classes",
    "class of a group": "such a class is in every set of its group",
}
"""What happens where there are too few calibration rows."""

MAX_LISTED = 5
"""Maximum number of categories that a message lists before "and more"."""


@dataclass(frozen=True)
class CoverageGuarantee:
    """The guarantee for new rows from the distribution of the calibration rows.

    Attributes:
        coverage: The coverage asked for.
        holds: Whether the coverage is guaranteed for any number of rows, and not only expected.
        informative: Whether some classes can be left out of a set: with too few calibration rows, every set has all.
        n: Number of calibration rows.
        text: The guarantee in words; also `str(guarantee)`.
    """

    coverage: float
    holds: bool
    informative: bool
    n: int
    text: str

    def __str__(self) -> str:
        return self.text


def known_coverage(coverage: float) -> float:
    """Return the coverage if it is between 0 and 1."""
    try:
        return checks.in_range("coverage", coverage, 1e-6, 1 - 1e-6)
    except ConfigError:
        raise ConfigError(f"coverage must be between 0 and 1, for example 0.95; got {coverage!r}.") from None


def rank_for_coverage(coverage: float, n: int) -> int:
    """Return the rank, from the lowest, of the calibration score up to which classes are accepted.

    ``ceil((n + 1) coverage)``, with the coverage taken as the decimal number it is written as. A rank beyond n means
    that there are too few rows.

    >>> rank_for_coverage(0.9, 9), rank_for_coverage(0.9, 100), rank_for_coverage(0.95, 18)
    (9, 91, 19)
    """
    return math.ceil((n + 1) * Fraction(repr(float(coverage))))


def rows_for_coverage(coverage: float) -> int:
    """The fewest calibration rows for which a set can leave out a class: ``coverage / (1 - coverage)``, rounded up.

    Args:
        coverage: The fraction of new rows whose set contains the true class.

    Returns:
        The number of rows; of each class or group, if the guarantee is for each.

    >>> rows_for_coverage(0.9), rows_for_coverage(0.95), rows_for_coverage(0.99)
    (9, 19, 99)
    """
    exact = Fraction(repr(float(known_coverage(coverage))))
    return math.ceil(exact / (1 - exact))


def split_text(coverage: float, n: int, *, randomized: bool) -> str:
    """The guarantee of rows that the model was not trained on, for one category of rows."""
    rank = rank_for_coverage(coverage, n)
    if rank > n:
        return (
            f"With {n:,} calibration rows, only sets of all classes have a coverage of {percent(coverage)}: that "
            f"takes at least {rows_for_coverage(coverage):,}. Pass more calibration rows, or a lower coverage."
        )
    text = (
        f"The set of a new row contains its true class with probability {_bound(coverage, randomized)}, over draws "
        "of the calibration rows and of the row."
    )
    if randomized:
        return text
    low = math.floor(1e4 * betaincinv(rank, n + 1 - rank, 1 - LEVEL)) / 1e4
    return (
        f"{text} With {n:,} calibration rows, the coverage of all new rows is at least {percent(low)} with "
        f"probability {percent(LEVEL)}."
    )


def conditional_text(coverage: float, kind: Kind, few: Sequence[Any], *, randomized: bool) -> str:
    """The guarantee for each class, group, or class in a group, of which some have too few calibration rows."""
    bound, needed = _bound(coverage, randomized), rows_for_coverage(coverage)
    text = f"For each {kind}, the set of a new row contains its true class with probability {bound}."
    if not few:
        return text
    number = f"{_listed(few)} {'has' if len(few) == 1 else 'have'} fewer"
    return f"{text} That takes {needed:,} calibration rows of each; {number}, and {CONSEQUENCE[kind]}."


def out_of_fold_text(coverage: float, n: int) -> str:
    """What is known about sets from out-of-fold predictions."""
    return (
        f"There is no exact guarantee: sets are chosen on {n:,} out-of-fold predictions, each by models trained on "
        f"fewer rows than the one that predicts new rows. Their coverage is about {percent(coverage)} if that "
        "model is no worse than those. For an exact guarantee, call fit on rows it was not trained on."
    )


def percent(fraction: float) -> str:
    """Return a fraction as text, without needless digits."""
    return f"{100 * fraction:.6g}%"


def _bound(coverage: float, randomized: bool) -> str:
    return f"{'exactly' if randomized else 'at least'} {percent(coverage)}"


def _listed(names: Sequence[Any]) -> str:
    shown = ", ".join(repr(plain(name)) for name in names[:MAX_LISTED])
    return shown + (f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else "")
