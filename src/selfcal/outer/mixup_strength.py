"""How strongly rows are mixed with each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.training.inputs import Inputs, single
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes


@dataclass(frozen=True)
class MixupStrength(OuterModel):
    """Mixup of a learned strength m in [0, 1]: ``x = s x_i + (1 - s) x_j`` with s spread evenly over [1 - m/2, 1].

    `Mixup` draws s from a Beta distribution, which cannot be differentiated in its parameter by a draw; here s is
    linear in m. Each row is mixed with the one before it in its batch, with an s that depends on its place: both are
    random where batches are shuffled. The label of the other row and s are passed to the loss as `other` and
    `share`; see `losses.mixed_cross_entropy`.

    Args:
        start: The strength before training; 0 leaves all rows as they are.

    Example:
        >>> import torch
        >>> strength = MixupStrength(start=1.0)
        >>> outer = strength.init(Sizes(n_train=100), like=torch.zeros(()))
        >>> strength.network_input(outer, torch.tensor([[0.0], [8.0]])).flatten()
        tensor([1., 5.])

    Reference:
        Zhang, Cisse, Dauphin and Lopez-Paz, mixup: beyond empirical risk minimization, 2018.
    """

    start: float = 0.3
    provides = frozenset({"other", "share"})

    def __post_init__(self) -> None:
        in_range("start", self.start, 0, 1)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """The starting value."""
        return {"strength": torch.tensor(self.start, dtype=like.dtype, device=like.device)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The other row's label and the share of each row."""
        return {"other": batch.y.roll(1), "share": _share(outer["strength"], len(batch.y))}

    def network_input(self, outer: OuterParams, x: Inputs) -> Tensor:
        """The mixed rows, differentiable in the strength."""
        x = single(x, "MixupStrength")
        share = _share(outer["strength"], len(x)).view(-1, *[1] * (x.ndim - 1))
        return torch.lerp(x.roll(1, dims=0), x, share)

    def project(self, outer: OuterParams) -> OuterParams:
        """Back into [0, 1]."""
        return {"strength": outer["strength"].clamp(0, 1)}


def _share(strength: Tensor, n_rows: int) -> Tensor:
    places = torch.arange(n_rows, dtype=strength.dtype, device=strength.device)
    return 1 - strength * (places + 0.5) / (2 * n_rows)
