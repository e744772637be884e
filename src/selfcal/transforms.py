"""Transforms of training batches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from selfcal._support.checks import in_range
from selfcal._support.random_streams import redirected
from selfcal.training.inputs import single
from selfcal.training.interfaces import BatchTransform
from selfcal.training.types import Batch


@dataclass(frozen=True)
class Mixup(BatchTransform):
    """Mixup: every row is mixed with another row of its batch, ``x = s x_i + (1 - s) x_j``.

    There is one mixing weight s for each batch, drawn from Beta(α, α). The other row's label and s are passed to the
    loss as `other` and `share`; see `losses.mixed_cross_entropy`. Sample weights are mixed like the rows.

    Args:
        alpha: The parameter α; with 1 all mixing weights are equally likely, near 0 rows stay nearly unchanged.

    Example:
        >>> import torch
        >>> x, y = torch.eye(4), torch.arange(4)
        >>> mixed = Mixup(alpha=1.0)(Batch(x, y))
        >>> bool(torch.allclose(mixed.x.sum(dim=1), torch.ones(4))), sorted(mixed.hyper)
        (True, ['other', 'share'])

    Reference:
        Zhang, Cisse, Dauphin and Lopez-Paz, mixup: beyond empirical risk minimization, 2018.
        Thulasidasan, Chennupati, Bilmes, Bhattacharya and Michalak, On mixup training: improved calibration and
        predictive uncertainty for deep neural networks, 2019.
    """

    alpha: float = 1.0
    provides = frozenset({"other", "share"})

    def __post_init__(self) -> None:
        in_range("alpha", self.alpha, 0, open_low=True)

    def __call__(self, batch: Batch) -> Batch:
        """The mixed rows; `index` stays that of the first row of each pair."""
        beta = torch.tensor(float(self.alpha), dtype=torch.float64)
        with redirected():
            share = float(torch.distributions.Beta(beta, beta).sample())
            partner = torch.randperm(len(batch.y)).to(batch.y.device)
        x = single(batch.x, "Mixup")
        weight = None if batch.weight is None else torch.lerp(batch.weight[partner], batch.weight, share)
        hyper = {"other": batch.y[partner], "share": x.new_tensor(share)}
        return replace(batch, x=torch.lerp(x[partner], x, share), weight=weight, hyper=batch.hyper | hyper)
