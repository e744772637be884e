"""One weight per training row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range, one_of
from selfcal.errors import DataError
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes


@dataclass(frozen=True)
class SampleWeights(OuterModel):
    """A free weight in [0, 1] for each training row.

    Args:
        start: Every weight before training.
        link: ``"identity"`` keeps the weights themselves and projects them to [0, 1] after each outer step;
            ``"sigmoid"`` keeps their log odds, which need no projection.
        normalize: Divide by the mean weight, so that the loss keeps its scale while the weights change.

    Example:
        >>> import torch
        >>> weights = SampleWeights()
        >>> outer = weights.init(Sizes(n_train=4), like=torch.zeros(()))
        >>> batch = Batch(torch.zeros(2, 1), torch.tensor([0, 1]), index=torch.tensor([3, 0]))
        >>> weights(outer, Output(torch.zeros(2, 2)), batch)
        {'weight': tensor([0.5000, 0.5000])}

    Reference:
        Sanguin, Pakrashi, Viola and Rinaldi, Exploring the potential of bilevel optimization for
        calibrating neural networks, 2024, eq. 10.
    """

    start: float = 0.5
    link: str = "identity"
    normalize: bool = False
    provides = frozenset({"weight"})

    def __post_init__(self) -> None:
        one_of("link", self.link, ("identity", "sigmoid"))
        in_range("start", self.start, 0, 1 if self.link == "identity" else 0.999, open_low=True)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """Equal weights, one for each training row."""
        start = torch.full((sizes.n_train,), self.start, dtype=like.dtype, device=like.device)
        return {"weight": start if self.link == "identity" else start.logit()}

    def values(self, outer: OuterParams) -> Tensor:
        """The weights of all training rows in the loss."""
        weight = outer["weight"] if self.link == "identity" else outer["weight"].sigmoid()
        return weight / weight.mean() if self.normalize else weight

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The weights of these rows, by their index in the training set."""
        if batch.index is None:
            raise DataError(
                "SampleWeights needs the index of each training row; this batch has none. Pass training batches "
                "as selfcal.Batch(x, y, index)."
            )
        return {"weight": self.values(outer)[batch.index]}

    def project(self, outer: OuterParams) -> OuterParams:
        """Weights back into [0, 1]; log odds stay as they are."""
        return {"weight": outer["weight"].clamp(0, 1)} if self.link == "identity" else outer
