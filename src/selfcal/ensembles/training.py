"""Members of an ensemble trained side by side, and their predictions for the rows held out from each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from selfcal._support.checks import Float, Int
from selfcal.ensembles.batches import ParallelBatches
from selfcal.ensembles.folds import Split
from selfcal.ensembles.modules import ParallelNetworks
from selfcal.tabular.features import FeatureGroups
from selfcal.training.batches import TensorBatches
from selfcal.training.engine import TrainingResult, train
from selfcal.training.interfaces import OptimizerRule
from selfcal.training.problem import forward_in_blocks
from selfcal.training.recipe import Recipe


@dataclass(frozen=True)
class Rows:
    """All rows as the networks see them, with label codes and sample weights.

    Attributes:
        x: The features.
        y: The label codes.
        weight: The sample weights; None for equal ones.
        groups: The features that belong together; None if each one stands for itself.
    """

    x: Tensor
    y: Int
    weight: Float | None
    groups: FeatureGroups | None = None

    def taken(self, rows: Int) -> Rows:
        """Some of these rows."""
        weight = None if self.weight is None else self.weight[rows]
        return Rows(self.x[rows], self.y[rows], weight, self.groups)

    def batches(self, rows: Int, batch_size: int | None, seed: int) -> TensorBatches:
        """These rows for one network, in batches; the weights are one on average."""
        weight = self._weights(rows)
        y, own = torch.from_numpy(self.y[rows]), None if weight is None else weight[rows]
        return TensorBatches(self.x[rows], y, own, batch_size=batch_size, seed=seed)

    def parallel_batches(self, rows: Sequence[Int], batch_size: int | None, seed: int) -> ParallelBatches:
        """The rows of each network, in batches; the weights are one on average."""
        weight = self._weights(np.unique(np.concatenate(rows)))
        y, own = torch.from_numpy(self.y), [torch.from_numpy(part) for part in rows]
        return ParallelBatches(self.x, y, weight, rows=own, batch_size=batch_size, seed=seed)

    def __reduce__(self) -> tuple[Any, ...]:
        """As NumPy arrays, which joblib sends to other processes once."""
        return _rows_of, (self._array, self.y, self.weight, self.groups)

    @cached_property
    def _array(self) -> NDArray[np.float32]:
        """The features, always as the same object."""
        return self.x.numpy()

    def _weights(self, used: Int) -> Tensor | None:
        if self.weight is None:
            return None
        return torch.from_numpy((self.weight / self.weight[used].mean()).astype(np.float32))


def _rows_of(x: NDArray[np.float32], y: Int, weight: Float | None, groups: FeatureGroups | None) -> Rows:
    return Rows(torch.from_numpy(x), y, weight, groups)


@dataclass(frozen=True)
class TrainedMembers:
    """Networks after training, with their predictions for the rows held out from each.

    Attributes:
        members: The networks.
        held_out_logits: Of shape (predictions, rows, classes): for each row, one prediction of each network that it
            was held out from; NaN where there are fewer.
        result: The result of the training loop.
    """

    members: list[nn.Module]
    held_out_logits: Float
    result: TrainingResult

    def joined(self, other: TrainedMembers) -> TrainedMembers:
        """The members of both."""
        logits = _packed(np.concatenate([self.held_out_logits, other.held_out_logits]))
        return TrainedMembers([*self.members, *other.members], logits, other.result)


def train_members(
    modules: Sequence[nn.Module],
    splits: Sequence[Split],
    rows: Rows,
    *,
    recipe: Recipe,
    optimizer: OptimizerRule,
    max_epochs: int,
    batch_size: int | None,
    early_stopping: bool = True,
    **settings: Any,
) -> TrainedMembers:
    """Train each network on its training rows; the outer level and early stopping use the rows held out from it.

    Args:
        modules: The networks, all of one architecture.
        splits: The training and held-out rows of each.
        rows: All rows.
        recipe: The recipe that trains them.
        optimizer: The inner optimiser rule.
        max_epochs: Passes over the training rows at most.
        batch_size: Rows per network and step; None for all.
        early_stopping: Return each network to the state with the lowest log loss on its held-out rows.
        **settings: Further arguments of `train`; its `seed` also decides the order of the rows.
    """
    seed = int(settings.get("seed", 0))
    batches = rows.parallel_batches([split.train for split in splits], batch_size, seed)
    held_out = rows.parallel_batches([split.held_out for split in splits], batch_size, seed + 1)
    result = train(
        ParallelNetworks(modules),
        batches,
        held_out if recipe.needs_outer_data else None,
        held_out if early_stopping else None,
        recipe=recipe,
        optimizer=optimizer,
        max_steps=max_epochs * len(batches),
        **settings,
    )
    return TrainedMembers(list(modules), held_out_logits(modules, splits, rows.x), result)


def held_out_logits(modules: Sequence[nn.Module], splits: Sequence[Split], x: Tensor) -> Float:
    """The predictions of each module for the rows held out from it, as in `TrainedMembers`."""
    predicted: list[tuple[Int, Float]] = [
        (split.held_out, forward_in_blocks(module, x[split.held_out]).double().numpy())
        for module, split in zip(modules, splits, strict=True)
    ]
    count = np.bincount(np.concatenate([rows for rows, _ in predicted]), minlength=len(x))
    filled = np.zeros_like(count)
    logits = np.full((count.max(), len(x), predicted[0][1].shape[1]), np.nan)
    for rows, own in predicted:
        logits[filled[rows], rows] = own
        filled[rows] += 1
    return logits


def _packed(logits: Float) -> Float:
    """The same predictions with those of each row moved to the front, and no empty layers at the end."""
    missing = np.isnan(logits[:, :, 0])
    order = np.argsort(missing, axis=0, kind="stable")[: max(1, int((~missing).sum(axis=0).max()))]
    packed: Float = np.take_along_axis(logits, order[:, :, None], axis=0)
    return packed
