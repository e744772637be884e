"""Cross-entropy plus a differentiable calibration error of the batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from selfcal._support.checks import in_range, one_of
from selfcal._support.top_label import bin_memberships, root, top
from selfcal.losses._rows import Hyper, hyper, is_label
from selfcal.losses.cross_entropy import cross_entropy


def mdca(logits: Tensor, y: Tensor, *, alpha: Hyper = 1.0) -> Tensor:
    """Cross-entropy plus the distance between mean predicted probability and frequency of each class (MDCA).

    ``-log p_y + α mean_k |mean_i p_ik - mean_i 1[y_i = k]|``; the second term is the same in each row.

    Args:
        logits: One row per sample.
        y: Label codes.
        alpha: The weight α of the calibration error.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> sure, y = torch.tensor([[99.0, 0.0], [99.0, 0.0]]), torch.tensor([0, 1])
        >>> mdca(sure, y, alpha=1.0) - mdca(sure, y, alpha=0.0)
        tensor([0.5000, 0.5000])

    Reference:
        Hebbalaguppe, Prakash, Madan and Arora, A stitch in time saves nine: a train-time regularizing loss for
        improved neural network calibration, 2022.
    """
    predicted = torch.softmax(logits, dim=-1).mean(dim=0)
    observed = is_label(logits, y).to(predicted).mean(dim=0)
    return cross_entropy(logits, y) + hyper("alpha", alpha, y) * (predicted - observed).abs().mean()


def huber_gap(logits: Tensor, y: Tensor, *, alpha: Hyper = 10.0, delta: float = 0.05) -> Tensor:
    """Cross-entropy and the Huber loss of the difference d between the batch's mean confidence and its accuracy.

    ``-log p_y + α h(d)`` with ``h(d) = d² / 2`` if ``|d| <= δ``, else ``δ (|d| - δ / 2)``; the second term is the
    same in each row.

    Args:
        logits: One row per sample.
        y: Label codes.
        alpha: The weight α of the difference.
        delta: The difference δ from which the loss grows linearly.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> sure, y = torch.tensor([[99.0, 0.0], [99.0, 0.0]]), torch.tensor([0, 1])
        >>> huber_gap(sure, y, alpha=1.0, delta=0.2) - huber_gap(sure, y, alpha=0.0)
        tensor([0.0800, 0.0800])

    Reference:
        Patra, Hebbalaguppe, Dash, Shroff and Vig, Calibrating deep neural networks using explicit regularisation and
        dynamic data pruning, 2023; the defaults are ours.
    """
    in_range("delta", delta, 0, open_low=True)
    confidence, right = top(logits, y)
    gap = huber_loss(confidence.mean(), right.to(confidence).mean(), delta=delta)
    return cross_entropy(logits, y) + hyper("alpha", alpha, y) * gap


def soft_ece(
    logits: Tensor,
    y: Tensor,
    *,
    alpha: Hyper = 1.0,
    n_bins: int = 15,
    temperature: float = 0.01,
    norm: str = "l2",
) -> Tensor:
    """Cross-entropy and the batch's expected calibration error with soft bins (SB-ECE).

    A row of confidence c belongs to bin j, with centre m_j, with membership ``softmax_j(-(c - m_j)² / T)``. With S_j
    the memberships in a bin and g_j the mean of ``a - c`` in it, a being whether the row is right, the error is
    ``Σ_j S_j |g_j| / n`` or ``sqrt(Σ_j S_j g_j² / n)``. It is the same in each row. As T → 0 the first is the ECE
    with bins of equal width.

    Args:
        logits: One row per sample.
        y: Label codes.
        alpha: The weight of the calibration error.
        n_bins: Number of bins.
        temperature: Softness T of the bins.
        norm: ``"l1"`` or ``"l2"``.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> sure, y = torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1])
        >>> soft_ece(sure, y, alpha=1.0) - soft_ece(sure, y, alpha=0.0)
        tensor([0.4999, 0.4999])

    Reference:
        Karandikar et al., Soft calibration objectives for neural networks, 2021, eq. 11; the weight is ours, they
        tune it.
    """
    in_range("temperature", temperature, 0, open_low=True)
    one_of("norm", norm, ("l1", "l2"))
    confidence, right = top(logits, y)
    members = bin_memberships(confidence, n_bins, temperature) / len(y)
    gaps = members.T @ (right.to(confidence) - confidence)
    if norm == "l1":
        error = gaps.abs().sum()
    else:
        mass = members.sum(dim=0).clamp(min=torch.finfo(members.dtype).eps)
        error = root((gaps.square() / mass).sum())
    return cross_entropy(logits, y) + hyper("alpha", alpha, y) * error
