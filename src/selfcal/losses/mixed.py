"""Cross-entropy for mixtures of two rows (mixup)."""

from __future__ import annotations

from torch import Tensor

from selfcal.losses._rows import Hyper, hyper
from selfcal.losses.cross_entropy import cross_entropy


def mixed_cross_entropy(
    logits: Tensor, y: Tensor, *, other: Tensor | None = None, share: Hyper = 1.0
) -> Tensor:
    """Cross-entropy against two labels, ``-s log p_y - (1 - s) log p_other``.

    Args:
        logits: One row per sample.
        y: Label codes of the first rows of each mixture.
        other: Label codes of the second ones; None if nothing was mixed.
        share: The mixing weight s of the first rows, in [0, 1]: a number, or a tensor with one per row.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> logits, y = torch.tensor([[0.0, 1.0]]), torch.tensor([0])
        >>> mixed_cross_entropy(logits, y, other=torch.tensor([1]), share=0.25)
        tensor([0.5633])

    Reference:
        Zhang, Cisse, Dauphin and Lopez-Paz, mixup: beyond empirical risk minimization, 2018.
    """
    share = hyper("share", share, y, 0, 1)
    first = cross_entropy(logits, y)
    return first if other is None else share * first + (1 - share) * cross_entropy(logits, other)
