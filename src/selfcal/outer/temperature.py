"""A temperature at which the network is trained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes

LEAST, MOST = 0.25, 4.0


@dataclass(frozen=True)
class Temperature(OuterModel):
    """What the logits are divided by in the training loss, and in training alone; in [0.25, 4].

    A network trained below one answers with smaller logits than the training rows ask for.

    Args:
        start: The temperature before training.

    Example:
        >>> import torch
        >>> temperature = Temperature()
        >>> outer = temperature.init(Sizes(n_train=100), like=torch.zeros(()))
        >>> temperature(outer, Output(torch.zeros(2, 3)), Batch(torch.zeros(2, 1), torch.tensor([0, 1])))
        {'temperature': tensor(1.)}
    """

    start: float = 1.0
    provides = frozenset({"temperature"})

    def __post_init__(self) -> None:
        in_range("start", self.start, LEAST, MOST)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """The starting value."""
        return {"temperature": torch.tensor(self.start, dtype=like.dtype, device=like.device)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The same for all rows."""
        return {"temperature": outer["temperature"]}

    def project(self, outer: OuterParams) -> OuterParams:
        """Back into [0.25, 4]."""
        return {"temperature": outer["temperature"].clamp(LEAST, MOST)}
