"""The settings that a random search tries: the same list in every process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from selfcal.workflows.comparison import Candidate, grid, written


@dataclass(frozen=True)
class LogRange:
    """Numbers between two others, log-uniform.

    >>> str(LogRange(0.001, 0.03))
    '0.001 to 0.03 (log-uniform)'
    """

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g} (log-uniform)"

    def draw(self, rng: np.random.Generator) -> float:
        """A number of three digits."""
        return float(f"{math.exp(rng.uniform(math.log(self.low), math.log(self.high))):.3g}")


Space = Mapping[str, Sequence[Any] | LogRange]
"""The values of each setting."""


def described(space: Space) -> dict[str, str]:
    """The space in words.

    >>> described({"learning_rate": LogRange(0.001, 0.03), "hidden": [(64, 64), (256,)]})
    {'learning_rate': '0.001 to 0.03 (log-uniform)', 'hidden': '64x64, 256'}
    """
    return {
        name: str(values) if isinstance(values, LogRange) else ", ".join(map(written, values))
        for name, values in space.items()
    }


def drawn(space: Space, method: str, trials: int) -> list[Candidate]:
    """The first `trials` settings of a random list without repetition, which depends on the space alone.

    Args:
        space: The values of each setting.
        method: The method of candidates whose space has none.
        trials: Their number; fewer if the space holds fewer.

    Example:
        >>> space = {"learning_rate": LogRange(0.001, 0.03), "hidden": [(64,)]}
        >>> [one.name for one in drawn(space, "standard", 2)]
        ['learning_rate=0.00873 hidden=64', 'learning_rate=0.0025 hidden=64']
        >>> drawn(space, "standard", 2) == drawn(space, "standard", 5)[:2]
        True
    """
    rng = np.random.default_rng(0)
    lists = {name: values for name, values in space.items() if not isinstance(values, LogRange)}
    if len(lists) == len(space):
        every = grid(lists, method)
        return [every[place] for place in rng.permutation(len(every))[:trials]]
    found: dict[str, Candidate] = {}
    while len(found) < trials:
        values = {
            name: of.draw(rng) if isinstance(of, LogRange) else of[int(rng.integers(len(of)))]
            for name, of in space.items()
        }
        (one,) = grid({name: [value] for name, value in values.items()}, method)
        found.setdefault(one.name, one)
    return list(found.values())
