"""Calibration errors of a batch that are differentiable in both confidence and accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range, positive_int
from selfcal._support.top_label import bin_memberships, known_labels
from selfcal.objectives._rows import mean_over_rows, normalized_weights
from selfcal.training.interfaces import Objective
from selfcal.training.types import Batch, Output


def soft_accuracy(probs: Tensor, y: Tensor, temperature: float = 0.01) -> Tensor:
    """A differentiable accuracy from the rank of the label: 1 if it clearly leads, 0 from the second rank on.

    ``max(0, 2 - r)`` with the soft rank of the label among the classes, ``r = 1 + Σ_(k ≠ y) σ((p_k - p_y) / T)``.
    A label that leads or trails by several T counts as clearly right or wrong.

    Args:
        probs: Probabilities, one row per sample.
        y: Label codes.
        temperature: Softness T of the rank, in units of probability; with 0, its limit, the accuracy is whether
            the first argmax is right and has no gradient.

    Returns:
        One value per row, in [0, 1].

    Example:
        >>> import torch
        >>> soft_accuracy(torch.tensor([[0.7, 0.3], [0.51, 0.49], [0.3, 0.7]]), torch.tensor([0, 0, 0]))
        tensor([1.0000, 0.8808, 0.0000])

    Reference:
        Qin, Liu and Li, A general approximation framework for direct optimization of information retrieval
        measures, 2010, for the rank; Bohdal, Yang and Hospedales, Meta-calibration: learning of model calibration
        using differentiable expected calibration error, 2021, for the accuracy and, in their code, T = 0.01.
    """
    if temperature == 0:
        return (probs.argmax(dim=-1) == y).to(probs)
    ahead = torch.sigmoid((probs - probs.gather(-1, y[:, None])) / temperature)
    rank = 0.5 + ahead.sum(dim=-1)  # the label is ahead of itself by one half
    return (2 - rank).clamp(min=0)


@dataclass(frozen=True)
class SECE(Objective):
    """Smooth expected calibration error: each confidence against the accuracy around it.

    ``Σ_i s_i |acc(c_i) - c_i|`` with the Nadaraya-Watson estimate ``acc(c_i) = Σ_j s_j a_j K_ij / Σ_j s_j K_ij``,
    ``K_ij = exp(-(c_i - c_j)² / 2b²)``, c the confidence, a the soft accuracy and s the row's normalised weight.
    As T → 0 it is `metrics.sece`. Time and memory grow with the square of the batch.

    Args:
        bandwidth: Standard deviation b of the kernel; the default is what the paper found by grid search.
        temperature: Softness T of the accuracy, see `soft_accuracy`; with 0 the gradient is that of the
            confidences alone.

    Example:
        >>> import torch
        >>> half_wrong = Output(torch.tensor([[9.0, 0.0]] * 2)), Batch(torch.zeros(2, 1), torch.tensor([0, 1]))
        >>> SECE()(*half_wrong)
        tensor(0.4999)

    Reference:
        Towards unbiased calibration using meta-regularization, 2023, eqs. 5-7 and 12.
    """

    bandwidth: float = 0.01
    temperature: float = 0.01

    def __post_init__(self) -> None:
        in_range("bandwidth", self.bandwidth, 0, open_low=True)
        in_range("temperature", self.temperature, 0)

    def __call__(self, output: Output, batch: Batch) -> Tensor:
        """The error of the batch."""
        confidence, accuracy = _confidence_and_accuracy(output, batch, self.temperature)
        place = confidence / (math.sqrt(2) * self.bandwidth)
        weight = normalized_weights(batch, confidence).clamp(min=torch.finfo(confidence.dtype).tiny)
        # as a softmax: around a row of no weight that is far from all others, the sum of K would be zero
        near = torch.softmax(weight.log() - (place[:, None] - place).square(), dim=-1)
        return mean_over_rows((near @ accuracy - confidence).abs(), batch)


@dataclass(frozen=True)
class DECE(Objective):
    """Differentiable expected calibration error: the ECE with soft bins and soft accuracy.

    ``Σ_b |Σ_i s_i m_ib (a_i - c_i)|`` with c the confidence, a the soft accuracy and s the row's normalised weight.
    Row i belongs to bin b by ``m_ib = softmax_b((b c_i - e_1 - ... - e_b) / T)``, e_b being the lower edge of bin b:
    it passes from a bin to the next within a few T of the edge. As both temperatures → 0 it is
    `metrics.expected_calibration_error`.

    Args:
        n_bins: Number of bins of equal width.
        bin_temperature: Softness T of the edges, in units of confidence. The default is that of the authors'
            code; a row in the middle of one of 15 bins belongs to it by 93%.
        accuracy_temperature: Softness of the accuracy, see `soft_accuracy`; with 0 the gradient is that of the
            confidences alone.

    Example:
        >>> import torch
        >>> half_wrong = Output(torch.tensor([[9.0, 0.0]] * 2)), Batch(torch.zeros(2, 1), torch.tensor([0, 1]))
        >>> DECE()(*half_wrong)
        tensor(0.4999)

    Reference:
        Bohdal, Yang and Hospedales, Meta-calibration: learning of model calibration using differentiable expected
        calibration error, 2021; the soft bins are those of Yang, Morillo and Hospedales, Deep neural decision
        trees, 2018.
    """

    n_bins: int = 15
    bin_temperature: float = 0.01
    accuracy_temperature: float = 0.01

    def __post_init__(self) -> None:
        positive_int("n_bins", self.n_bins)
        in_range("bin_temperature", self.bin_temperature, 0, open_low=True)
        in_range("accuracy_temperature", self.accuracy_temperature, 0)

    def __call__(self, output: Output, batch: Batch) -> Tensor:
        """The error of the batch."""
        confidence, accuracy = _confidence_and_accuracy(output, batch, self.accuracy_temperature)
        # completing the square in (b c - e_1 - ... - e_b) / T leaves -(c - middle of b)² n / 2T
        members = bin_memberships(confidence, self.n_bins, 2 * self.bin_temperature / self.n_bins)
        return mean_over_rows(members * (accuracy - confidence)[:, None], batch).abs().sum()


def _confidence_and_accuracy(output: Output, batch: Batch, temperature: float) -> tuple[Tensor, Tensor]:
    """The confidence in the chosen class and the soft accuracy of each row."""
    probs = torch.softmax(output.logits, dim=-1)
    y = known_labels(probs, batch.y)
    return probs.max(dim=-1).values, soft_accuracy(probs, y, temperature)
