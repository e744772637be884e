"""Accuracy and the proper scores."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.errors import ConfigError
from selfcal.metrics._rows import Block, mean_over_rows

LOG_FLOOR = float(np.finfo(np.float64).eps)
"""Smaller probabilities count as this in the log loss: one confident mistake costs at most 36.04."""


def accuracy(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Weighted fraction of rows whose most probable class is the true one (the first, if several tie).

    `sum_i w_i 1[argmax_k p_ik = y_i] / sum_i w_i`

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The accuracy, in [0, 1].

    >>> accuracy([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    0.6666666666666666
    """
    return mean_over_rows(lambda block: block.top_label().correct, y_true, probs, classes, sample_weight)


def log_loss(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Weighted mean negative log probability of the true class.

    `-sum_i w_i log max(p_i,y_i, eps) / sum_i w_i` with eps = 2.2e-16, the epsilon of float64.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The log loss in nats, at least 0.

    >>> round(log_loss([0, 1], [[0.9, 0.1], [0.2, 0.8]]), 6)
    0.164252

    Reference: Good, Rational Decisions, J. R. Stat. Soc. B 14 (1952).
    """
    return mean_over_rows(negative_log_likelihood, y_true, probs, classes, sample_weight)


def brier_score(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    scale_by_half: bool | Literal["auto"] = False,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Weighted mean squared distance of the probabilities to the one-hot label, summed over the classes.

    `sum_i w_i sum_k (p_ik - 1[y_i = k])^2 / sum_i w_i`; for two classes twice the score of P(y=1) alone, which is
    what `sklearn.metrics.brier_score_loss` gives by default.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        scale_by_half: True for half of it, "auto" for half of it with two classes only, as in scikit-learn, whose
            default is "auto".
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The Brier score, in [0, 2], or in [0, 1] if halved.

    >>> round(brier_score([0, 1], [[0.9, 0.1], [0.2, 0.8]]), 6)
    0.05
    >>> round(brier_score([0, 1], [[0.9, 0.1], [0.2, 0.8]], scale_by_half="auto"), 6)
    0.025

    Reference: Brier, Verification of Forecasts Expressed in Terms of Probability, Mon. Weather Rev. 78
    (1950).
    """
    if scale_by_half not in (True, False, "auto"):
        raise ConfigError(f'scale_by_half must be True, False or "auto"; got {scale_by_half!r}.')
    score = mean_over_rows(squared_distance, y_true, probs, classes, sample_weight)
    halved = scale_by_half is True or (scale_by_half == "auto" and checks.as_array(probs).shape[1] == 2)
    return score / 2 if halved else score


def negative_log_likelihood(block: Block) -> Float:
    """The log loss of each row."""
    found: Float = -np.log(np.maximum(block.true_class, LOG_FLOOR))
    return found


def squared_distance(block: Block) -> Float:
    """The Brier score of each row."""
    columns = block.columns.astype(np.float64)
    columns.reshape(-1)[block.place] = 0  # 1 - p is more accurate than what would be left of 1 - 2 p + p^2
    squares: Float = np.einsum("kn,kn->n", columns, columns)
    return squares + (1 - block.true_class) ** 2
