"""The logits of a module for rows given in any form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import DataLoader

from selfcal._support.checks import Float, Int
from selfcal.errors import DataError
from selfcal.training.batches import as_batch
from selfcal.training.inputs import Inputs, as_inputs, change, split_labels, tensor
from selfcal.training.problem import forward_in_blocks

Rows = ArrayLike | Tensor | tuple[Tensor, ...] | Mapping[str, Tensor] | DataLoader[Any]
"""The input of a model: an array or a tensor, or for modules several of them, or a loader."""


def module_logits(module: nn.Module, rows: Rows) -> tuple[Float, Int | None, Float | None]:
    """Logits of all rows, batch by batch, and the labels and sample weights of a loader that has them.

    The passes are in evaluation mode, where the module lives; floating point is as its parameters have it.
    """
    like = next(module.parameters(), torch.zeros(()))

    def moved(part: Tensor) -> Tensor:
        return part.to(device=like.device, dtype=like.dtype if part.is_floating_point() else part.dtype)

    batches = _batches(rows) if isinstance(rows, DataLoader) else iter([(_inputs(rows), None, None)])
    parts = [(forward_in_blocks(module, change(x, moved)).double().cpu(), y, w) for x, y, w in batches]
    if not parts:
        raise DataError("The DataLoader must yield at least one batch; got no batch.")
    labels = [y for _, y, _ in parts if y is not None]
    weights = [w for _, _, w in parts if w is not None]
    for name, found in (("labels", labels), ("sample weights", weights)):
        if 0 < len(found) < len(parts):
            raise DataError(f"All batches of a DataLoader must have {name}, or none; got some without.")
    return (
        torch.cat([logits for logits, _, _ in parts]).numpy(),
        torch.cat(labels).cpu().numpy() if labels else None,
        torch.cat(weights).double().cpu().numpy() if weights else None,
    )


def _inputs(rows: Any) -> Inputs:
    several = isinstance(rows, tuple) and all(isinstance(part, Tensor) for part in rows)
    return as_inputs(rows if several or isinstance(rows, (Tensor, Mapping)) else np.asarray(rows))


def _batches(loader: DataLoader[Any]) -> Iterator[tuple[Inputs, Tensor | None, Tensor | None]]:
    """Input, labels and weights of each batch: as in training, or the input alone."""
    for rows in loader:
        if isinstance(rows, (tuple, list)) and len(rows) == 1:
            yield as_inputs(rows[0]), None, None
        elif isinstance(rows, Tensor):
            yield rows, None, None
        elif isinstance(rows, Mapping):
            x, y, weight = split_labels(rows)
            yield x, None if y is None else tensor(y), None if weight is None else tensor(weight)
        else:
            batch = as_batch(rows)
            yield batch.x, batch.y, batch.weight
