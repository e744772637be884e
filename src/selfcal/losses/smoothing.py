"""Label smoothing and related losses."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from selfcal._support.checks import in_range
from selfcal.losses._rows import Hyper, as_column, hyper, log_others
from selfcal.losses.cross_entropy import cross_entropy


def label_smoothing(logits: Tensor, y: Tensor, *, smoothing: Hyper = 0.05) -> Tensor:
    """Cross-entropy with label smoothing over all k classes.

    ``-(1 - ε) log p_y - ε/k Σ_j log p_j``

    Args:
        logits: One row per sample.
        y: Label codes.
        smoothing: The amount of smoothing ε, in [0, 1]: a number, or a tensor with one per row.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> label_smoothing(torch.tensor([[4.0, 0.0]]), torch.tensor([0]), smoothing=0.1)
        tensor([0.2181])

    Reference:
        Szegedy, Vanhoucke, Ioffe, Shlens and Wojna, Rethinking the Inception architecture, 2016; Müller,
        Kornblith and Hinton, When does label smoothing help?, 2019.
    """
    epsilon = hyper("smoothing", smoothing, y, high=1.0)
    return (1 - epsilon) * cross_entropy(logits, y) - epsilon * torch.log_softmax(logits, dim=-1).mean(dim=-1)


def margin_label_smoothing(logits: Tensor, y: Tensor, *, alpha: Hyper = 0.1, margin: float = 10.0) -> Tensor:
    """Cross-entropy plus a penalty on logits that are more than a margin below the largest (MbLS).

    ``-log p_y + α mean_j max(0, max_i z_i - z_j - m)``

    Args:
        logits: One row per sample.
        y: Label codes.
        alpha: The weight α of the penalty.
        margin: The distance m without a penalty.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> far = torch.tensor([[30.0, 0.0]])
        >>> margin_label_smoothing(far, torch.tensor([0]), alpha=0.1, margin=10.0)
        tensor([1.])

    Reference:
        Liu, Ben Ayed, Galdran and Dolz, The devil is in the margin: margin-based label smoothing for network
        calibration, 2022. α, m and the mean over the classes are those of their code; the paper has the sum.
    """
    excess = logits.amax(dim=-1, keepdim=True) - logits - in_range("margin", margin, 0)
    return cross_entropy(logits, y) + hyper("alpha", alpha, y) * torch.relu(excess).mean(dim=-1)


def smoothed_focal(
    logits: Tensor, y: Tensor, *, gamma: Hyper = 0.0, smoothing: Hyper = 0.0, temperature: Hyper = 1.0
) -> Tensor:
    """Focal loss of a smoothed label at a temperature: all learnable hyperparameters of a loss in one.

    ``-Σ_j t_j (1 - p_j)^γ log p_j`` with ``p = softmax(z / T)`` and ``t_j = (1 - ε) [j = y] + ε/k``

    Args:
        logits: One row per sample.
        y: Label codes.
        gamma: The focusing parameter γ; 0 with no smoothing and a temperature of 1 is cross-entropy.
        smoothing: The amount of label smoothing ε, in [0, 1].
        temperature: The temperature, above 0.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> z, y = torch.tensor([[4.0, 0.0]]), torch.tensor([0])
        >>> smoothed_focal(z, y, smoothing=0.1) / label_smoothing(z, y, smoothing=0.1)
        tensor([1.])
    """
    epsilon = hyper("smoothing", smoothing, y, high=1.0)
    log_probs = torch.log_softmax(logits / as_column(hyper("temperature", temperature, y, 1e-3)), dim=-1)
    focus = (as_column(hyper("gamma", gamma, y)) * log_others(log_probs)).exp()
    values = focus * log_probs
    return (1 - epsilon) * F.nll_loss(values, y, reduction="none") - epsilon * values.mean(dim=-1)
