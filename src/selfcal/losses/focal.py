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


def dual_focal(logits: Tensor, y: Tensor, *, gamma: Hyper = 5.0) -> Tensor:
    """Dual focal loss, ``-(1 - p_y + p_j)^γ log p_y``, with p_j the largest probability below p_y; 0 without one.

    Focal loss alone can go as far as to make a network under-confident; the further term asks that the label stands
    out from the next class as well. Values and derivatives stay finite as those of `focal` do.

    Args:
        logits: One row per sample.
        y: Label codes.
        gamma: The focusing parameter γ; 0 is cross-entropy. A number, or a tensor with one per row.

    Returns:
        One value per row.

    Example:
        Probabilities of 1/2, 3/8 and 1/8: ``(1 - 1/2 + 3/8)^2 log 2``.

        >>> import torch
        >>> dual_focal(torch.tensor([[4.0, 3.0, 1.0]]).log(), torch.tensor([0]), gamma=2.0) / torch.tensor(2.0).log()
        tensor([0.7656])

    Reference:
        Tao, Dong and Xu, Dual focal loss for calibration, 2023.
    """
    loss = cross_entropy(logits, y)
    log_probs = torch.log_softmax(logits, dim=-1)
    others = log_probs.masked_fill(is_label(logits, y), -torch.inf)
    below = log_probs.masked_fill(log_probs >= log_probs.gather(-1, y[:, None]), -torch.inf).amax(dim=-1)
    apart = torch.cat([others, below[:, None]], dim=-1).logsumexp(dim=-1)
    return (hyper("gamma", gamma, y) * apart).exp() * loss


def bsce_gra(logits: Tensor, y: Tensor, *, gamma: Hyper = 2.0) -> Tensor:
    """Cross-entropy of rows weighted by their distance to the label, ``-‖p - e_y‖^γ log p_y`` (BSCE-GRA).

    The distance is a constant for the gradient, which therefore is that of cross-entropy times this weight: the rows
    that the network is least sure of get the largest steps. With γ = 2 the weight is the Brier score of the row.

    Args:
        logits: One row per sample.
        y: Label codes.
        gamma: The exponent γ; 0 is cross-entropy. A number, or a tensor with one per row.

    Returns:
        One value per row.

    Example:
        Probabilities of 1/2, 3/8 and 1/8 have a Brier score of ``1/4 + 9/64 + 1/64``.

        >>> import torch
        >>> bsce_gra(torch.tensor([[4.0, 3.0, 1.0]]).log(), torch.tensor([0])) / torch.tensor(2.0).log()
        tensor([0.4062])

    Reference:
        Lin, Tao, Dong and Xu, Uncertainty weighted gradients for model calibration, 2025, with the Euclidean norm.
    """
    log_probs = torch.log_softmax(logits.detach(), dim=-1)
    label = is_label(logits, y)
    log_other = log_probs.masked_fill(label, -torch.inf).logsumexp(dim=-1, keepdim=True)  # log(1 - p_y)
    log_distance = (2 * torch.where(label, log_other, log_probs)).logsumexp(dim=-1) / 2
    return (hyper("gamma", gamma, y) * log_distance).exp() * cross_entropy(logits, y)
