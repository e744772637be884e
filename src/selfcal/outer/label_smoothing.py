"""Label smoothing with a learned coefficient."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import boolean, in_range, positive_int
from selfcal.errors import ConfigError, DataError
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes

MAX_SMOOTHING = 0.5


@dataclass(frozen=True)
class LabelSmoothing(OuterModel):
    """A coefficient in [0, 0.5] for each class: the fraction of a label that is spread evenly over all classes.

    Args:
        start: The coefficient of every class before training.
        n_classes: The number of classes; by default the outputs of the network's last linear layer.
        shared: One coefficient for all classes: with few outer rows, those of single classes are mostly noise.

    Example:
        >>> import torch
        >>> smoothing = LabelSmoothing(start=0.1)
        >>> outer = smoothing.init(Sizes(n_train=100, n_classes=3), like=torch.zeros(()))
        >>> smoothing(outer, Output(torch.zeros(2, 3)), Batch(torch.zeros(2, 1), torch.tensor([0, 1])))
        {'smoothing': tensor([0.1000, 0.1000])}
    """

    start: float = 0.05
    n_classes: int | None = None
    shared: bool = False
    provides = frozenset({"smoothing"})

    def __post_init__(self) -> None:
        in_range("start", self.start, 0, MAX_SMOOTHING)
        if self.n_classes is not None:
            positive_int("n_classes", self.n_classes)
        boolean("shared", self.shared)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """Equal coefficients, one for each class unless they are shared."""
        if self.shared:
            return {"smoothing": torch.tensor(self.start, dtype=like.dtype, device=like.device)}
        n_classes = self.n_classes or sizes.n_classes
        if n_classes is None:
            raise ConfigError(
                "LabelSmoothing needs the number of classes, and the network has no linear layer to read it from. "
                "Pass LabelSmoothing(n_classes=...)."
            )
        return {"smoothing": torch.full((n_classes,), self.start, dtype=like.dtype, device=like.device)}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The coefficient of each row's class, or that of all."""
        if self.shared:
            return {"smoothing": outer["smoothing"]}
        if int(batch.y.max()) >= len(outer["smoothing"]):
            raise DataError(
                f"Labels must be class codes below the number of classes, {len(outer['smoothing'])}; got "
                f"{int(batch.y.max())}."
            )
        return {"smoothing": outer["smoothing"][batch.y]}

    def project(self, outer: OuterParams) -> OuterParams:
        """Back into [0, 0.5]."""
        return {"smoothing": outer["smoothing"].clamp(0, MAX_SMOOTHING)}
