"""Predictions of several models as one: averages, temperatures and pooling weights from held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax

from selfcal._support.checks import Float, Int

MAX_TEMPERATURE = 20.0
"""Temperatures are searched between the inverse of this and this."""
MAX_FITTED_ROWS = 20_000
"""Rows that temperatures and weights are fitted on at most: they determine them to a hundredth or two."""
MIN_WEIGHT = 0.15
"""A model of less weight is left out of a pool: its gain does not justify its prediction time."""
MAX_POOL_WEIGHT = 3.0
"""The largest weight in a pool."""
MAX_SCALE, MAX_SERVED_SCALE = 2.0, 1.15
"""Bounds of the scale of a pool for some members, and of the factor by which more members make it more certain."""
SLOPE_PARTS = 5
"""Parts of the rows whose slopes tell how certain the slope of `served_scale` is."""
TINY = np.finfo(np.float32).tiny
"""Probabilities are at least this before their logarithm is taken."""
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
    `MAX_FITTED_ROWS` rows, evenly spaced, are used. If none of them is predicted wrongly, the temperature is at least
    one: the log loss then falls for ever with the temperature, and nothing tells where to stop.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(2000, 3))
        >>> y = np.array([rng.choice(3, p=p) for p in np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)])
        >>> round(fitted_temperature(3 * logits[None], y), 1), fitted_temperature(logits[None], y)
        (3.0, 1.0)
    """
    used = np.flatnonzero(~np.isnan(logits[0, :, 0]))
    used = used[:: max(1, len(used) // MAX_FITTED_ROWS)]
    logits, y = logits[:, used], y[used]
    weight = np.ones(len(y)) if weight is None else weight[used]
    fold = np.random.default_rng(0).permutation(len(y)) % 5

    wrong = mean_probs(logits, 1.0).argmax(axis=1) != y
    lowest = 1 / MAX_TEMPERATURE if wrong[weight > 0].any() else 1.0

    def loss(rows: Any, temperature: float) -> float:
        losses = log_losses(mean_probs(logits[:, rows], temperature), y[rows])
        return float(losses @ weight[rows])

    def best(rows: Any) -> float:
        found = minimize_scalar(
            lambda log: loss(rows, float(np.exp(log))),
            bounds=(np.log(lowest), np.log(MAX_TEMPERATURE)),
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


def pool_weights(log_probs: Sequence[Float], y: Int, weight: Float | None = None) -> Float:
    """Non-negative weights whose logarithmic pool has the lowest log loss, without weights under `MIN_WEIGHT`.

    The pool of probabilities p_k is ``softmax(Σ_k w_k log p_k)``. Its log loss is convex in the weights, which need
    not sum to one: if they sum to more, the pool is more confident than what it is made of. A penalty of
    ``Σ_k w_k² / rows`` makes them unique. The smallest weights are removed one by one, and the others fitted again.

    Args:
        log_probs: For each model, log probabilities of the rows.
        y: Their label codes.
        weight: Their sample weights.

    Example:
        >>> right, wrong = np.log([[0.9, 0.1]] * 40), np.log([[0.2, 0.8]] * 40)
        >>> pool_weights([right, wrong], np.repeat([0, 1], [36, 4])).round(2)
        array([0.9, 0. ])
    """
    used = slice(None, None, max(1, len(y) // MAX_FITTED_ROWS))
    stacked = np.stack([one[used] for one in log_probs])
    y, weight = y[used], None if weight is None else weight[used] / weight[used].sum()
    kept = np.arange(len(stacked))
    while True:
        fitted = _fitted_pool(stacked[kept], y, weight)
        least = int(fitted.argmin())
        if fitted[least] >= MIN_WEIGHT or len(kept) == 1:
            break
        kept = np.delete(kept, least)
    weights = np.zeros(len(stacked))
    weights[kept] = np.maximum(fitted, MIN_WEIGHT)
    return weights


def _fitted_pool(log_probs: Float, y: Int, weight: Float | None) -> Float:
    rows = np.arange(len(y))
    weight = np.full(len(y), 1 / len(y)) if weight is None else weight
    of_label = log_probs[:, rows, y] @ weight

    def loss(weights: Float) -> tuple[float, Float]:
        logits = np.tensordot(weights, log_probs, axes=1)
        logs = log_softmax(logits, axis=1)
        expected = np.tensordot(log_probs, np.exp(logs) * weight[:, None], axes=2)
        penalty, slope = weights @ weights / len(y), 2 * weights / len(y)
        return float(penalty - logs[rows, y] @ weight), expected - of_label + slope

    start = np.zeros(len(log_probs))  # where a model that predicts the same for all rows remains
    found = minimize(loss, start, jac=True, bounds=[(0, MAX_POOL_WEIGHT)] * len(start), method="L-BFGS-B")
    weights: Float = found.x
    return weights


def pool(weights: Sequence[float] | Float, log_probs: Sequence[Float]) -> Float:
    """The logarithmic pool ``softmax(Σ_k w_k log p_k)`` of log probabilities.

    Example:
        >>> pool([0.5, 0.5], [np.log([[0.5, 0.5]]), np.log([[0.8, 0.2]])]).round(3)
        array([[0.667, 0.333]])
    """
    logits = weights[0] * log_probs[0]
    for weight, one in zip(weights[1:], log_probs[1:], strict=True):
        logits += weight * one
    probs: Float = softmax(logits, axis=1)
    return probs


def served_scale(
    logits: Sequence[Float],
    temperatures: Sequence[float],
    weights: Sequence[float],
    y: Int,
    weight: Float | None = None,
    *,
    n_served: int,
) -> float:
    """The factor of a pool's weights that makes up for members being more in prediction than on held-out rows.

    A mean of m members is less certain than each of them, the more so the more they are: the scale s(m) of the pool's
    logits with the lowest log loss rises with m. Held-out rows are predicted by some members each, new rows by all.
    With ``log s(m)`` linear in 1 / m, s is known from one and from all predictions of the held-out rows. Two standard
    errors of the slope are subtracted: where few rows determine it, the pool is better left less certain.

    Args:
        logits: For each model, the logits of its members for held-out rows, as in `mean_probs`.
        temperatures: The temperature of each model.
        weights: Their weights in the pool.
        y: The label codes.
        weight: The sample weights of the rows.
        n_served: Number of members of each model that predict new rows.

    Returns:
        The factor; one if a row has only one prediction.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> true = 2 * rng.normal(size=(3000, 2))
        >>> y = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
        >>> noisy = true + 0.5 * rng.normal(size=(2, *true.shape))  # the logits of two members
        >>> round(served_scale([noisy], [1.0], [1.0], y, n_served=10), 1)
        1.1
        >>> served_scale([noisy[:1]], [1.0], [1.0], y, n_served=5)
        1.0
    """
    n_given = min(len(one) for one in logits)
    used = np.flatnonzero(~np.isnan(np.stack([one[n_given - 1, :, 0] for one in logits])).any(axis=0))
    if n_given < 2 or n_served <= n_given or len(used) < 2 * SLOPE_PARTS:
        return 1.0
    used = used[:: max(1, len(used) // MAX_FITTED_ROWS)]

    def log_scale(rows: Int, predictions: slice) -> float:
        """The logarithm of s for the mean of some predictions of each row."""
        means = [mean_probs(one[predictions, rows], t) for one, t in zip(logits, temperatures, strict=True)]
        pooled = sum(w * np.log(one.clip(TINY)) for w, one in zip(weights, means, strict=True))
        found = minimize_scalar(
            lambda log: mean_log_loss(
                softmax(np.exp(log) * pooled, axis=1), y[rows], None if weight is None else weight[rows]
            ),
            bounds=(-np.log(MAX_SCALE), np.log(MAX_SCALE)),
            method="bounded",
        )
        return float(found.x)

    def slope(rows: Int) -> float:
        single = np.mean([log_scale(rows, slice(place, place + 1)) for place in range(n_given)])
        return float(log_scale(rows, slice(n_given)) - single) / (1 - 1 / n_given)

    parts = np.array_split(np.random.default_rng(0).permutation(used), SLOPE_PARTS)
    error = np.std([slope(rows) for rows in parts], ddof=1) / SLOPE_PARTS**0.5
    cautious = (slope(used) - 2 * error) * (1 / n_given - 1 / n_served)
    return float(np.exp(np.clip(cautious, 0.0, np.log(MAX_SERVED_SCALE))))
