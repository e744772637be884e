"""Maximum mean calibration error as part of a loss."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal._support.top_label import kernel_norm, pairs
from selfcal.losses._rows import Hyper, hyper
from selfcal.losses.cross_entropy import cross_entropy


def mmce(logits: Tensor, y: Tensor, *, alpha: Hyper = 2.0, bandwidth: float = 0.4) -> Tensor:
    """Cross-entropy and the batch's MMCE, ``-log p_y + α sqrt(Σ_ij d_i d_j exp(-|c_i - c_j| / b))``.

    ``d_i = (a_i - c_i) / n`` with c the confidence and a whether the chosen class is right. The second term is
    that of the whole batch, the same in each row, so that the mean over the rows is what the paper minimises. Its
    time and memory grow with the square of the batch.

    Args:
        logits: One row per sample; at least two.
        y: Label codes.
        alpha: The weight α of the calibration error.
        bandwidth: Scale b of the kernel.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> sure, y = torch.tensor([[9.0, 0.0], [9.0, 0.0]]), torch.tensor([0, 1])
        >>> (mmce(sure, y, alpha=1.0) - mmce(sure, y, alpha=0.0))
        tensor([0.4999, 0.4999])

    Reference:
        Kumar, Sarawagi and Jain, Trainable calibration measures for neural networks from kernel mean
        embeddings, 2018; the kernel is theirs, the weight ours.
    """
    confidence, right = pairs(logits, y)
    residuals = (right.to(confidence) - confidence) / len(y)
    return cross_entropy(logits, y) + hyper("alpha", alpha, y) * kernel_norm(residuals, confidence, bandwidth)


def weighted_mmce(logits: Tensor, y: Tensor, *, alpha: Hyper = 2.0, bandwidth: float = 0.4) -> Tensor:
    """Cross-entropy and the batch's weighted MMCE, in which right and wrong rows have the same total weight.

    As `mmce`, but ``d_i = (a_i - c_i) / m_i`` with ``m_i`` the number of rows that are right if row i is, of
    those that are wrong if it is wrong.

    Args:
        logits: One row per sample; at least two.
        y: Label codes.
        alpha: The weight α of the calibration error.
        bandwidth: Scale b of the kernel.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> sure, y = torch.tensor([[9.0, 0.0]] * 3), torch.tensor([0, 0, 1])
        >>> (weighted_mmce(sure, y, alpha=1.0) - weighted_mmce(sure, y, alpha=0.0))
        tensor([0.9998, 0.9998, 0.9998])

    Reference:
        Kumar, Sarawagi and Jain, as for `mmce`.
    """
    confidence, right = pairs(logits, y)
    alike = torch.where(right, right.sum(), (~right).sum())
    residuals = (right.to(confidence) - confidence) / alike
    return cross_entropy(logits, y) + hyper("alpha", alpha, y) * kernel_norm(residuals, confidence, bandwidth)
