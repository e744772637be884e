"""Over-confidence, under-confidence and sharpness."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support.binning import Closed, Strategy, bin_chunks
from selfcal._support.checks import Float
from selfcal.metrics._rows import Block, mean_over_rows, top_labels


def overconfidence(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    closed: Closed = "right",
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """The part of the expected calibration error from bins whose confidence max(p) exceeds the accuracy.

    `sum_b s_b max(conf_b - acc_b, 0)`; with `underconfidence` it adds up to the expected calibration error. The
    overconfidence error of Thulasidasan et al. also multiplies each term by conf_b.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        closed: "right" for bins (a, b], "left" for [a, b).
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The overconfidence, in [0, 1].

    >>> round(overconfidence([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.2

    Reference: Thulasidasan et al., On Mixup Training: Improved Calibration and Predictive Uncertainty for
    Deep Neural Networks, NeurIPS 2019.
    """
    chunks = top_labels(y_true, probs, classes, sample_weight)
    curve = bin_chunks(chunks, n_bins=n_bins, strategy=strategy, closed=closed)
    return float(curve.share @ np.maximum(-curve.gap, 0))


def underconfidence(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    closed: Closed = "right",
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """The part of the expected calibration error from bins whose accuracy exceeds the confidence max(p).

    `sum_b s_b max(acc_b - conf_b, 0)`; with `overconfidence` it adds up to the expected calibration error.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        closed: "right" for bins (a, b], "left" for [a, b).
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The underconfidence, in [0, 1].

    >>> round(underconfidence([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.1
    """
    chunks = top_labels(y_true, probs, classes, sample_weight)
    curve = bin_chunks(chunks, n_bins=n_bins, strategy=strategy, closed=closed)
    return float(curve.share @ np.maximum(curve.gap, 0))


def sharpness(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Sharpness: the distance of the probabilities from uniform, whether or not they are right.

    The weighted mean of `(K sum_k p_k^2 - 1) / (K - 1)` over rows: 0 for uniform rows over K classes and 1 for
    certain ones. A calibrated model has a Brier score of `(1 - 1/K) (1 - sharpness)` in expectation, so that among
    calibrated models the sharpest is the best. It does not depend on the labels, which are only validated.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The sharpness, in [0, 1].

    >>> round(sharpness([0, 1], [[1.0, 0.0], [0.5, 0.5]]), 6)
    0.5

    Reference: Gneiting, Balabdaoui, Raftery, Probabilistic Forecasts, Calibration and Sharpness, J. R. Stat.
    Soc. B 69 (2007).
    """
    return mean_over_rows(_concentration, y_true, probs, classes, sample_weight)


def _concentration(block: Block) -> Float:
    columns = block.columns.astype(np.float64)
    k = len(columns)
    squares: Float = np.einsum("kn,kn->n", columns, columns)
    return (k * squares - 1) / (k - 1)
