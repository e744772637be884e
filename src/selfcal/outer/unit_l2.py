"""An L2 penalty for each unit of the network's head."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes


@dataclass(frozen=True)
class UnitL2(OuterModel):
    """The penalty ``Σ_u λ_u |w_u|²`` in the training loss, w_u being the weights of the head's unit for class u.

    Args:
        start: λ of every unit before training; they are never negative.
        layer: The name of the linear layer that is the head; by default the network's last one.

    Example:
        >>> import torch
        >>> penalty = UnitL2(start=0.1)
        >>> outer = penalty.init(Sizes(n_train=100, n_classes=2, n_features=3), like=torch.zeros(()))
        >>> output = Output(torch.zeros(1, 2), head=torch.tensor([[1.0, 2, 0], [0, 0, 1]]))
        >>> penalty(outer, output, Batch(torch.zeros(1, 1), torch.tensor([0])))
        {'penalty': tensor(0.6000)}

    Reference:
        Bohdal, Yang and Hospedales, Meta-calibration: learning of model calibration using differentiable expected
        calibration error, 2023.
    """

    start: float = 5e-4
    layer: str | None = None
    provides = frozenset({"penalty"})
    reads_head = True

    def __post_init__(self) -> None:
        in_range("start", self.start, 0)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """Equal coefficients, one for each unit of the head."""
        assert sizes.n_classes is not None
        return {"decay": torch.full((sizes.n_classes,), self.start, dtype=like.dtype, device=like.device)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The penalty on the head's weight."""
        assert output.head is not None
        return {"penalty": outer["decay"] @ output.head.square().sum(dim=1)}

    def project(self, outer: OuterParams) -> OuterParams:
        """Negative coefficients to zero."""
        return {"decay": outer["decay"].clamp(min=0)}
