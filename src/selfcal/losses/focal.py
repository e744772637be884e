"""Focal losses: rows that are already classified well have less weight."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from selfcal.losses._rows import Hyper, hyper, is_label
from selfcal.losses.cross_entropy import cross_entropy


def focal(logits: Tensor, y: Tensor, *, gamma: Hyper = 1.0) -> Tensor:
    """Focal loss, ``-(1 - p_y)^γ log p_y``.

    The power is ``exp(γ log(1 - p_y))``, with the logarithm taken over the other classes' logits: it and its
    derivatives, in the logits and in γ, stay finite for every γ >= 0 however close p_y comes to one.

    Args:
        logits: One row per sample.
        y: Label codes.
        gamma: The focusing parameter γ: the larger it is, the less weight well-classified rows have; 0 is
            cross-entropy. A number, or a tensor with one per row.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> focal(torch.zeros(1, 4), torch.tensor([2]), gamma=2.0) / torch.tensor(4.0).log()
        tensor([0.5625])

    Reference:
        Lin, Goyal, Girshick, He and Dollár, Focal loss for dense object detection, 2017.
    """
    loss = cross_entropy(logits, y)
    others = torch.log_softmax(logits, dim=-1).masked_fill(is_label(logits, y), -torch.inf).logsumexp(dim=-1)
    return (hyper("gamma", gamma, y) * others).exp() * loss


def flsd(logits: Tensor, y: Tensor) -> Tensor:
    """Focal loss with γ by sample (FLSD-53): 5 where ``p_y < 0.2``, else 3.

    Example:
        >>> import torch
        >>> y = torch.tensor([0])
        >>> bool(flsd(torch.zeros(1, 6), y) == focal(torch.zeros(1, 6), y, gamma=5.0))
        True

    Reference:
        Mukhoti, Kulharia, Sanyal, Golodetz, Torr and Dokania, Calibrating deep neural networks using focal
        loss, 2020.
    """
    hard = cross_entropy(logits, y).detach() > -math.log(0.2)
    return focal(logits, y, gamma=torch.where(hard, 5.0, 3.0).to(logits.dtype))
