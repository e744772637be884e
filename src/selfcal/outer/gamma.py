"""One focal-loss gamma for all rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes

MAX_GAMMA = 10.0


@dataclass(frozen=True)
class Gamma(OuterModel):
    """The γ of the focal loss, learned instead of chosen; in [0, 10].

    Args:
        start: γ before training; 0 is cross-entropy.

    Example:
        >>> import torch
        >>> gamma = Gamma(start=2.0)
        >>> outer = gamma.init(Sizes(n_train=100), like=torch.zeros(()))
        >>> gamma(outer, Output(torch.zeros(2, 3)), Batch(torch.zeros(2, 1), torch.tensor([0, 1])))
        {'gamma': tensor(2.)}
    """

    start: float = 1.0
    provides = frozenset({"gamma"})

    def __post_init__(self) -> None:
        in_range("start", self.start, 0, MAX_GAMMA)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """The starting value."""
        return {"gamma": torch.tensor(self.start, dtype=like.dtype, device=like.device)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The same for all rows."""
        return {"gamma": outer["gamma"]}

    def project(self, outer: OuterParams) -> OuterParams:
        """Back into [0, 10]."""
        return {"gamma": outer["gamma"].clamp(0, MAX_GAMMA)}
