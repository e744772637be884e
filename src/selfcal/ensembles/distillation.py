"""Distillation: one network trained to predict what an ensemble predicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from selfcal import losses
from selfcal._support.checks import Int
from selfcal.ensembles.folds import Split
from selfcal.ensembles.mixing import log_losses
from selfcal.ensembles.training import Rows
from selfcal.training.batches import TensorBatches
from selfcal.training.engine import TrainingResult, train
from selfcal.training.inputs import single
from selfcal.training.interfaces import BatchTransform, OptimizerRule
from selfcal.training.problem import forward_in_blocks
from selfcal.training.recipe import Recipe
from selfcal.training.types import Batch


@dataclass(frozen=True, eq=False)
class Teacher(BatchTransform):
    """Passes the teacher's probabilities for each row to the loss.

    Args:
        probs: The teacher's probabilities, one row for each training row.

    Example:
        >>> teacher = Teacher(torch.tensor([[0.9, 0.1], [0.3, 0.7]]))
        >>> teacher(Batch(torch.zeros(1, 2), torch.tensor([0]), index=torch.tensor([1]))).hyper
        {'teacher': tensor([[0.3000, 0.7000]])}
    """

    probs: Tensor
    provides = frozenset({"teacher"})

    def __call__(self, batch: Batch) -> Batch:
        """The same rows, with the teacher's probabilities."""
        assert batch.index is not None
        return replace(
            batch,
            hyper=batch.hyper | {"teacher": self.probs.to(single(batch.x, "Distillation"))[batch.index]},
        )

    def __repr__(self) -> str:
        """Its size alone: a checkpoint identifies the run by its data."""
        return f"Teacher({tuple(self.probs.shape)})"


def distil(
    student: nn.Module,
    teacher: nn.Module,
    x: Tensor,
    y: Tensor,
    split: Split,
    *,
    optimizer: OptimizerRule,
    batch_size: int | None,
    max_epochs: int,
    **settings: Any,
) -> TrainingResult:
    """Train a student on a teacher's probabilities, up to the lowest log loss on the held-out rows.

    Args:
        student: The network to train.
        teacher: The network to learn from.
        x: All rows.
        y: Their label codes, which decide when to stop.
        split: The rows to train on, and those to hold out.
        optimizer: The optimiser rule.
        batch_size: Rows per step.
        max_epochs: Passes at most.
        **settings: Further arguments of `train`.

    Reference:
        Hinton, Vinyals and Dean, Distilling the knowledge in a neural network, 2015.
    """
    own, held_out = (torch.from_numpy(np.asarray(rows)) for rows in split)
    probs = forward_in_blocks(teacher, x[own]).softmax(dim=1)
    recipe = Recipe(name="distilled", loss=losses.soft_cross_entropy, transform=Teacher(probs))
    batches = TensorBatches(x[own], y[own], batch_size=batch_size, seed=int(settings.get("seed", 0)))
    return train(
        student,
        batches,
        selection_data=TensorBatches(x[held_out], y[held_out], batch_size=batch_size),
        recipe=recipe,
        optimizer=optimizer,
        max_steps=max_epochs * len(batches),
        **settings,
    )


def cost_of_distilling(
    student: nn.Module, teacher: nn.Module, rows: Rows, groups: Int, *, trained_on: int
) -> dict[str, Any]:
    """What a student loses against its teacher, on rows that no part of either has seen.

    Args:
        student: The student.
        teacher: The teacher.
        rows: The rows.
        groups: A number for each row; the standard error counts each group as one observation.
        trained_on: Number of rows that both were trained on.

    Returns:
        Mean log losses of both, their difference (the cost) and its standard error, the numbers of rows, and a
        sentence on how they were measured.
    """
    losses = [
        log_losses(forward_in_blocks(module, rows.x).double().softmax(dim=1).numpy(), rows.y)
        for module in (student, teacher)
    ]
    weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
    means = [float(np.average(one, weights=weight)) for one in losses]
    cost = means[0] - means[1]
    _, group = np.unique(groups, return_inverse=True)
    deviations = np.bincount(group, weight * (losses[0] - losses[1] - cost))
    n_groups = len(deviations)
    spread = n_groups / (n_groups - 1) if n_groups > 1 else float("nan")
    return {
        "log_loss": means[0],
        "teacher_log_loss": means[1],
        "cost": cost,
        "standard_error": float(np.sqrt(spread * (deviations**2).sum()) / weight.sum()),
        "held_out_rows": len(rows.y),
        "training_rows": trained_on,
        "measured": (
            f"The cost of one network was measured on {len(rows.y):,} rows that a network and an ensemble trained on "
            f"the other {trained_on:,} have not seen; the model that predicts was trained on all."
        ),
    }
