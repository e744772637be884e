"""Rules that select rows in training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range, positive_int
from selfcal.training.interfaces import DataSelection
from selfcal.training.types import Batch, Output


@dataclass(frozen=True)
class DynamicPruning(DataSelection):
    """Every few passes the rows that are predicted with the least confidence leave the training set for good.

    The importance of a row is a moving average of the largest of its probabilities, ``κ c + (1 - κ) e`` with c the
    confidence in the latest step and e the average so far, which starts at the first c. A class that is predicted
    with little confidence may lose most of its rows. With a batch transform, rows are judged as it has changed them.

    Args:
        fraction: The fraction of the remaining rows that leaves, rounded down.
        every: The number of passes between two times; a pass is shorter, the fewer rows remain.
        momentum: The weight κ of the latest confidence in the average.
        least: Rows leave only as long as this fraction of all rows remains.

    Example:
        Ten rows, and the two with the smallest average leave before the second pass:

        >>> rule = DynamicPruning(fraction=0.2, every=1)
        >>> state, logits = rule.init(10), torch.stack([torch.arange(10.0), torch.zeros(10)], dim=1)
        >>> rule.observe(state, Output(logits), Batch(logits, torch.zeros(10), torch.arange(10)))
        >>> rule.keep(state, torch.ones(10, dtype=torch.bool), 1).nonzero()[:, 0].tolist()
        [2, 3, 4, 5, 6, 7, 8, 9]

    Reference:
        Patra, Hebbalaguppe, Dash, Shroff and Vig, Calibrating deep neural networks using explicit regularisation and
        dynamic data pruning, 2023. `least` and the defaults are ours.
    """

    fraction: float = 0.1
    every: int = 5
    momentum: float = 0.3
    least: float = 0.5

    def __post_init__(self) -> None:
        in_range("fraction", self.fraction, 0, 1, open_low=True)
        positive_int("every", self.every)
        in_range("momentum", self.momentum, 0, 1, open_low=True)
        in_range("least", self.least, 0, 1, open_low=True)

    def init(self, n_train: int) -> dict[str, Tensor]:
        """Infinite importance for rows that were not seen yet: they stay."""
        return {"importance": torch.full((n_train,), torch.inf, dtype=torch.float64)}

    def observe(self, state: dict[str, Tensor], output: Output, batch: Batch) -> None:
        """Update the averages of these rows."""
        assert batch.index is not None
        confidence = output.as_data.softmax(dim=-1).amax(dim=-1).double().cpu()
        importance, rows = state["importance"], batch.index.cpu()
        before = importance[rows]
        importance[rows] = torch.where(
            before.isinf(), confidence, torch.lerp(before, confidence, self.momentum)
        )

    def keep(self, state: dict[str, Tensor], kept: Tensor, number: int) -> Tensor:
        """All but the least important of the rows, every few passes."""
        if number % self.every:
            return kept
        rows = kept.nonzero()[:, 0]
        n_leaving = min(int(self.fraction * len(rows)), len(rows) - max(1, int(self.least * len(kept))))
        importance = state["importance"][rows]
        leaving = importance.argsort(stable=True)[: max(0, n_leaving)]
        kept = kept.clone()
        kept[rows[leaving[importance[leaving].isfinite()]]] = False
        return kept
