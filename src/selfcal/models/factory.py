"""Networks for the rows of a table, by kind and seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from selfcal._support.random_streams import seeded
from selfcal.models.own import own_network
from selfcal.models.tables import for_table

OWN = "own"
"""The kind of a network that the user's own function makes."""


@dataclass(frozen=True)
class NetworkFactory:
    """Makes untrained networks for a table.

    Args:
        n_classes: Classes, one logit each.
        hidden: Widths of the hidden layers; None for the default of each kind.
        own: The user's function ``(n_features, n_classes) -> nn.Module``, which makes networks of the kind `OWN`.

    Example:
        >>> import torch
        >>> NetworkFactory(n_classes=3)("linear", torch.randn(10, 2), seed=0)
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
        )
    """

    n_classes: int
    hidden: Sequence[int] | None = None
    own: Callable[[int, int], nn.Module] | None = None

    def __call__(self, kind: str, x: Tensor, seed: int) -> nn.Module:
        """A network of this kind for these rows; the seed alone decides about its initial weights."""
        with seeded(seed):
            if kind != OWN:
                return for_table(kind, x, self.n_classes, hidden=self.hidden)
            assert self.own is not None
            return own_network(self.own, x, self.n_classes)
