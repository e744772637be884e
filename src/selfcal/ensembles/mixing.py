"""Predictions of several networks as one: averages, temperatures and mixing weights from held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from selfcal._support.checks import Float, Int

MAX_TEMPERATURE = 20.0
"""Temperatures are searched between the inverse of this and this."""
MAX_TEMPERATURE_ROWS = 20_000
"""Rows that a temperature is fitted on at most: they determine it to a hundredth or two."""
EM_STEPS = 200
"""Steps of expectation maximisation for the mixing weights."""
BLOCK_LOGITS = 2**18
"""Logits that are turned into probabilities at a time, so that few copies of them are in memory."""


def mean_probs(logits: Float, temperature: float = 1.0) -> Float:
    """The mean over networks of ``softmax(logits / temperature)``; NaN for rows without a prediction.

    Args:
        logits: Of shape (predictions, rows, classes); NaN where a row has fewer predictions.
        temperature: The temperature that divides the logits.

    Example:
        >>> mean_probs(np.array([[[0.0, 0.0]], [[np.nan, np.nan]]]))
        array([[0.5, 0.5]])
    """
    n_predictions, n_rows, n_classes = logits.shape
    probs = np.full((n_rows, n_classes), np.nan)
    step = max(1, BLOCK_LOGITS // (n_predictions * n_classes))
    for start in range(0, n_rows, step):
        block = logits[:, start : start + step]
        given = ~np.isnan(block[:, :, 0])
        logs = np.where(given[:, :, None], log_softmax(np.nan_to_num(block) / temperature, axis=2), -np.inf)
        count = given.sum(axis=0)
        predicted = np.flatnonzero(count)
        probs[start + predicted] = np.exp(logsumexp(logs[:, predicted], axis=0)) / count[predicted, None]
    return probs


def fitted_temperature(logits: Float, y: Int, weight: Float | None = None) -> float:
    """The temperature of the lowest log loss of `mean_probs`, or one if it does not improve in cross-validation.

    In cross-validation each fifth of the rows is predicted with the temperature of the others. At most
    `MAX_TEMPERATURE_ROWS` rows, evenly spaced, are used.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(2000, 3))
        >>> y = np.array([rng.choice(3, p=p) for p in np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)])
        >>> round(fitted_temperature(3 * logits[None], y), 1), fitted_temperature(logits[None], y)
        (3.0, 1.0)
    """
    used = np.flatnonzero(~np.isnan(logits[0, :, 0]))
    used = used[:: max(1, len(used) // MAX_TEMPERATURE_ROWS)]
    logits, y = logits[:, used], y[used]
    weight = np.ones(len(y)) if weight is None else weight[used]
    fold = np.random.default_rng(0).permutation(len(y)) % 5

    def loss(rows: Any, temperature: float) -> float:
        losses = log_losses(mean_probs(logits[:, rows], temperature), y[rows])
        return float(losses @ weight[rows])

    def best(rows: Any) -> float:
        found = minimize_scalar(
            lambda log: loss(rows, float(np.exp(log))),
            bounds=(-np.log(MAX_TEMPERATURE), np.log(MAX_TEMPERATURE)),
            method="bounded",
        )
        return float(np.exp(found.x))

    gain = sum(loss(fold == k, 1.0) - loss(fold == k, best(fold != k)) for k in range(5) if (fold == k).any())
    return best(slice(None)) if len(y) >= 5 and gain > 0 else 1.0


def log_losses(probs: Float, y: Int) -> Float:
    """Minus the log probability of each label, never infinite."""
    losses: Float = -np.log(np.maximum(probs[np.arange(len(y)), y], np.finfo(np.float64).tiny))
    return losses


def mean_log_loss(probs: Float, y: Int, weight: Float | None) -> float:
    """The mean log loss over the rows that have a prediction."""
    given = ~np.isnan(probs[:, 0])
    return float(
        np.average(log_losses(probs[given], y[given]), weights=None if weight is None else weight[given])
    )


def mixture_weights(probs: Sequence[Float], y: Int, weight: Float | None = None) -> Float:
    """The weights whose mixture of probabilities has the lowest log loss, by expectation maximisation.

    The log loss is convex in the weights, so that the minimum is unique up to ties.

    Example:
        >>> right, wrong = np.array([[0.9, 0.1]] * 4), np.array([[0.2, 0.8]] * 4)
        >>> mixture_weights([right, wrong], np.array([0, 0, 0, 0])).round(2)
        array([1., 0.])
    """
    likelihood = np.stack([p[np.arange(len(y)), y] for p in probs])
    mixture = np.full(len(probs), 1 / len(probs))
    for _ in range(EM_STEPS):
        joint = mixture[:, None] * likelihood
        mixture = np.average(joint / joint.sum(axis=0).clip(np.finfo(float).tiny), axis=1, weights=weight)
    return mixture / mixture.sum()


def mixture(weights: Sequence[float] | Float, probs: Sequence[Float]) -> Float:
    """The weighted sum, without a copy of all the probabilities."""
    mixed = weights[0] * probs[0]
    for weight, one in zip(weights[1:], probs[1:], strict=True):
        mixed += weight * one
    return mixed
