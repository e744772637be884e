"""Several networks that are trained side by side, and that answer as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfcal._support.checks import in_range, same_length
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.models.spec import Builder, Spec, Wrapper, spec_of


class ParallelNetworks(nn.Module):
    """Networks of one make, each of which is given a share of the rows: the first network the first, and so on.

    To the training loop it is one network. Since no row meets two networks, a step on a batch that holds a share for
    every network is a step of each of them, and what is learned beside them is learned from all of them.

    Args:
        members: The networks; their parameters have the same shapes.

    Example:
        >>> team = ParallelNetworks([torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)])
        >>> x = torch.ones(4, 2)
        >>> bool((team(x)[2:] == team.members[1](x[2:])).all())
        True
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        shapes = {tuple(tuple(p.shape) for p in member.parameters()) for member in members}
        if len(shapes) != 1:
            raise ConfigError(
                f"A team needs networks whose parameters have the same shapes; got {len(members)} networks of "
                f"{len(shapes)} kinds."
            )
        self.members = nn.ModuleList(members)

    @property
    def independent_members(self) -> list[nn.Module]:
        """The networks, each with rows of its own in every batch."""
        return list(self.members)

    def forward(self, x: Tensor) -> Tensor:
        """The logits of every share, one share after the other."""
        shares = x.tensor_split(len(self.members))
        return torch.cat([member(share) for member, share in zip(self.members, shares, strict=True)])


class EnsembleModule(Wrapper, key="members"):
    """Networks that answer together: the logarithm of the weighted mean of their probabilities.

    With z_k the logits of network k, its weight w_k and its temperature T_k, the answer is
    ``log Σ_k w_k softmax(z_k / T_k)``: logits whose softmax is the mean itself. A mean of many is often too unsure;
    a temperature below one, of all together, makes up for that.

    Args:
        members: The networks.
        weights: How much each counts; they are divided by their sum. By default all the same.
        temperatures: What the logits of each are divided by; by default one.
        temperature: What the logits of the mean are divided by.

    Example:
        >>> sure, unsure = torch.nn.Linear(1, 2), torch.nn.Linear(1, 2)
        >>> for network, size in ((sure, 9.0), (unsure, 0.0)):
        ...     network.load_state_dict({"weight": torch.tensor([[size], [-size]]), "bias": torch.zeros(2)})
        <All keys matched successfully>
        <All keys matched successfully>
        >>> EnsembleModule([sure, unsure])(torch.ones(1, 1)).softmax(dim=1)
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
        votes = [
            F.log_softmax(member(x) / temperature, dim=1) + weight
            for member, temperature, weight in zip(
                self.members, self.temperatures, self.log_weights, strict=True
            )
        ]
        return torch.stack(votes).logsumexp(dim=0) / self.temperature

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
        """How many networks there are."""
        return f"{len(self.members)} networks that answer together"
