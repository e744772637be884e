"""Constraints on pairs of classes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from selfcal.losses._rows import Hyper, hyper, is_label
from selfcal.losses.cross_entropy import cross_entropy


def cpc(logits: Tensor, y: Tensor, *, alpha: Hyper = 1.0, beta: Hyper = 1.0) -> Tensor:
    """Cross-entropy and calibration by pairwise constraints, on the two-class problem of each pair of k classes.

    With ``q_jl = sigmoid(z_j - z_l)``, the probability of class j where only j or l is possible, it is
    ``-log p_y + α D + β E``: the label is told from each other class by the binary discrimination constraints
    ``D = -Σ_j log q_yj / (k - 1)``, and neither of two other classes is preferred by the binary exclusion constraints
    ``E = -Σ_{j ≠ l} log(q_jl) / 2 / ((k - 1) (k - 2))``, over ordered pairs of classes other than y. Of two classes,
    E is 0 and D is the cross-entropy once more. Time and memory grow with the square of the classes.

    Args:
        logits: One row per sample.
        y: Label codes.
        alpha: The weight α of discrimination.
        beta: The weight β of exclusion.

    Returns:
        One value per row.

    Example:
        Equal logits: ``log 3 + log 2 + log(2) / 2``.

        >>> import torch
        >>> cpc(torch.zeros(1, 3), torch.tensor([0]))
        tensor([2.1383])

    Reference:
        Cheng and Vasconcelos, Calibrating deep neural networks by pairwise constraints, 2022.
    """
    other = ~is_label(logits, y)
    n_others = logits.shape[-1] - 1
    loss = cross_entropy(logits, y)
    lead = logits.gather(-1, y[:, None]) - logits
    discrimination = (softplus(-lead) * other).sum(dim=-1) / n_others
    pairs = (
        other[:, :, None] & other[:, None, :] & ~torch.eye(n_others + 1, dtype=torch.bool, device=y.device)
    )
    undecided = (softplus(logits[:, None, :] - logits[:, :, None]) * pairs).sum(dim=(-1, -2)) / 2
    exclusion = undecided / max(1, n_others * (n_others - 1))
    return loss + hyper("alpha", alpha, y) * discrimination + hyper("beta", beta, y) * exclusion
