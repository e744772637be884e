"""Binary cross-entropy of the confidence against being right."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.special import lambertw
from torch import Tensor
from torch.nn import functional as F

from selfcal._support.checks import in_range
from selfcal._support.top_label import known_labels
from selfcal.objectives._rows import mean_over_rows
from selfcal.training.interfaces import Objective
from selfcal.training.types import Batch, Output

MAX_GAP = 0.009
"""Upper bound of the gap between the smooth maximum with the default β and the maximum."""


def smooth_max(probs: Tensor, beta: float | None = None) -> Tensor:
    """The Boltzmann smooth maximum over the last axis, ``Σ p exp(βp) / Σ exp(βp)``.

    It is below the maximum by at most ``W((C - 1) / e) / β`` (W: Lambert's function), reached when all but
    one probability are equal. The default β keeps that gap under 0.01 for any number of classes C.

    Example:
        >>> import torch
        >>> smooth_max(torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.5, 0.0]]))
        tensor([0.7000, 0.5000])

    Reference:
        Asadi and Littman, An alternative softmax operator for reinforcement learning, 2017.
    """
    if beta is None:
        beta = float(lambertw((probs.shape[-1] - 1) / torch.e).real) / MAX_GAP
    return (probs * torch.softmax(beta * probs, dim=-1)).sum(dim=-1)


@dataclass(frozen=True)
class ConfidenceBCE(Objective):
    """Mean BCE of the smooth-maximum confidence against correctness; no gradient flows through argmax.

    Args:
        beta: Sharpness of the smooth maximum; by default it depends on the number of classes.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[2.0, 0.0], [2.0, 0.0]])
        >>> sure = Output(logits), Batch(torch.zeros(2, 1), torch.tensor([0, 0]))
        >>> half_wrong = Output(logits), Batch(torch.zeros(2, 1), torch.tensor([0, 1]))
        >>> bool(ConfidenceBCE()(*sure) < ConfidenceBCE()(*half_wrong))
        True

    Reference:
        Sanguin, Pakrashi, Viola and Rinaldi, Exploring the potential of bilevel optimization for
        calibrating neural networks, 2024, eqs. 12-13.
    """

    beta: float | None = None

    def __post_init__(self) -> None:
        if self.beta is not None:
            in_range("beta", self.beta, 0, open_low=True)

    def __call__(self, output: Output, batch: Batch) -> Tensor:
        """The mean over the rows."""
        confidence = smooth_max(torch.softmax(output.logits, dim=-1), self.beta)
        eps = torch.finfo(confidence.dtype).eps
        y = known_labels(output.logits, batch.y)
        correct = (output.logits.argmax(dim=-1) == y).to(confidence.dtype)
        loss = F.binary_cross_entropy(confidence.clamp(eps, 1 - eps), correct, reduction="none")
        return mean_over_rows(loss, batch)
