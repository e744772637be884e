"""The shapes of things that move between the parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

OuterParams = dict[str, Tensor]
"""The outer parameters by name, e.g. ``{"weight": ...}``."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of data.

    `index` is their place in the training set; outer rows have none, so that nothing learned per training
    row can be looked up for them. `weight` is the user's sample weight. `hyper` holds what a batch transform
    tells the loss about the rows, by the name of the loss's keyword.
    """

    x: Tensor
    y: Tensor
    index: Tensor | None = None
    weight: Tensor | None = None
    hyper: dict[str, Tensor] = field(default_factory=dict)

    def to(self, like: Tensor) -> Batch:
        """The same rows where `like` is, with its floating-point type."""

        def moved(part: Tensor) -> Tensor:
            return part.to(like) if part.is_floating_point() else part.to(like.device)

        return Batch(
            moved(self.x),
            self.y.to(like.device),
            None if self.index is None else self.index.to(like.device),
            None if self.weight is None else self.weight.to(like),
            {name: moved(part) for name, part in self.hyper.items()},
        )


class Output(NamedTuple):
    """What the network says about a batch.

    `features` is what its last linear layer, the head, was given, and `head` that layer's weight; they are there
    if the outer model reads them. Features are data to the training loss: no gradient flows through them. `seen` are
    the logits that are data to it, where they are not those of this very output.
    """

    logits: Tensor
    features: Tensor | None = None
    head: Tensor | None = None
    seen: Tensor | None = None

    @property
    def as_data(self) -> Tensor:
        """The logits for an outer model to look at: no gradient flows through them."""
        return self.logits.detach() if self.seen is None else self.seen

    def map(self, change: Callable[[Tensor], Tensor]) -> Output:
        """The same with the parts changed that gradients flow through."""
        head = None if self.head is None else change(self.head)
        return Output(change(self.logits), self.features, head, self.seen)

    def detach(self) -> Output:
        """The same without a graph."""
        return self.map(Tensor.detach)


class Sizes(NamedTuple):
    """How large the problem is; what only the network's head can tell is None if there is no head.

    `n_layers` counts the layers with a weight matrix; those of one network, where several are trained side by side.
    """

    n_train: int
    n_classes: int | None = None
    n_features: int | None = None
    n_layers: int = 0
