"""Settings for the members of an ensemble: networks, optimisers and training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from selfcal.ensembles.ensemble import NetworkCandidate
from selfcal.ensembles.folds import Split
from selfcal.ensembles.training import Rows, TrainedMembers, train_members
from selfcal.models.factory import NetworkFactory
from selfcal.optimizers import Adam, AdamW, CosLog
from selfcal.training.interfaces import OptimizerRule

DEFAULT_OPTIMIZERS = {
    "linear": Adam(lr=0.02),
    "additive": Adam(lr=0.01),
    "mlp": AdamW(lr=0.003, weight_decay=1.0),
    "tabular": AdamW(lr=0.002, weight_decay=0.3),
    "periodic": AdamW(lr=0.003, weight_decay=0.5),
    "waves": AdamW(lr=0.003, weight_decay=1.0),
    "tabm": AdamW(lr=CosLog(0.015), weight_decay=3e-4),
    "realmlp": Adam(lr=CosLog(0.04), betas=(0.9, 0.95)),
}
"""For each kind of network and batches of 256: chosen once on many data sets and then fixed."""
FIXED_EPOCHS = {"realmlp": 64, "tabm": 64}
"""Passes over the training rows of kinds whose step size depends on this number: patience must not end them early."""
MANY_ROWS, MIN_EPOCHS = 5_000, 16
"""With more rows than this, such kinds pass over them fewer times, but at least this many times."""
OTHER_OPTIMIZER = Adam(lr=0.005)
"""For the user's own networks."""


@dataclass(frozen=True)
class MemberSettings:
    """Settings of the networks of every candidate and of their training.

    Attributes:
        make: Makes a network of a kind for some rows, with a seed.
        rate: The step size of Adam; None for the default of each kind.
        max_epochs: Maximum number of passes over the training rows.
        batch_size: Rows per step and network; None for all.
        early_stopping: Whether held-out rows decide when to stop.
        patience: Evaluations on them without improvement before training stops.
        seed: Of the first network; the others count on from it.
        verbose: Show a progress bar.
        folder: The folder of the checkpoints, with a subfolder for each training run.
    """

    make: NetworkFactory
    rate: float | None
    max_epochs: int
    batch_size: int | None
    early_stopping: bool
    patience: int | None
    seed: int
    verbose: bool | None = None
    folder: Path | None = None

    def optimizer(self, kind: str) -> Adam:
        """The optimiser of a kind of network."""
        usual = DEFAULT_OPTIMIZERS.get(kind, OTHER_OPTIMIZER)
        return usual if self.rate is None else usual.with_step_size(self.rate)

    def training(self, name: str, kind: str, member: int, n_rows: int) -> dict[str, Any]:
        """Arguments of a training of this kind of network, the first of which has this number, on so many rows."""
        epochs = fixed_epochs(kind, n_rows)
        return {
            "max_epochs": self.max_epochs if epochs is None else min(self.max_epochs, epochs),
            "batch_size": self.batch_size,
            "patience": self.patience if epochs is None else None,
            "seed": self.seed + member,
            "progress": self.verbose,
            "checkpoint": None if self.folder is None else self.folder / f"{name}-{member}",
        }


def fixed_epochs(kind: str, n_rows: int) -> int | None:
    """Passes over so many rows of a kind in `FIXED_EPOCHS`: in inverse proportion to the root of many rows.

    Example:
        >>> [fixed_epochs("realmlp", rows) for rows in (5_000, 20_000, 1_000_000)], fixed_epochs("mlp", 500)
        ([64, 32, 16], None)
    """
    if kind not in FIXED_EPOCHS:
        return None
    fewer = FIXED_EPOCHS[kind] * (MANY_ROWS / max(n_rows, MANY_ROWS)) ** 0.5
    return max(MIN_EPOCHS, round(fewer))


class NetworkTrainer:
    """Trains the networks of one candidate, some at a time."""

    def __init__(
        self, candidate: NetworkCandidate, rows: Rows, splits: Sequence[Split], settings: MemberSettings
    ) -> None:
        self.candidate = candidate
        self._rows, self._splits, self._settings = rows, splits, settings
        self._first = self._network(0)
        epochs = fixed_epochs(candidate.name, len(rows.y)) or EPOCHS
        self.expected_seconds = expected_seconds(self._first, len(rows.y), len(splits), epochs)

    def train(self, members: Sequence[int], max_seconds: float) -> TrainedMembers:
        """Train the networks of these numbers."""
        kind, recipe = self.candidate.name, self.candidate.recipe
        return train_members(
            [self._network(member) if member else self._first for member in members],
            [self._splits[member] for member in members],
            self._rows,
            recipe=recipe,
            early_stopping=self._settings.early_stopping,
            max_seconds=max_seconds,
            refine=kind in FIXED_EPOCHS,
            optimizer=self._optimizer(),
            **self._settings.training(f"{kind}-{recipe.name}", kind, members[0], len(self._rows.y)),
        )

    def _network(self, member: int) -> nn.Module:
        return self._settings.make(self.candidate.name, self._rows.x, self._settings.seed + member)

    def _optimizer(self) -> OptimizerRule:
        """The default one, without the settings that the outer model replaces."""
        outer = self.candidate.recipe.outer_model
        usual = self._settings.optimizer(self.candidate.name)
        return usual if outer is None else outer.adapt_optimizer(usual)


EPOCHS, STEP_ROWS = 25, 256
"""Passes that training usually takes, and rows per step."""
SPEED, STEP_SECONDS = 5e10, 8e-4
"""Multiplications a second on one core of a usual machine, and the time of a step besides."""


def expected_seconds(module: nn.Module, n_rows: int, n_members: int, n_epochs: int = EPOCHS) -> float:
    """A rough estimate of the training time of all members, the same on every machine.

    Example:
        >>> round(expected_seconds(nn.Linear(9, 2), n_rows=5000, n_members=5), 2)
        2.0
    """
    steps = -(-n_rows // STEP_ROWS)
    return n_members * n_epochs * (steps * STEP_SECONDS + 6 * _multiplications(module) * n_rows / SPEED)


def _multiplications(module: nn.Module) -> int:
    """For one row: one for each weight, unless a layer says otherwise."""
    return sum(
        getattr(part, "multiplications", sum(p.numel() for p in part.parameters(recurse=False)))
        for part in module.modules()
    )
