"""How the networks of a method that trains several are made and trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selfcal.ensembles.distillation import distil
from selfcal.ensembles.training import Rows, TrainedMembers, train_members
from selfcal.optimizers import Adam, AdamW
from selfcal.training.engine import TrainingResult
from selfcal.training.interfaces import OptimizerRule, Split
from selfcal.training.recipe import Candidate

USUAL = {
    "linear": Adam(lr=0.02),
    "additive": Adam(lr=0.01),
    "mlp": AdamW(lr=0.003, weight_decay=1.0),
    "tabular": AdamW(lr=0.002, weight_decay=0.3),
    "periodic": AdamW(lr=0.003, weight_decay=0.5),
    "waves": AdamW(lr=0.003, weight_decay=1.0),
}
"""What each kind of network does well with on batches of 256, found once over many sets and then fixed."""
OWN = Adam(lr=0.005)


@dataclass(frozen=True)
class MemberSettings:
    """What all candidates of a race have in common.

    Attributes:
        make: Makes a network of a kind for some rows, with a seed.
        rate: The step size of Adam, if it is not to be the usual one of a kind.
        max_epochs: Passes over the training rows at most.
        batch_size: Rows per step and network; None for all.
        early_stopping: Whether held-out rows decide when to stop.
        patience: Looks at them without improvement before training stops.
        seed: Of the first network; the others count on from it.
        verbose: Show a progress bar.
        folder: Where trainings save themselves, each in a folder of its own.
    """

    make: Callable[[str, Tensor, int], nn.Module]
    rate: float | None
    max_epochs: int
    batch_size: int | None
    early_stopping: bool
    patience: int | None
    seed: int
    verbose: bool | None = None
    folder: Path | None = None

    def train(
        self, rows: Rows, shares: Sequence[Split], candidate: Candidate, members: Sequence[int], limit: float
    ) -> TrainedMembers:
        """Train the networks of these numbers within so many seconds."""
        return train_members(
            [self.make(candidate.network, rows.x, self.seed + member) for member in members],
            [shares[member] for member in members],
            rows,
            recipe=candidate.recipe,
            early_stopping=self.early_stopping,
            max_seconds=limit,
            optimizer=self._optimizer(candidate),
            **self._training(f"{candidate.network}-{candidate.recipe.name}", members[0]),
        )

    def distil(self, teacher: nn.Module, rows: Rows, share: Split, kind: str) -> TrainingResult:
        """Teach what the teacher says to one network."""
        student = self.make(kind, rows.x, self.seed)
        y = torch.from_numpy(rows.y)
        training = self._training("distilled", 0)
        return distil(student, teacher, rows.x, y, share, optimizer=self._usual(kind), **training)

    def _usual(self, kind: str) -> Adam:
        usual = USUAL.get(kind, OWN)
        return usual if self.rate is None else replace(usual, lr=self.rate)

    def _optimizer(self, candidate: Candidate) -> OptimizerRule:
        """The usual one, without the settings that the outer model replaces."""
        outer = candidate.recipe.outer_model
        usual = self._usual(candidate.network)
        return usual if outer is None else outer.adapt_optimizer(usual)

    def _training(self, name: str, member: int) -> dict[str, Any]:
        return {
            "max_epochs": self.max_epochs,
            "batch_size": self.batch_size,
            "patience": self.patience,
            "seed": self.seed + member,
            "progress": self.verbose,
            "checkpoint": None if self.folder is None else self.folder / f"{name}-{member}",
        }
