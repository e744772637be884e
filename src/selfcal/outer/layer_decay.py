"""A weight decay for each layer of the network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.errors import ConfigError
from selfcal.training.interfaces import OptimizerRule, OuterModel
from selfcal.training.types import Batch, NetworkParams, OuterParams, Output, Sizes


@dataclass(frozen=True)
class LayerDecay(OuterModel):
    """Learned decoupled weight decay: a step of size lr also subtracts ``lr λ_l W`` from the weights W of layer l.

    Biases and other vectors do not decay. Networks that are trained side by side share the λ of each layer. The
    outer parameter is the logarithm of λ to base 10, so that an outer step multiplies λ by a factor. It replaces
    the weight decay of the optimiser.

    Args:
        start: λ of every layer before training.
        bounds: The smallest and the largest λ.

    Example:
        >>> import torch
        >>> decay = LayerDecay(start=0.1)
        >>> shapes = {"0.weight": (3, 2), "0.bias": (3,), "1.weight": (2, 3)}
        >>> outer = decay.init(Sizes(n_train=100, shapes=shapes), like=torch.zeros(()))
        >>> outer["log10_decay"], decay.coefficients(outer)
        (tensor([-1., -1.]), tensor([0.1000, 0.1000]))

    Reference:
        Loshchilov and Hutter, Decoupled weight decay regularization, 2019.
    """

    start: float = 0.3
    bounds: tuple[float, float] = (1e-3, 10.0)
    provides = frozenset()
    changes_update = True

    def __post_init__(self) -> None:
        least, most = self.bounds
        in_range("the first of bounds", least, 0, most, open_low=True)
        in_range("start", self.start, least, most)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """Equal coefficients, one for each layer with a weight matrix."""
        n_layers = sum(_is_matrix(name, shape) for name, shape in sizes.shapes.items())
        if not n_layers:
            raise ConfigError(
                "LayerDecay needs a network with a trainable weight matrix, that is a parameter with two or more "
                f'axes whose name ends in "weight"; got {", ".join(sizes.shapes) or "no parameters"}. Use another '
                "outer model."
            )
        start = math.log10(self.start)
        return {"log10_decay": torch.full((n_layers,), start, dtype=like.dtype, device=like.device)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """No hyperparameters: the loss stays as it is."""
        return {}

    def coefficients(self, outer: OuterParams) -> Tensor:
        """λ of each layer."""
        return (outer["log10_decay"] * math.log(10)).exp()

    def update_term(self, outer: OuterParams, members: Sequence[NetworkParams]) -> list[NetworkParams]:
        """``λ_l W`` for the weight matrix W of each layer."""
        coefficients = self.coefficients(outer)
        matrices = (
            {name: value for name, value in member.items() if _is_matrix(name, value.shape)}
            for member in members
        )
        return [
            {name: c * value for (name, value), c in zip(own.items(), coefficients, strict=True)}
            for own in matrices
        ]

    def adapt_optimizer(self, rule: OptimizerRule) -> OptimizerRule:
        """The rule without its own weight decay."""
        has_decay = bool(getattr(rule, "weight_decay", 0.0))
        return replace(cast(Any, rule), weight_decay=0.0) if has_decay else rule

    def project(self, outer: OuterParams) -> OuterParams:
        """Back within the bounds."""
        least, most = map(math.log10, self.bounds)
        return {"log10_decay": outer["log10_decay"].clamp(least, most)}


def _is_matrix(name: str, shape: Sequence[int]) -> bool:
    """Whether this is a weight matrix; biases and the scales of a normalisation are vectors."""
    return name.endswith("weight") and len(shape) > 1
