"""Several networks as one module: side by side in training, and as a mixture in prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfcal._support.checks import in_range, same_length
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.models.spec import Builder, Spec, Wrapper, spec_of, summary_of


class ParallelNetworks(nn.Module):
    """Networks of one architecture, each applied to its own part of a batch: the first to the first part, and so on.

    To the training loop it is one network. Since no row goes through two networks, a step on a batch that holds rows
    for every network is a step of each of them, and outer parameters are learned from all of them.

    Args:
        members: The networks; their parameters have the same shapes.

    Example:
        >>> parallel = ParallelNetworks([torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)])
        >>> x = torch.ones(4, 2)
        >>> bool((parallel(x)[2:] == parallel.members[1](x[2:])).all())
        True
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        shapes = {tuple(tuple(p.shape) for p in member.parameters()) for member in members}
        if len(shapes) != 1:
            raise ConfigError(
                f"The networks must have parameters of the same shapes; got {len(members)} networks of "
                f"{len(shapes)} kinds."
            )
        self.members = nn.ModuleList(members)

    @property
    def independent_members(self) -> list[nn.Module]:
        """The networks, each with separate rows in every batch."""
        return list(self.members)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of all parts, one after the other."""
        parts = x.tensor_split(len(self.members))
        return torch.cat([member(part) for member, part in zip(self.members, parts, strict=True)])


class _Members:
    """The answers of each member of a module."""

    members: nn.ModuleList

    @property
    def n_answers(self) -> int:
        """The number of members."""
        return len(self.members)

    def member_logits(self, x: Tensor) -> Tensor:
        """The logits of each member, (members, rows, classes)."""
        return torch.stack([member(x) for member in self.members])


class EnsembleModule(_Members, Wrapper, key="members"):
    """An ensemble that predicts the weighted mean of its members' probabilities.

    With z_k the logits of network k, w_k its weight and T_k its temperature, the output is
    ``log Σ_k w_k softmax(z_k / T_k)``: logits whose softmax is the mean. A mean of many is often underconfident,
    which a temperature of the mean below one, or a weight above one in a `LogarithmicPool`, corrects.

    Args:
        members: The networks.
        weights: The weight of each; they are divided by their sum. By default all are equal.
        temperatures: The temperature of each network; by default one.
        temperature: The temperature of the mean.

    Example:
        >>> certain, uniform = torch.nn.Linear(1, 2), torch.nn.Linear(1, 2)
        >>> for network, size in ((certain, 9.0), (uniform, 0.0)):
        ...     network.load_state_dict({"weight": torch.tensor([[size], [-size]]), "bias": torch.zeros(2)})
        <All keys matched successfully>
        <All keys matched successfully>
        >>> EnsembleModule([certain, uniform])(torch.ones(1, 1)).softmax(dim=1)
        tensor([[0.7500, 0.2500]], grad_fn=<SoftmaxBackward0>)
    """

    log_weights: Tensor
    temperatures: Tensor
    temperature: Tensor

    def __init__(
        self,
        members: Sequence[nn.Module],
        weights: Sequence[float] | None = None,
        temperatures: Sequence[float] | None = None,
        *,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        if not members:
            raise ConfigError("An ensemble needs at least one network; got none.")
        weights = [1.0] * len(members) if weights is None else weights
        temperatures = [1.0] * len(members) if temperatures is None else temperatures
        same_length(members=members, weights=weights, temperatures=temperatures)
        for name, values in {"weights": weights, "temperatures": [*temperatures, temperature]}.items():
            for value in values:
                in_range(name, value, 0, open_low=True)
        self.members = nn.ModuleList(members)
        whole = math.fsum(weights)
        log_weights = [math.log(weight / whole) for weight in weights]
        self.register_buffer("log_weights", torch.tensor(log_weights, dtype=torch.float32))
        self.register_buffer("temperatures", torch.tensor(temperatures, dtype=torch.float32))
        self.register_buffer("temperature", torch.tensor(temperature, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """The logits of the mean."""
        log_probs = [
            F.log_softmax(member(x) / temperature, dim=1) + weight
            for member, temperature, weight in zip(
                self.members, self.temperatures, self.log_weights, strict=True
            )
        ]
        return torch.stack(log_probs).logsumexp(dim=0) / self.temperature

    def spec(self) -> list[Spec]:
        """The spec of each member."""
        return [spec_of(member) for member in self.members]

    @classmethod
    def from_spec(cls, value: Any, build: Builder) -> Self:
        """Members by their specs; weights and temperatures are buffers."""
        if not isinstance(value, list):
            raise ModelFormatError(f"An ensemble must have 'members' (list); got a {type(value).__name__}.")
        return cls([build(member) for member in value])

    def summary(self) -> str:
        """The number of models, or what the only one is."""
        if len(self.members) == 1:
            return summary_of(self.members[0])
        return f"ensemble of {len(self.members)} models"


class LogarithmicPool(_Members, Wrapper, key="pool"):
    """Several models that predict the weighted geometric mean of their probabilities, scaled to sum to one.

    With z_k the logits of model k and w_k its weight, the output is ``Σ_k w_k log softmax(z_k)``. Weights that sum to
    more than one make it more confident than its members.

    Args:
        members: The models.
        weights: The weight of each; by default all are equal and sum to one.

    Example:
        >>> certain, uniform = torch.nn.Linear(1, 2), torch.nn.Linear(1, 2)
        >>> for network, size in ((certain, 2.0), (uniform, 0.0)):
        ...     network.load_state_dict({"weight": torch.tensor([[size], [-size]]), "bias": torch.zeros(2)})
        <All keys matched successfully>
        <All keys matched successfully>
        >>> LogarithmicPool([certain, uniform])(torch.ones(1, 1)).softmax(dim=1)
        tensor([[0.8808, 0.1192]], grad_fn=<SoftmaxBackward0>)

    Reference:
        Genest and Zidek, Combining probability distributions: a critique and an annotated bibliography, 1986.
    """

    weights: Tensor

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        if not members:
            raise ConfigError("A pool needs at least one model; got none.")
        weights = [1 / len(members)] * len(members) if weights is None else weights
        same_length(members=members, weights=weights)
        for value in weights:
            in_range("weights", value, 0, open_low=True)
        self.members = nn.ModuleList(members)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """The logits of the pool."""
        logits = [
            weight * F.log_softmax(member(x), dim=1)
            for member, weight in zip(self.members, self.weights, strict=True)
        ]
        return torch.stack(logits).sum(dim=0)

    def spec(self) -> list[Spec]:
        """The spec of each member."""
        return [spec_of(member) for member in self.members]

    @classmethod
    def from_spec(cls, value: Any, build: Builder) -> Self:
        """Members by their specs; weights are buffers."""
        if not isinstance(value, list):
            raise ModelFormatError(f"A pool must have a list of members; got a {type(value).__name__}.")
        return cls([build(member) for member in value])

    def summary(self) -> str:
        """The number of models, and of those inside them."""
        return (
            f"pool of {len(self.members)} kinds: {', '.join(summary_of(member) for member in self.members)}"
        )
