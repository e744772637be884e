"""Differentiable top-label quantities used by losses and objectives."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal._support.checks import in_range, positive_int, such
from selfcal.errors import DataError


def top(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the confidence in the predicted class, and whether that class is correct (without gradient)."""
    confidence, choice = torch.softmax(logits, dim=-1).max(dim=-1)
    return confidence, choice == y


def pairs(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same for a batch, which must have at least two rows."""
    if len(y) < 2:
        raise DataError(
            f"MMCE compares pairs of rows and needs at least two in a batch; got {len(y)}. "
            "Use a larger batch size, or drop_last=True in the DataLoader."
        )
    return top(logits, y)


def known_labels(logits: Tensor, y: Tensor) -> Tensor:
    """Return `y` if each label has a logit: a gather would crash on some invalid labels and ignore others."""
    n_classes = logits.shape[-1]
    unknown = (y < 0) | (y >= n_classes)
    if unknown.any():
        row = int(unknown.int().argmax())
        raise DataError(
            f"Labels must be class codes from 0 to {n_classes - 1}, one for each logit; row {row} of the batch is "
            f"{y[row].item()} ({such(int(unknown.sum()), 'row')}). Drop these rows, or give the network as many "
            "outputs as there are classes."
        )
    return y


def bin_memberships(confidence: Tensor, n_bins: int, temperature: float) -> Tensor:
    """Return the soft membership of each row in each bin, ``softmax_j(-(c - m_j)² / T)`` with bin centres m_j."""
    centres = (torch.arange(positive_int("n_bins", n_bins)).to(confidence) + 0.5) / n_bins
    return torch.softmax(-((confidence[:, None] - centres) ** 2) / temperature, dim=-1)


def kernel_norm(residuals: Tensor, confidence: Tensor, bandwidth: float) -> Tensor:
    """``sqrt(Σ_ij d_i d_j exp(-|c_i - c_j| / b))``, the norm of the residuals under a Laplacian kernel."""
    distance = (confidence[:, None] - confidence).abs()
    kernel = torch.exp(-distance / in_range("bandwidth", bandwidth, 0, open_low=True))
    return root(residuals @ kernel @ residuals)


def root(square: Tensor) -> Tensor:
    """Return the square root; zero with zero gradient below machine precision, where its slope would be infinite."""
    visible = square > torch.finfo(square.dtype).eps ** 2
    return torch.where(visible, square, 1.0).sqrt() * visible
