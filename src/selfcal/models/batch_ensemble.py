"""Layers of several networks in one, its members, which may share most of their weights.

They map ``(members, rows, inputs)``, or ``(rows, inputs)`` that are the same for all members, to
``(members, rows, outputs)``; layers without weights, such as `torch.nn.ReLU`, can be between them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfcal._support.checks import positive_int
from selfcal._support.random_streams import Dropout

FEW_CLASSES = 16
"""Up to so many classes, a softmax is up to five times as fast with the rows last."""


class BatchEnsembleLinear(nn.Module):
    """A linear layer for each member, all with one weight matrix: ``((x * r_i) Wᵀ) * s_i + b_i`` for member i.

    At first the biases b_i are equal and the scales s_i are ones, as are the scales r_i unless members are to differ.

    Args:
        n_members: Number of members.
        in_features: Inputs of each.
        out_features: Outputs of each.
        diverse: Whether the scales r_i are standard normal at first, so that the members differ.

    Example:
        >>> layer = BatchEnsembleLinear(4, 3, 2)
        >>> layer(torch.zeros(5, 3)).shape, layer(torch.zeros(4, 5, 3)).shape
        (torch.Size([4, 5, 2]), torch.Size([4, 5, 2]))

    Reference:
        Wen, Tran and Ba, BatchEnsemble: an alternative approach to efficient ensemble and lifelong learning, 2020.
    """

    def __init__(self, n_members: int, in_features: int, out_features: int, *, diverse: bool = False) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = _bound(in_features)
        self.weight = nn.Parameter(torch.empty(out_features, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(positive_int("n_members", n_members), out_features))
        self.input_scale = nn.Parameter(torch.ones(n_members, in_features))
        self.output_scale = nn.Parameter(torch.ones(n_members, out_features))
        if not self.weight.is_meta:  # on the meta device torch would spend a second on it
            self.bias.data.copy_(torch.empty(out_features).uniform_(-bound, bound))
            if diverse:
                nn.init.normal_(self.input_scale)

    @property
    def multiplications(self) -> int:
        """For each row: every member multiplies it with the common weights."""
        return len(self.bias) * self.weight.numel()

    def member_weights(self) -> Tensor:
        """The weight matrix of each member; to scale these takes less time than to scale rows."""
        return self.weight * self.input_scale[:, None, :] * self.output_scale[:, :, None]

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of each member."""
        return _linear(x, self.member_weights(), self.bias)

    def extra_repr(self) -> str:
        return f"n_members={len(self.bias)}, in_features={self.in_features}, out_features={self.out_features}"


class SeparateLinear(nn.Module):
    """A linear layer for each member, with nothing in common.

    Args:
        n_members: Number of members.
        in_features: Inputs of each.
        out_features: Outputs of each.

    Example:
        >>> SeparateLinear(4, 3, 2)(torch.zeros(5, 3)).shape
        torch.Size([4, 5, 2])
    """

    def __init__(self, n_members: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        shape, bound = (positive_int("n_members", n_members), out_features), _bound(in_features)
        self.weight = nn.Parameter(torch.empty(*shape, in_features).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of each member."""
        return _linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"n_members={len(self.bias)}, in_features={self.in_features}, out_features={self.out_features}"


class MemberDropout(Dropout):
    """Dropout with one mask for all members, since drawing masks takes a large part of the time of small networks."""

    def forward(self, x: Tensor) -> Tensor:
        """In training, zero values at random and scale the others up; otherwise return the input."""
        return x * super().forward(x.new_ones(x.shape[-2:])) if self.training else x


class MeanOfMembers(nn.Module):
    """The logits of every member, ``(rows, members, classes)``, in training; those of their mean in prediction.

    With z_i the logits of member i, a prediction is ``log 1/k Σ_i softmax(z_i)``, whose softmax is the mean of the
    members' probabilities. Training minimises the mean of the members' losses.

    Example:
        >>> logits = torch.tensor([[[9.0, -9.0]], [[0.0, 0.0]]])
        >>> MeanOfMembers()(logits).shape
        torch.Size([1, 2, 2])
        >>> MeanOfMembers().eval()(logits).exp()
        tensor([[0.7500, 0.2500]])
    """

    def forward(self, logits: Tensor) -> Tensor:
        """From (members, rows, classes) to (rows, members, classes) in training, otherwise to (rows, classes)."""
        return logits.transpose(0, 1) if self.training else logits_of_mean(logits)


def logits_of_mean(logits: Tensor) -> Tensor:
    """The logarithm of the mean of the members' probabilities: from (members, rows, classes) to (rows, classes)."""
    if logits.shape[2] <= FEW_CLASSES:
        log_probs = logits.mT.contiguous().log_softmax(dim=1).mT
    else:
        log_probs = logits.log_softmax(dim=2)
    return log_probs.logsumexp(dim=0) - math.log(len(logits))


class MemberNetwork(nn.Sequential):
    """Layers of several members, the last of which is `MeanOfMembers`.

    Example:
        >>> network = MemberNetwork(SeparateLinear(4, 3, 2), MeanOfMembers()).eval()
        >>> network(torch.zeros(5, 3)).shape, network.member_logits(torch.zeros(5, 3)).shape
        (torch.Size([5, 2]), torch.Size([4, 5, 2]))
    """

    @property
    def n_answers(self) -> int:
        """The number of members."""
        last = self[-2]
        assert isinstance(last, SeparateLinear)
        return len(last.bias)

    def member_logits(self, x: Tensor) -> Tensor:
        """The logits of each member, (members, rows, classes)."""
        for layer in list(self)[:-1]:
            x = layer(x)
        return x


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if x.ndim == 2:  # one product for all members
        together = F.linear(x, weight.flatten(0, 1), bias.flatten())
        return together.unflatten(1, bias.shape).transpose(0, 1)
    return torch.baddbmm(bias[:, None], x, weight.mT)


def _bound(in_features: int) -> float:
    """The bound of uniform initial weights, as in `torch.nn.Linear`."""
    return 1 / math.sqrt(max(in_features, 1))
