"""Noise that is added to the network's input in training."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal._support.random_streams import generator
from selfcal.errors import ConfigError
from selfcal.training.inputs import Inputs, single
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes


@dataclass(frozen=True)
class InputNoise(OuterModel):
    """Normal noise on the input, resampled at every step, in training only: the network's input is ``x + σ ε``.

    It regularises the network: its output changes little within σ of a training row. The outer parameter is the
    logarithm of σ to base 10. All features are assumed to have the same scale.

    Args:
        start: The standard deviation σ before training.
        bounds: The smallest and the largest σ.

    Example:
        >>> import torch
        >>> noise = InputNoise(start=0.1)
        >>> outer = noise.init(Sizes(n_train=100), like=torch.zeros(()))
        >>> round(float(noise.network_input(outer, torch.zeros(1000, 10)).std()), 2)
        0.1

    Reference:
        Bishop, Training with noise is equivalent to Tikhonov regularization, 1995.
    """

    start: float = 0.1
    bounds: tuple[float, float] = (1e-3, 1.0)
    provides = frozenset()

    def __post_init__(self) -> None:
        least, most = self.bounds
        in_range("the first of bounds", least, 0, most, open_low=True)
        in_range("start", self.start, least, most)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """The starting value."""
        return {"log10_noise": torch.tensor(math.log10(self.start), dtype=like.dtype, device=like.device)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """No hyperparameters: the loss stays as it is."""
        return {}

    def network_input(self, outer: OuterParams, x: Inputs) -> Tensor:
        """The rows with noise, differentiable in its scale."""
        x = single(x, "InputNoise")
        if not x.is_floating_point():
            raise ConfigError(
                f"InputNoise needs input of real numbers; got {x.dtype}. Leave it out for networks with integer "
                "input."
            )
        noise = torch.randn(x.shape, dtype=x.dtype, device=x.device, generator=generator(x.device))
        return x + (outer["log10_noise"] * math.log(10)).exp() * noise

    def project(self, outer: OuterParams) -> OuterParams:
        """Back within the bounds."""
        least, most = map(math.log10, self.bounds)
        return {"log10_noise": outer["log10_noise"].clamp(least, most)}
