"""A focal-loss gamma for every row, from a small network on the features of the classifier."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range, positive_int
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes


@dataclass(frozen=True)
class GammaNet(OuterModel):
    """γ-Net: attention over k learned directions, then one linear unit.

    With x the input of the network's head, ``p = softmax(x A)``, ``x̃ = p Aᵀ`` and ``γ = |x̃ W| / τ``. It is used in
    training only. No gradient of the training loss flows through γ into the network, which could otherwise lower the
    loss by changing γ. A starts with random directions and W so that γ is one for every row.

    Args:
        directions: The number of directions k; by default the number of classes.
        temperature: The divisor τ. The smaller, the faster γ changes with A and W.
        layer: The name of the linear layer whose input is read; by default the network's last one.
        seed: Of the random directions.

    Example:
        >>> import torch
        >>> net = GammaNet()
        >>> outer = net.init(Sizes(n_train=100, n_classes=3, n_features=4), like=torch.zeros(()))
        >>> output = Output(torch.zeros(2, 3), features=torch.tensor([[1.0, 2, 3, 4], [0, 0, 9, 0]]))
        >>> net(outer, output, Batch(torch.zeros(2, 1), torch.tensor([0, 1])))["gamma"]
        tensor([1.0000, 1.0000])

    Reference:
        Towards unbiased calibration using meta-regularization, eqs. 3-4 (anonymous submission).
    """

    directions: int | None = None
    temperature: float = 0.01
    layer: str | None = None
    seed: int = 0
    provides = frozenset({"gamma"})
    reads_head = True

    def __post_init__(self) -> None:
        in_range("temperature", self.temperature, 0, open_low=True)
        if self.directions is not None:
            positive_int("directions", self.directions)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """Random directions, each with the same component along a random unit vector W."""
        assert sizes.n_features is not None
        assert sizes.n_classes is not None
        d, k = sizes.n_features, self.directions or sizes.n_classes
        generator = torch.Generator().manual_seed(self.seed)
        unit = torch.nn.functional.normalize(torch.randn(d, dtype=torch.float64, generator=generator), dim=0)
        free = torch.randn(d, k, dtype=torch.float64, generator=generator) / d**0.5
        directions = free + torch.outer(unit, self.temperature - unit @ free)
        return {"directions": directions.to(like), "unit": unit.to(like)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """A gamma for each row."""
        assert output.features is not None
        attention = torch.softmax(output.features @ outer["directions"], dim=-1)
        return {"gamma": (attention @ (outer["directions"].T @ outer["unit"])).abs() / self.temperature}

    def project(self, outer: OuterParams) -> OuterParams:
        """All values of A and W are allowed."""
        return outer
