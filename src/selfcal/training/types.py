"""Types of the values that the parts of a method exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from selfcal.training.inputs import Inputs, change

OuterParams = dict[str, Tensor]
"""The outer parameters by name, e.g. ``{"weight": ...}``."""
NetworkParams = dict[str, Tensor]
"""The trainable parameters of one network by name, or a value for each of them."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of data.

    `x` is the network's input: a tensor, or a tuple or dictionary of tensors, with which it is called as
    ``module(*x)`` or ``module(**x)``. `index` is their position in the training set; outer rows have none, so that
    nothing learned per training row can be looked up for them. `weight` is the user's sample weight. `hyper` holds
    the keyword arguments that a batch transform passes to the loss.
    """

    x: Inputs
    y: Tensor
    index: Tensor | None = None
    weight: Tensor | None = None
    hyper: dict[str, Tensor] = field(default_factory=dict)

    def part(self, rows: slice | Tensor) -> Batch:
        """Some of the rows, by a slice, their places or a mask."""
        return Batch(
            change(self.x, lambda values: values[rows]),
            self.y[rows],
            None if self.index is None else self.index[rows],
            None if self.weight is None else self.weight[rows],
            {name: values[rows] for name, values in self.hyper.items()},
        )

    def to(self, like: Tensor) -> Batch:
        """The same rows where `like` is, with its floating-point type."""

        def moved(part: Tensor) -> Tensor:
            return part.to(like) if part.is_floating_point() else part.to(like.device)

        return Batch(
            change(self.x, moved),
            self.y.to(like.device),
            None if self.index is None else self.index.to(like.device),
            None if self.weight is None else self.weight.to(like),
            {name: moved(part) for name, part in self.hyper.items()},
        )


class Output(NamedTuple):
    """The output of the network for a batch.

    `logits` have the shape (rows, classes); in training, of a network with several members, (rows, members, classes).
    `features` is the input of its last linear layer, the head, and `head` that layer's weight; both are None unless
    the outer model reads them. Features are constants in the training loss: no gradient flows through them. `seen`
    are the logits that are constants in it, if they are not those of this output.
    """

    logits: Tensor
    features: Tensor | None = None
    head: Tensor | None = None
    seen: Tensor | None = None

    @property
    def by_member(self) -> tuple[Tensor, ...]:
        """The logits of each member, each of shape (rows, classes)."""
        return (self.logits,) if self.logits.ndim == 2 else self.logits.unbind(dim=1)

    @property
    def as_data(self) -> Tensor:
        """The logits as input of an outer model, (rows, classes): no gradient flows through them."""
        logits = self.logits.detach() if self.seen is None else self.seen
        return logits if logits.ndim == 2 else logits.log_softmax(dim=2).logsumexp(dim=1)

    def map(self, change: Callable[[Tensor], Tensor]) -> Output:
        """Apply `change` to the parts that gradients flow through."""
        head = None if self.head is None else change(self.head)
        return Output(change(self.logits), self.features, head, self.seen)

    def detach(self) -> Output:
        """The same without a graph."""
        return self.map(Tensor.detach)


class Sizes(NamedTuple):
    """The dimensions of the problem.

    `n_classes` and `n_features` are those of the network's head, None if it has no linear layer. `shapes` are the
    shapes of the trainable parameters by name; of one network, if several are trained side by side.
    """

    n_train: int
    n_classes: int | None = None
    n_features: int | None = None
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
