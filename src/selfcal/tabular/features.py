"""The features of an encoded table that belong together: numbers with their indicators, and one-hot blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from selfcal._support.checks import listed
from selfcal.errors import ConfigError

Pair = tuple[int, int]


@dataclass(frozen=True)
class FeatureGroups:
    """The features that together encode one column of a table, by their positions.

    A network takes every feature as a number. A model that knows missing values and categories, such as trees, needs
    to know which features encode them. A feature in no group is a number that is never missing.

    Args:
        missing: For each number that can be missing, its position and that of the indicator, which is 0 or 1.
        categories: For each category, the first position of its one-hot block and the one after the last.

    Example:
        >>> groups = FeatureGroups(missing=[(0, 2)], categories=[(3, 5)])
        >>> groups.missing, groups.categories, groups.n_features
        (((0, 2),), ((3, 5),), 5)
        >>> FeatureGroups(missing=[(0, 2)], categories=[(2, 5)])
        Traceback (most recent call last):
        selfcal.errors.ConfigError: A feature must be in one group only; got several for those at 2.
    """

    missing: tuple[Pair, ...] = ()
    categories: tuple[Pair, ...] = ()

    def __post_init__(self) -> None:
        for name in ("missing", "categories"):
            object.__setattr__(self, name, _pairs(name, getattr(self, name)))
        if bad := [block for block in self.categories if block[0] >= block[1]]:
            raise ConfigError(
                f"categories must hold blocks (start, stop) with start < stop; got {listed(bad, 3)}. Leave out "
                "categories without a level."
            )
        spans = sorted([*self.categories, *((place, place + 1) for pair in self.missing for place in pair)])
        if twice := [second[0] for first, second in pairwise(spans) if second[0] < first[1]]:
            raise ConfigError(
                f"A feature must be in one group only; got several for those at {', '.join(map(str, twice[:5]))}."
            )

    @property
    def n_features(self) -> int:
        """The least number of features of a table that has these groups."""
        return max(
            (*(1 + max(pair) for pair in self.missing), *(stop for _, stop in self.categories)), default=0
        )


def _pairs(name: str, given: Iterable[Any]) -> tuple[Pair, ...]:
    """Pairs of positions, as plain integers."""
    if not isinstance(given, (list, tuple)):
        raise ConfigError(f"{name} must be a list of pairs of positions; got {type(given).__name__}.")
    for pair in given:
        valid = isinstance(pair, (list, tuple)) and len(pair) == 2
        if not valid or any(
            not isinstance(place, int) or isinstance(place, bool) or place < 0 for place in pair
        ):
            raise ConfigError(
                f"{name} must hold pairs of positions, whole numbers from 0 on; got {listed([pair])[:80]}."
            )
    return tuple((first, second) for first, second in given)
