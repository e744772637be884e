"""What happened during training, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from selfcal._checks import Float, Int
from selfcal._types import OuterParams

SNAPSHOT_BUDGET = 64 * 2**20
"""Bytes that the kept snapshots of the outer parameters may take."""


@dataclass(frozen=True)
class History:
    """Training as plain arrays.

    Attributes:
        inner_loss: The training loss of every inner step.
        outer_step: The inner step after which each outer step was taken.
        outer_loss: The outer loss at each outer step.
        selection_step: The inner step at which the selection data was looked at.
        selection_loss: Its mean log loss then.
        snapshot_step: The inner step of each kept snapshot of the outer parameters.
        snapshots: The outer parameters then, by name, stacked along the first axis; thinned out evenly to
            64 MB (two and the latest are kept in any case).
        skipped: Outer steps not taken because the hypergradient was not finite.
    """

    inner_loss: Float
    outer_step: Int
    outer_loss: Float
    selection_step: Int
    selection_loss: Float
    snapshot_step: Int
    snapshots: dict[str, NDArray[np.floating]]
    skipped: int


@dataclass
class Recorder:
    """Collects a `History` while training runs."""

    budget: int = SNAPSHOT_BUDGET
    inner_loss: list[float] = field(default_factory=list)
    outer: list[tuple[int, float]] = field(default_factory=list)
    selection: list[tuple[int, float]] = field(default_factory=list)
    skipped: int = 0
    _kept: list[tuple[int, dict[str, NDArray[np.floating]]]] = field(default_factory=list)
    _latest: tuple[int, dict[str, NDArray[np.floating]]] | None = None
    _stride: int = 1
    _seen: int = 0

    def snapshot(self, step: int, outer: OuterParams) -> None:
        """Keep the outer parameters, dropping every other earlier snapshot when the budget is full."""
        self._latest = step, {name: value.detach().cpu().numpy().copy() for name, value in outer.items()}
        if self._seen % self._stride == 0:
            self._kept.append(self._latest)
        self._seen += 1
        size = max(1, sum(value.nbytes for value in self._latest[1].values()))
        if len(self._kept) > max(2, self.budget // size):
            self._kept = self._kept[::2]
            self._stride *= 2

    def history(self) -> History:
        """The arrays so far; the latest snapshot is always among them."""
        kept = list(self._kept)
        if self._latest is not None and kept[-1][0] != self._latest[0]:
            kept.append(self._latest)
        names = kept[0][1] if kept else {}
        return History(
            inner_loss=np.array(self.inner_loss),
            outer_step=np.array([step for step, _ in self.outer], dtype=np.int64),
            outer_loss=np.array([value for _, value in self.outer]),
            selection_step=np.array([step for step, _ in self.selection], dtype=np.int64),
            selection_loss=np.array([value for _, value in self.selection]),
            snapshot_step=np.array([step for step, _ in kept], dtype=np.int64),
            snapshots={name: np.stack([values[name] for _, values in kept]) for name in names},
            skipped=self.skipped,
        )
