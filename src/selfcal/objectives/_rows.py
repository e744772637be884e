"""Weighted means over the rows of a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal.training.types import Batch


def mean_over_rows(values: Tensor, batch: Batch) -> Tensor:
    """The mean of the values, weighted by the rows' own sample weights if they have any."""
    return values.mean(dim=0) if batch.weight is None else normalized_weights(batch, values) @ values


def normalized_weights(batch: Batch, like: Tensor) -> Tensor:
    """Return the normalised weight of each row; zero for all if no row has any, so that nothing is NaN."""
    weight = like.new_ones(len(batch.y)) if batch.weight is None else batch.weight.to(like)
    return weight / weight.sum().clamp(min=torch.finfo(weight.dtype).tiny)
