"""A weight decay for each layer of the network."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.errors import ConfigError
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes


@dataclass(frozen=True)
class LayerDecay(OuterModel):
    """Decoupled weight decay, learned: with a step of size lr, the weights W of layer l also lose ``lr λ_l W``.

    Biases and other vectors do not decay. The same layer of networks that are trained side by side has the same λ.
    What is learned is the logarithm of λ to base 10: to go from a weak decay to a strong one takes as many outer
    steps as to go back.

    Args:
        start: Every λ before training.
        bounds: The least λ and the largest.

    Example:
        >>> import torch
        >>> decay = LayerDecay(start=0.1)
        >>> outer = decay.init(Sizes(n_train=100, n_layers=3), like=torch.zeros(()))
        >>> outer["log10_decay"], decay.decay(outer)
        (tensor([-1., -1., -1.]), tensor([0.1000, 0.1000, 0.1000]))

    Reference:
        Loshchilov and Hutter, Decoupled weight decay regularization, 2019.
    """

    start: float = 0.3
    bounds: tuple[float, float] = (1e-3, 10.0)
    provides = frozenset()
    decays = True

    def __post_init__(self) -> None:
        least, most = self.bounds
        in_range("the first of bounds", least, 0, most, open_low=True)
        in_range("start", self.start, least, most)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """Equal coefficients, one for each layer with a weight matrix."""
        if not sizes.n_layers:
            raise ConfigError(
                "LayerDecay makes weight matrices shrink, and this network has none that is trained: no parameter "
                'with two axes or more whose name ends in "weight".'
            )
        start = math.log10(self.start)
        return {"log10_decay": torch.full((sizes.n_layers,), start, dtype=like.dtype, device=like.device)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """Nothing: the loss is left as it is."""
        return {}

    def decay(self, outer: OuterParams) -> Tensor:
        """The coefficients themselves."""
        return (outer["log10_decay"] * math.log(10)).exp()

    def project(self, outer: OuterParams) -> OuterParams:
        """Back within the bounds."""
        least, most = map(math.log10, self.bounds)
        return {"log10_decay": outer["log10_decay"].clamp(least, most)}
