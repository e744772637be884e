"""The course of training, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from selfcal._support.checks import Float, Int
from selfcal.training.types import OuterParams

MAX_SNAPSHOT_BYTES = 64 * 2**20
"""The kept snapshots of the outer parameters take no more."""


@dataclass(frozen=True)
class History:
    """The course of training as plain arrays.

    Attributes:
        inner_loss: The training loss of every inner step.
        outer_step: The inner step after which each outer step was taken.
        outer_loss: The outer loss at each outer step.
        selection_step: The inner step of each evaluation on the selection data.
        selection_loss: The mean log loss there.
        snapshot_step: The inner step of each kept snapshot of the outer parameters.
        snapshots: The outer parameters at these steps, by name, stacked along the first axis; thinned evenly to
            64 MB (two and the latest are kept in any case).
        skipped: Outer steps not taken because the hypergradient was not finite.
        rollback_step: The inner steps at which the loss or the parameters were not finite: training returned to the
            last good state and continued with half the step size.
        reduction_step: The inner steps after which memory ran out: training returned to the last good state and
            continued with batches of half the size.
    """

    inner_loss: Float
    outer_step: Int
    outer_loss: Float
    selection_step: Int
    selection_loss: Float
    snapshot_step: Int
    snapshots: dict[str, NDArray[np.floating]]
    skipped: int
    rollback_step: Int
    reduction_step: Int


Snapshot = tuple[int, dict[str, NDArray[np.floating]]]
"""A step, and the outer parameters after it."""


@dataclass
class Recorder:
    """Collects a `History` while training runs."""

    budget: int = MAX_SNAPSHOT_BYTES
    inner_loss: list[float] = field(default_factory=list)
    outer: list[tuple[int, float]] = field(default_factory=list)
    selection: list[tuple[int, float]] = field(default_factory=list)
    skipped: int = 0
    rollbacks: list[int] = field(default_factory=list)
    reductions: list[int] = field(default_factory=list)
    _kept: list[Snapshot] = field(default_factory=list)
    _latest: Snapshot | None = None
    _stride: int = 1
    _seen: int = 0

    def snapshot(self, step: int, outer: OuterParams) -> None:
        """Keep the outer parameters, dropping every other earlier snapshot when the budget is full."""
        self._latest = step, _arrays(outer)
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
            rollback_step=np.array(self.rollbacks, dtype=np.int64),
            reduction_step=np.array(self.reductions, dtype=np.int64),
        )

    def forget_after(self, good: int, outer: OuterParams) -> None:
        """Drop everything after step `good`, where the outer parameters were `outer`."""
        del self.inner_loss[good:]
        self.outer = [pair for pair in self.outer if pair[0] <= good]
        self.selection = [pair for pair in self.selection if pair[0] <= good]
        self._kept = [pair for pair in self._kept if pair[0] <= good]
        self._seen = 1 + len(self.outer)
        self._latest = self.outer[-1][0] if self.outer else 0, _arrays(outer)

    def state(self) -> dict[str, Any]:
        """The whole record as tensors and plain values, by name."""
        latest = [] if self._latest is None else [self._latest]
        return {
            "inner_loss": torch.tensor(self.inner_loss, dtype=torch.float64),
            "outer": _columns(self.outer),
            "selection": _columns(self.selection),
            "skipped": self.skipped,
            "rollbacks": list(self.rollbacks),
            "reductions": list(self.reductions),
            "stride": self._stride,
            "seen": self._seen,
            "kept": _stacked(self._kept),
            "latest": _stacked(latest),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""
        self.inner_loss = state["inner_loss"].tolist()
        self.outer, self.selection = _pairs(state["outer"]), _pairs(state["selection"])
        self.skipped = state["skipped"]
        self.rollbacks, self.reductions = list(state["rollbacks"]), list(state["reductions"])
        self._stride, self._seen = state["stride"], state["seen"]
        self._kept = _unstacked(state["kept"])
        self._latest = next(iter(_unstacked(state["latest"])), None)


def _arrays(outer: OuterParams) -> dict[str, NDArray[np.floating]]:
    return {name: value.detach().cpu().numpy().copy() for name, value in outer.items()}


def _columns(pairs: list[tuple[int, float]]) -> dict[str, Any]:
    values = torch.tensor([value for _, value in pairs], dtype=torch.float64)
    return {"step": torch.tensor([step for step, _ in pairs], dtype=torch.int64), "value": values}


def _pairs(columns: dict[str, Any]) -> list[tuple[int, float]]:
    return list(zip(columns["step"].tolist(), columns["value"].tolist(), strict=True))


def _stacked(snapshots: list[Snapshot]) -> dict[str, Any]:
    names = snapshots[0][1] if snapshots else {}
    return {
        "step": [step for step, _ in snapshots],
        "values": {
            name: torch.from_numpy(np.stack([values[name] for _, values in snapshots])) for name in names
        },
    }


def _unstacked(stack: dict[str, Any]) -> list[Snapshot]:
    values = {name: value.numpy() for name, value in stack["values"].items()}
    return [(step, {name: v[i] for name, v in values.items()}) for i, step in enumerate(stack["step"])]
