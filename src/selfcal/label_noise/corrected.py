"""A network corrected for wrong labels in its training data."""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfcal.label_noise.transition import KEPT, SOFT
from selfcal.models.spec import Builder, Spec, Wrapper, spec_of, summary_of


class NoiseCorrected(Wrapper, key="denoised"):
    """Predicts the true class with a network that was trained on labels of which some are wrong.

    With p its probabilities, the output is nearly ``softmax(β log (p M)₊)``: the matrix M corrects them for the
    noise and the power β sharpens the result; what is not positive becomes a little so. A little of p itself is kept.

    Args:
        network: The network.
        matrix: M; by default it changes nothing.
        power: β.
        n_classes: Number of classes, if there is no matrix.

    Example:
        >>> network = torch.nn.Linear(1, 2)
        >>> _ = network.load_state_dict({"weight": torch.zeros(2, 1), "bias": torch.tensor([0.7, 0.3]).log()})
        >>> matrix = torch.tensor([[0.7, 0.3], [0.3, 0.7]]).inverse()
        >>> NoiseCorrected(network, matrix)(torch.ones(1, 1)).softmax(dim=1).round(decimals=2)
        tensor([[0.9900, 0.0100]], grad_fn=<RoundBackward1>)
    """

    matrix: Tensor
    power: Tensor

    def __init__(
        self, network: nn.Module, matrix: Tensor | None = None, power: float = 1.0, *, n_classes: int = 2
    ) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("matrix", torch.eye(n_classes) if matrix is None else matrix)
        self.register_buffer("power", torch.tensor(power))

    def forward(self, x: Tensor) -> Tensor:
        """The logits of the true class."""
        own = F.log_softmax(self.network(x), dim=1)
        corrected = own.exp() @ self.matrix
        logs = self.power * ((corrected + (corrected.square() + 4 * SOFT**2).sqrt()) / 2).log()
        return torch.logaddexp(own + math.log(KEPT), F.log_softmax(logs, dim=1) + math.log1p(-KEPT))

    def spec(self) -> Spec:
        """The spec of the network."""
        return spec_of(self.network)

    @classmethod
    def from_spec(cls, value: Any, build: Builder) -> Self:
        """The network by its spec; the matrix and the power are buffers."""
        return cls(build(value), n_classes=build.n_classes)

    def summary(self) -> str:
        """The network, and that it is corrected."""
        return f"{summary_of(self.network)}, corrected for wrong labels"
