"""Cross-entropy."""

from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Minus the log probability of the label.

    Example:
        >>> import torch
        >>> cross_entropy(torch.zeros(1, 4), torch.tensor([2])).exp()
        tensor([4.])
    """
    return F.cross_entropy(logits, y, reduction="none")


def soft_cross_entropy(logits: Tensor, y: Tensor, *, teacher: Tensor | None = None) -> Tensor:
    """Cross-entropy against a teacher's probabilities, ``-Σ_c t_c log p_c``; the labels are used only without one.

    Args:
        logits: One row per sample.
        y: Label codes.
        teacher: The teacher's probabilities, of the shape of the logits; None is cross-entropy.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> soft_cross_entropy(torch.zeros(1, 2), torch.tensor([0]), teacher=torch.tensor([[0.5, 0.5]]))
        tensor([0.6931])
    """
    if teacher is None:
        return cross_entropy(logits, y)
    return -(teacher * logits.log_softmax(dim=1)).sum(dim=1)
