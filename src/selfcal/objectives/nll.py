"""Negative log-likelihood."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from selfcal._support.top_label import known_labels
from selfcal.objectives._rows import mean_over_rows
from selfcal.training.interfaces import Objective
from selfcal.training.types import Batch, Output


@dataclass(frozen=True)
class NLL(Objective):
    """Mean of minus the log probability of the label.

    Example:
        >>> import torch
        >>> undecided = Output(torch.zeros(2, 4)), Batch(torch.zeros(2, 1), torch.tensor([0, 3]))
        >>> NLL()(*undecided).exp()
        tensor(4.)
    """

    def __call__(self, output: Output, batch: Batch) -> Tensor:
        """The mean over the rows."""
        y = known_labels(output.logits, batch.y)
        return mean_over_rows(F.cross_entropy(output.logits, y, reduction="none"), batch)
