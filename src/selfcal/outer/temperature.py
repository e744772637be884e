"""A temperature in the training loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.25, 4.0


@dataclass(frozen=True)
class Temperature(OuterModel):
    """A temperature in [0.25, 4] that the logits are divided by in the training loss only.

    A network trained with a temperature below one predicts smaller logits, that is lower confidences.

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
        in_range("start", self.start, MIN_TEMPERATURE, MAX_TEMPERATURE)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """The starting value."""
        return {"temperature": torch.tensor(self.start, dtype=like.dtype, device=like.device)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The same for all rows."""
        return {"temperature": outer["temperature"]}

    def project(self, outer: OuterParams) -> OuterParams:
        """Back into [0.25, 4]."""
        return {"temperature": outer["temperature"].clamp(MIN_TEMPERATURE, MAX_TEMPERATURE)}
