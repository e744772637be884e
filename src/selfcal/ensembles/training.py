"""Networks trained on shares of the rows: what they say about rows they have not seen, and what they say as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp
from torch import Tensor, nn

from selfcal._support.checks import Float, Int
from selfcal.ensembles.batches import ParallelBatches
from selfcal.ensembles.modules import ParallelNetworks
from selfcal.training.batches import TensorBatches
from selfcal.training.engine import TrainingResult, train
from selfcal.training.interfaces import OptimizerRule, Split
from selfcal.training.problem import forward_in_blocks
from selfcal.training.recipe import Recipe

WIDEST = 20.0
"""Temperatures are looked for between a twentieth and twenty."""
ENOUGH_ROWS = 20_000
"""Rows that settle a temperature to a hundredth or two."""
CELLS = 2**18
"""Logits that are turned into probabilities at a time, so that few copies of them are in memory."""


@dataclass(frozen=True)
class Rows:
    """All rows as the networks see them, with label codes and sample weights."""

    x: Tensor
    y: Int
    weight: Float | None

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

    def _weights(self, used: Int) -> Tensor | None:
        if self.weight is None:
            return None
        return torch.from_numpy((self.weight / self.weight[used].mean()).astype(np.float32))


@dataclass(frozen=True)
class TrainedMembers:
    """Networks after training, with what each said about the rows it was kept away from.

    Attributes:
        members: The networks.
        votes: Logits of shape (votes, rows, classes): of every row, one vote for each network that has not seen it;
            NaN where there are fewer.
        result: What the training loop returned.
    """

    members: list[nn.Module]
    votes: Float
    result: TrainingResult

    def joined(self, other: TrainedMembers) -> TrainedMembers:
        """Both teams as one."""
        votes = _packed(np.concatenate([self.votes, other.votes]))
        return TrainedMembers([*self.members, *other.members], votes, other.result)


def train_members(
    modules: Sequence[nn.Module],
    shares: Sequence[Split],
    rows: Rows,
    *,
    recipe: Recipe,
    optimizer: OptimizerRule,
    max_epochs: int,
    batch_size: int | None,
    early_stopping: bool = True,
    seed: int = 0,
    **settings: Any,
) -> TrainedMembers:
    """Train each network on its share; the outer level and early stopping look at the rows that were held out.

    Args:
        modules: The networks, all of one make.
        shares: What each is trained on and kept away from.
        rows: All the rows.
        recipe: The method.
        optimizer: The inner optimiser rule.
        max_epochs: Passes over the training rows at most.
        batch_size: Rows per network and step; None for all.
        early_stopping: Return each network to the state with the lowest log loss on its held-out rows.
        seed: Seeds dropout and shuffling.
        **settings: Further arguments of `train`.
    """
    batches = rows.parallel_batches([share.train for share in shares], batch_size, seed)
    held_out = rows.parallel_batches([share.held_out for share in shares], batch_size, seed + 1)
    result = train(
        ParallelNetworks(modules),
        batches,
        held_out if recipe.needs_outer_data else None,
        held_out if early_stopping else None,
        recipe=replace(recipe, splitter=None, portfolio=()),
        optimizer=optimizer,
        max_steps=max_epochs * len(batches),
        seed=seed,
        **settings,
    )
    return TrainedMembers(list(modules), _votes(modules, shares, rows.x), result)


def pooled(votes: Float, temperature: float = 1.0) -> Float:
    """The mean of the votes' probabilities at a temperature; NaN where nobody has voted.

    Example:
        >>> pooled(np.array([[[0.0, 0.0]], [[np.nan, np.nan]]]))
        array([[0.5, 0.5]])
    """
    n_votes, n_rows, n_classes = votes.shape
    probs = np.full((n_rows, n_classes), np.nan)
    step = max(1, CELLS // (n_votes * n_classes))
    for start in range(0, n_rows, step):
        part = votes[:, start : start + step]
        cast = ~np.isnan(part[:, :, 0])
        logs = np.where(cast[:, :, None], log_softmax(np.nan_to_num(part) / temperature, axis=2), -np.inf)
        count = cast.sum(axis=0)
        said = np.flatnonzero(count)
        probs[start + said] = np.exp(logsumexp(logs[:, said], axis=0)) / count[said, None]
    return probs


def fitted_temperature(votes: Float, y: Int, weight: Float | None = None) -> float:
    """The temperature with the lowest log loss of the pooled votes, if there is a gain on rows it was not fitted on.

    Otherwise, one. Each fifth of the rows is judged by the temperature of the others. Some `ENOUGH_ROWS`, evenly
    spaced, are enough for a single number.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(2000, 3))
        >>> y = np.array([rng.choice(3, p=p) for p in np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)])
        >>> round(fitted_temperature(3 * logits[None], y), 1), fitted_temperature(logits[None], y)
        (3.0, 1.0)
    """
    voted = np.flatnonzero(~np.isnan(votes[0, :, 0]))
    voted = voted[:: max(1, len(voted) // ENOUGH_ROWS)]
    votes, y = votes[:, voted], y[voted]
    weight = np.ones(len(y)) if weight is None else weight[voted]
    fold = np.random.default_rng(0).permutation(len(y)) % 5

    def loss(rows: Any, temperature: float) -> float:
        losses = label_loss(pooled(votes[:, rows], temperature), y[rows])
        return float(losses @ weight[rows])

    def best(rows: Any) -> float:
        found = minimize_scalar(
            lambda log: loss(rows, float(np.exp(log))),
            bounds=(-np.log(WIDEST), np.log(WIDEST)),
            method="bounded",
        )
        return float(np.exp(found.x))

    gain = sum(loss(fold == k, 1.0) - loss(fold == k, best(fold != k)) for k in range(5) if (fold == k).any())
    return best(slice(None)) if len(y) >= 5 and gain > 0 else 1.0


def label_loss(probs: Float, y: Int) -> Float:
    """Minus the log probability of each label, never infinite."""
    losses: Float = -np.log(np.maximum(probs[np.arange(len(y)), y], np.finfo(np.float64).tiny))
    return losses


def _votes(modules: Sequence[nn.Module], shares: Sequence[Split], x: Tensor) -> Float:
    said: list[tuple[Int, Float]] = [
        (share.held_out, forward_in_blocks(module, x[share.held_out]).double().numpy())
        for module, share in zip(modules, shares, strict=True)
    ]
    count = np.bincount(np.concatenate([rows for rows, _ in said]), minlength=len(x))
    votes, given = np.full((count.max(), len(x), said[0][1].shape[1]), np.nan), np.zeros_like(count)
    for rows, logits in said:
        votes[given[rows], rows] = logits
        given[rows] += 1
    return votes


def _packed(votes: Float) -> Float:
    """The same votes with those of each row moved to the front, and no empty layers at the end."""
    missing = np.isnan(votes[:, :, 0])
    order = np.argsort(missing, axis=0, kind="stable")[: max(1, int((~missing).sum(axis=0).max()))]
    packed: Float = np.take_along_axis(votes, order[:, :, None], axis=0)
    return packed
