"""A weight for each class."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import positive_int
from selfcal.errors import ConfigError
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes

MAX_LOG_WEIGHT = math.log(100)


@dataclass(frozen=True)
class ClassWeights(OuterModel):
    """A weight for the rows of each class, one on average over the classes.

    The outer parameters are the logarithms of the weights, up to a constant; all start at zero.

    Args:
        n_classes: The number of classes; by default the outputs of the network's last linear layer.

    Example:
        >>> import torch
        >>> weights = ClassWeights()
        >>> outer = {"log_weight": torch.tensor([0.0, 3.0]).log1p()}
        >>> weights(outer, Output(torch.zeros(3, 2)), Batch(torch.zeros(3, 1), torch.tensor([0, 1, 1])))
        {'weight': tensor([0.4000, 1.6000, 1.6000])}
    """

    n_classes: int | None = None
    provides = frozenset({"weight"})

    def __post_init__(self) -> None:
        if self.n_classes is not None:
            positive_int("n_classes", self.n_classes)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """Equal weights."""
        n_classes = self.n_classes or sizes.n_classes
        if n_classes is None:
            raise ConfigError(
                "ClassWeights needs the number of classes, and the network has no linear layer to read it from. "
                "Pass ClassWeights(n_classes=...)."
            )
        return {"log_weight": like.new_zeros(n_classes)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The weight of each row's class."""
        log_weight = outer["log_weight"]
        return {"weight": (torch.softmax(log_weight, dim=0) * len(log_weight))[batch.y]}

    def project(self, outer: OuterParams) -> OuterParams:
        """Weights back to within a factor of 100 of one."""
        return {"log_weight": outer["log_weight"].clamp(-MAX_LOG_WEIGHT, MAX_LOG_WEIGHT)}
