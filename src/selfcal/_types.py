"""The shapes of things that move between the parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

OuterParams = dict[str, Tensor]
"""The outer parameters by name, e.g. ``{"weight": ...}``."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of data.

    `index` is their place in the training set; outer rows have none, so that nothing learned per training
    row can be looked up for them. `weight` is the user's sample weight.
    """

    x: Tensor
    y: Tensor
    index: Tensor | None = None
    weight: Tensor | None = None

    def to(self, like: Tensor) -> Batch:
        """The same rows where `like` is, with its floating-point type."""
        x = self.x.to(like) if self.x.is_floating_point() else self.x.to(like.device)
        index = None if self.index is None else self.index.to(like.device)
        return Batch(x, self.y.to(like.device), index, None if self.weight is None else self.weight.to(like))


class Output(NamedTuple):
    """What the network says about a batch."""

    logits: Tensor

    def detach(self) -> Output:
        """The same without a graph."""
        return Output(self.logits.detach())
