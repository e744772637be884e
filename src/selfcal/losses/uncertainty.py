"""Cross-entropy plus a penalty on rows that are right but uncertain, or wrong but certain."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal._support.top_label import top
from selfcal.losses._rows import Hyper, entropy, hyper
from selfcal.losses.cross_entropy import cross_entropy

MIN_DIVISOR = 1e-5
"""Lower bound of the sum over good rows as a divisor: a batch may have none."""


def avuc(logits: Tensor, y: Tensor, *, alpha: Hyper = 1.0, threshold: float = 0.5) -> Tensor:
    """Cross-entropy and the batch's accuracy versus uncertainty (AvUC).

    ``-log p_y + α log(1 + (n_AU + n_IC) / (n_AC + n_IU))`` with sums over rows that are accurate or inaccurate,
    certain or uncertain: a row is uncertain if its entropy H is above a fraction of the largest possible. A row
    has the weight ``c`` if it is accurate and ``1 - c`` if not, c being its confidence, times ``tanh H`` if it is
    uncertain and ``1 - tanh H`` if not. The second term is the same in each row.

    Args:
        logits: One row per sample.
        y: Label codes.
        alpha: The weight α of the penalty.
        threshold: The fraction of the largest entropy above which a row is uncertain, in (0, 1).

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[9.0, 0.0], [0.1, 0.0]])
        >>> fits, fits_not = (avuc(logits, y) - avuc(logits, y, alpha=0.0) for y in torch.tensor([[0, 1], [1, 0]]))
        >>> bool(fits[0] < fits_not[0])
        True

    Reference:
        Krishnan and Tickoo, Improving model calibration with accuracy versus uncertainty optimization, 2020,
        eq. 3; they take the threshold from the entropies after some epochs of training. The weight is ours.
    """
    confidence, right = top(logits, y)
    nats = entropy(logits)
    uncertainty = nats > in_range("threshold", threshold, 0, 1) * math.log(logits.shape[-1])
    counts = torch.where(right, confidence, 1 - confidence)
    return cross_entropy(logits, y) + hyper("alpha", alpha, y) * _mismatch(
        right, uncertainty.to(confidence), nats, counts
    )


def soft_avuc(
    logits: Tensor, y: Tensor, *, alpha: Hyper = 1.0, threshold: float = 0.5, temperature: float = 1.0
) -> Tensor:
    """Cross-entropy and the batch's accuracy versus uncertainty with a soft threshold (S-AvUC).

    As `avuc`, but a row is uncertain to the degree ``sigmoid((logit h - logit κ) / T)``, h being its entropy as
    a fraction of the largest possible, and is not weighted by its confidence.

    Args:
        logits: One row per sample.
        y: Label codes.
        alpha: The weight of the penalty.
        threshold: The fraction κ of the largest entropy at which a row is equally certain and uncertain, in (0, 1).
        temperature: Softness T of the threshold.

    Returns:
        One value per row.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[9.0, 0.0], [0.1, 0.0]])
        >>> labels = torch.tensor([[0, 1], [1, 0]])
        >>> fits, fits_not = (soft_avuc(logits, y) - soft_avuc(logits, y, alpha=0.0) for y in labels)
        >>> bool(fits[0] < fits_not[0])
        True

    Reference:
        Karandikar et al., Soft calibration objectives for neural networks, 2021, eq. 15; the weight is ours,
        they tune it.
    """
    kappa = in_range("threshold", threshold, 1e-6, 1 - 1e-6)
    in_range("temperature", temperature, 0, open_low=True)
    _, right = top(logits, y)
    nats = entropy(logits)
    eps = torch.finfo(nats.dtype).eps
    log_odds = (nats / math.log(logits.shape[-1])).clamp(eps, 1 - eps).logit()
    uncertainty = torch.sigmoid((log_odds - math.log(kappa / (1 - kappa))) / temperature)
    return cross_entropy(logits, y) + hyper("alpha", alpha, y) * _mismatch(right, uncertainty, nats)


def _mismatch(right: Tensor, uncertainty: Tensor, nats: Tensor, counts: Tensor | float = 1.0) -> Tensor:
    """The log of one plus bad rows over good rows."""
    uncertain = counts * uncertainty * nats.tanh()
    certain = counts * (1 - uncertainty) * (1 - nats.tanh())
    good = torch.where(right, certain, uncertain).sum()
    bad = torch.where(right, uncertain, certain).sum()
    return torch.log1p(bad / good.clamp(min=MIN_DIVISOR))
