"""Helpers of several losses."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.errors import ConfigError

Hyper = float | Tensor
"""A hyperparameter: a number, or a tensor with one value for all rows or one for each."""


def hyper(name: str, value: Hyper, y: Tensor, low: float = 0.0, high: float = float("inf")) -> Hyper:
    """Return `value` if it is a number within [low, high] or a tensor of a fitting shape (values unchecked)."""
    if not isinstance(value, Tensor):
        return in_range(name, value, low, high)
    if value.shape in ((), y.shape):
        return value
    raise ConfigError(
        f"{name} must be a number, or a tensor with one value or one for each of the {len(y)} rows; "
        f"got shape {tuple(value.shape)}."
    )


def is_label(logits: Tensor, y: Tensor) -> Tensor:
    """Whether the column is the row's label."""
    return torch.arange(logits.shape[-1], device=y.device) == y[:, None]


def entropy(logits: Tensor) -> Tensor:
    """The entropy of each row's probabilities, in nats."""
    log_probs = torch.log_softmax(logits, dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def as_column(value: Hyper) -> Hyper:
    """A hyperparameter that fits the columns of the rows."""
    return value[:, None] if isinstance(value, Tensor) and value.ndim else value


def log_others(log_probs: Tensor) -> Tensor:
    """The logarithm of ``1 - p_j`` for every class, finite with its derivatives, however close p_j is to one."""
    k = log_probs.shape[-1]
    itself = torch.eye(k, dtype=torch.bool, device=log_probs.device)
    return log_probs[:, None, :].masked_fill(itself, -torch.inf).logsumexp(dim=-1)
