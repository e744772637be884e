"""A weight for every row, from a small network on the classifier's prediction for it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import boolean, positive_int
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes


@dataclass(frozen=True)
class WeightNet(OuterModel):
    """The weight of a row, in (0, 2), as a smooth function of its loss, its margin and the confidence.

    ``weight = 2 sigmoid(b + wᵀ tanh(A s + a))``, with s the logarithm of one plus the row's log loss, the probability
    of its label minus the largest other one, and the largest probability. These are constants: no gradient of the
    training loss flows through a weight into the network. A few dozen parameters determine the weights of all rows,
    where `SampleWeights` has one for each. Every weight starts at one.

    Args:
        hidden: Hidden units.
        normalize: Divide by the mean weight of the batch, so that the loss keeps its scale.
        seed: Of the random first layer.

    Example:
        >>> import torch
        >>> net = WeightNet(hidden=4)
        >>> outer = net.init(Sizes(n_train=100), like=torch.zeros(()))
        >>> net(outer, Output(torch.zeros(2, 3)), Batch(torch.zeros(2, 1), torch.tensor([0, 1])))
        {'weight': tensor([1., 1.])}

    Reference:
        Shu, Xie, Yi, Zhao, Zhou, Xu and Meng, Meta-Weight-Net: learning an explicit mapping for sample weighting,
        2019, where the only input is the loss.
    """

    hidden: int = 16
    normalize: bool = True
    seed: int = 0
    provides = frozenset({"weight"})

    def __post_init__(self) -> None:
        positive_int("hidden", self.hidden)
        boolean("normalize", self.normalize)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """A random first layer and a second one of zeros."""
        generator = torch.Generator().manual_seed(self.seed)
        first = torch.randn(3, self.hidden, dtype=torch.float64, generator=generator).to(like)
        zeros = like.new_zeros
        return {
            "first": first,
            "first_bias": zeros(self.hidden),
            "last": zeros(self.hidden),
            "bias": zeros(()),
        }

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """A weight for each row."""
        hidden = torch.tanh(_inputs(output.as_data, batch.y) @ outer["first"] + outer["first_bias"])
        weight = 2 * torch.sigmoid(hidden @ outer["last"] + outer["bias"])
        if not self.normalize:
            return {"weight": weight}
        counted = torch.ones_like(weight) if batch.weight is None else batch.weight
        return {"weight": weight * (counted.sum() / (weight @ counted))}

    def project(self, outer: OuterParams) -> OuterParams:
        """All values are allowed."""
        return outer


def _inputs(logits: Tensor, y: Tensor) -> Tensor:
    """The inputs of the small network: three numbers of similar size for each row."""
    log_probs = torch.log_softmax(logits, dim=-1)
    is_label = torch.arange(logits.shape[-1], device=y.device) == y[:, None]
    own, other = (
        log_probs.masked_fill(hidden, -torch.inf).amax(dim=1, keepdim=True)
        for hidden in (~is_label, is_label)
    )
    top = torch.maximum(own, other).exp()
    return torch.cat([(-own).log1p(), own.exp() - other.exp(), top], dim=1)
