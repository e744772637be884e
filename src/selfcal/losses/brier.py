"""The Brier score as a loss."""

import torch
from torch import Tensor
from torch.nn import functional as F

from selfcal.losses._rows import is_label


def brier(logits: Tensor, y: Tensor) -> Tensor:
    """Squared distance between the probabilities and the label, ``(1 - p_y)² + Σ_(j≠y) p_j²``; from 0 to 2.

    Example:
        >>> import torch
        >>> brier(torch.zeros(1, 4), torch.tensor([2]))
        tensor([0.7500])

    Reference:
        Brier, Verification of forecasts expressed in terms of probability, 1950.
    """
    probs = torch.softmax(logits, dim=-1)
    short = 1 + F.nll_loss(probs, y, reduction="none")
    return short.square() + probs.masked_fill(is_label(logits, y), 0).square().sum(dim=-1)
