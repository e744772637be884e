"""Cross-entropy with a penalty on large logits or low entropy."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.losses._rows import Hyper, entropy, hyper
from selfcal.losses.cross_entropy import cross_entropy


def lp_norm(logits: Tensor, y: Tensor, *, alpha: Hyper = 0.01, p: float = 1.0) -> Tensor:
    """Cross-entropy and the L_p norm of the logits, ``-log p_y + α ‖z‖_p``.

    Args:
        logits: One row per sample.
        y: Label codes.
        alpha: The weight α of the norm.
        p: The order of the norm, at least 1. Between 1 and 2 it has no second derivative where a logit is zero.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> lp_norm(torch.tensor([[30.0, -10.0]]), torch.tensor([0]), alpha=0.1)
        tensor([4.])

    Reference:
        Wang, Feng and Zhang, Rethinking calibration of deep neural networks: do not be afraid of
        overconfidence, 2021. The default weight is ours.
    """
    silent = ~logits.any(dim=-1, keepdim=True)  # the slope at the kink of the norm is defined as zero
    norm = torch.linalg.vector_norm(logits.masked_fill(silent, 1), ord=in_range("p", p, 1), dim=-1)
    return cross_entropy(logits, y) + hyper("alpha", alpha, y) * norm.masked_fill(silent[:, 0], 0)


def entropy_regularized(logits: Tensor, y: Tensor, *, alpha: Hyper = 0.1) -> Tensor:
    """Cross-entropy minus the entropy of the prediction, ``-log p_y - α H(p)``: the confidence penalty.

    Args:
        logits: One row per sample.
        y: Label codes.
        alpha: The weight α of the entropy.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> entropy_regularized(torch.zeros(1, 4), torch.tensor([0]), alpha=1.0)
        tensor([0.])

    Reference:
        Pereyra, Tucker, Chorowski, Kaiser and Hinton, Regularizing neural networks by penalizing confident
        output distributions, 2017.
    """
    return cross_entropy(logits, y) - hyper("alpha", alpha, y) * entropy(logits)
