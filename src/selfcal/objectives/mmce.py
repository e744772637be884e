"""Maximum mean calibration error."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from selfcal._support.checks import in_range
from selfcal._support.top_label import kernel_norm, known_labels, pairs
from selfcal.objectives._rows import normalized_weights
from selfcal.training.interfaces import Objective
from selfcal.training.types import Batch, Output


@dataclass(frozen=True)
class MMCE(Objective):
    """The residuals of the batch in the norm of a Laplacian kernel; no gradient flows through argmax.

    ``sqrt(Σ_ij d_i d_j exp(-|c_i - c_j| / b))`` with ``d_i = s_i (a_i - c_i)``, c the confidence, a whether the
    chosen class is right and s the row's normalised weight: `metrics.mmce`, over all pairs of rows.

    Args:
        bandwidth: Scale b of the kernel.

    Example:
        >>> import torch
        >>> half_wrong = Output(torch.tensor([[9.0, 0.0]] * 2)), Batch(torch.zeros(2, 1), torch.tensor([0, 1]))
        >>> MMCE()(*half_wrong)
        tensor(0.4999)

    Reference:
        Kumar, Sarawagi and Jain, Trainable calibration measures for neural networks from kernel mean
        embeddings, 2018.
    """

    bandwidth: float = 0.4

    def __post_init__(self) -> None:
        in_range("bandwidth", self.bandwidth, 0, open_low=True)

    def __call__(self, output: Output, batch: Batch) -> Tensor:
        """The error of the batch, which must have at least two rows."""
        confidence, right = pairs(output.logits, known_labels(output.logits, batch.y))
        residuals = normalized_weights(batch, confidence) * (right.to(confidence) - confidence)
        return kernel_norm(residuals, confidence, self.bandwidth)
