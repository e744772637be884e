"""Label noise estimated from out-of-fold probabilities: the transition matrix and the posterior of the true class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_softmax, softmax

from selfcal._support.checks import Float, Int

MIN_FRACTION = 0.25
"""The noise rate is the lowest rate over at least this fraction of the least likely (row, class) pairs."""
LOWEST_FRACTION = 0.05
"""The fraction of pairs whose mean probability is taken as the lowest probability."""
MIN_FRACTION_OF_PAIR = 0.5
"""The same as `MIN_FRACTION` for the rows of one class with the label of another."""
MIN_LABELS = 5
"""Fewer labels of another class than this are not examined."""
SIGNIFICANCE = 3.0
"""Standard errors at which a one-way excess is as likely noise as a random fluctuation."""
MIN_ONE_WAY_RATIO = 0.3
"""One-way noise below this multiple of the common noise is ignored."""
MIN_RELATIVE_RATE = 0.2
"""Every pair of classes has at least this multiple of the mean noise rate, so that no label is certain."""
REMOVED_FRACTIONS = (0.0, 0.5, 0.8, 0.95, 1.0)
"""The fractions of the noise that are tried in `fit_noise_correction`."""
SOFT = 1e-3
"""The width over which the positive part of a corrected probability is smoothed."""
LOG_POWER_SCALE = 1.0
"""The standard deviation of the prior on log β."""


def transition_matrix(probs: Float, given: Int) -> Float:
    """Estimate P(given j | true i): noise common to all classes, plus noise from one class to another.

    Where a class is least likely, its label should become arbitrarily rare. The rate that remains there is noise
    common to all classes. With two classes, overlap affects every row; there the remaining rate counts only as far
    as the probabilities form a plateau, since with noise they stop falling and with overlap they keep falling. Two
    classes that are confused in both directions overlap; only the excess of one direction is noise of the pair.

    Args:
        probs: Out-of-fold probabilities (n, C), positive.
        given: The given label codes.

    Returns:
        A matrix (C, C) with rows that sum to one; the largest entry of each is on the diagonal.
    """
    k = probs.shape[1]
    predicted = probs.argmax(axis=1)
    has_label = given[:, None] == np.arange(k)
    others = predicted[:, None] != np.arange(k)
    common = (
        _plateau(_recalibrated(probs, given)[others], has_label[others])
        if k == 2
        else _least_rate(probs[others], has_label[others])
    )
    one_way = _one_way(probs, predicted, has_label, common) if k > 2 else np.zeros((k, k))
    rows_predicted = np.bincount(predicted, minlength=k)
    if rows_predicted @ one_way.sum(axis=1) < MIN_ONE_WAY_RATIO * len(predicted) * (k - 1) * common:
        one_way[:] = 0.0
    return _stochastic(common + one_way)


def true_posterior(probs: Float, given: Int, T: Float) -> Float:
    """Estimate the posterior of the true class, given the noise T.

    It is `noise_corrected` with the single most likely M and β: the audit needs a point estimate, and an error costs
    one review of a row.
    """
    matrices, log_powers, losses = _corrections(probs, given, T, np.inf)
    best = int(losses.argmin())
    return noise_corrected(probs, matrices[best], float(np.exp(log_powers[best])))


def fit_noise_correction(probs: Float, given: Int, T: Float) -> tuple[Float, float]:
    """Fit the matrix M and the power β of `noise_corrected`.

    They are averages over all candidates, weighted by their posterior probability with a prior on β around 1: a few
    uninformative rows must not make a model overconfident.
    """
    matrices, log_powers, losses = _corrections(probs, given, T, LOG_POWER_SCALE)
    posterior = softmax(-losses)
    return np.tensordot(posterior, matrices, axes=1), float(np.exp(posterior @ log_powers))


def _corrections(probs: Float, given: Int, T: Float, log_power_scale: float) -> tuple[Float, Float, Float]:
    """Return candidate matrices M, the fitted log β of each, and the penalised negative log-likelihood of each.

    A fraction s of the noise is removed from the probabilities, ``M = ((1 - s) I + s T)⁻¹``, and the result is
    sharpened: a model that has learned the noise needs s = 1, β = 1; one that cannot express it, such as a linear
    one, needs a larger β.
    """
    identity = np.eye(len(T))
    matrices = np.stack([np.linalg.inv((1 - s) * identity + s * T) for s in REMOVED_FRACTIONS])
    found = []
    for matrix in matrices:

        def loss(log_power: float, matrix: Float = matrix) -> float:
            true = noise_corrected(probs, matrix, float(np.exp(log_power)))
            likelihood = np.einsum("nk,kn->n", true, T[:, given])
            penalty = (log_power / log_power_scale) ** 2 / 2
            return float(-np.log(np.maximum(likelihood, 1e-300)).sum()) + penalty

        found.append(minimize_scalar(loss, bounds=(-2.5, 2.5), method="bounded", options={"xatol": 0.02}))
    return matrices, np.array([fit.x for fit in found]), np.array([fit.fun for fit in found])


def noise_corrected(probs: Float, matrix: Float, power: float) -> Float:
    """Return ``p* = softmax(β log (p M)₊)``, with a positive part that is smooth and never zero."""
    corrected = probs @ matrix
    logs = np.log((corrected + np.sqrt(corrected**2 + 4 * SOFT**2)) / 2)
    true: Float = softmax(power * logs, axis=1)
    return true


def _recalibrated(probs: Float, given: Int) -> Float:
    """Fit a power and a floor to the given labels: (1 - λ) softmax(β log q) + λ / C."""
    logs, rows = np.log(probs), np.arange(len(given))

    def with_floor(power_and_floor: Float) -> Float:
        floor = expit(power_and_floor[1])
        return (1 - floor) * np.exp(
            log_softmax(np.exp(power_and_floor[0]) * logs, axis=1)
        ) + floor / probs.shape[1]

    found = minimize(
        lambda x: -np.log(with_floor(x)[rows, given]).mean(),
        [0.0, -3.0],
        method="Nelder-Mead",
        bounds=[(-4.0, 4.0), (-20.0, 3.0)],
        options={"xatol": 0.02, "fatol": 1e-5, "maxiter": 120},
    )
    return with_floor(found.x)


def _least_rate(score: Float, has_label: NDArray[np.bool_]) -> float:
    """The frequency of the least likely labels, plus half a standard error, since a minimum is biased downwards."""
    rate, count = _least_mean(score, has_label, MIN_FRACTION)
    return rate + float(np.sqrt(rate * (1 - rate) / count)) / 2


def _plateau(p: Float, has_label: NDArray[np.bool_]) -> float:
    """The lowest probability, corrected by how frequent such labels are, as far as others are equally low."""
    start = np.sort(p)[: max(1, round(MIN_FRACTION * len(p)))]
    lowest = float(start[: max(1, round(LOWEST_FRACTION * len(p)))].mean())
    off, count = _least_mean(p, has_label - p, MIN_FRACTION)
    error = float(np.sqrt(lowest * (1 - lowest) / count))
    corrected = lowest + off - float(np.clip(off, -error, error)) / 2
    return max(0.0, corrected) * float(lowest / start.mean()) ** 2


def _least_mean(score: Float, values: NDArray[Any], fraction: float) -> tuple[float, int]:
    """The lowest mean over the rows of lowest score, at least this fraction of them, and the number of rows."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    total = np.cumsum(count)
    mean = np.cumsum(np.bincount(place, weights=values)) / total
    start = int(np.searchsorted(total, fraction * len(score)))
    end = start + int(mean[start:].argmin())
    return float(mean[end]), int(total[end])


def _one_way(probs: Float, predicted: Int, has_label: NDArray[np.bool_], common: float) -> Float:
    """The rate at which each class is labelled as another beyond the common noise, minus the opposite rate."""
    k = probs.shape[1]
    rows_predicted = np.bincount(predicted, minlength=k)
    excess, variance = np.zeros((k, k)), np.zeros((k, k))
    for i in range(k):
        rows = np.flatnonzero(predicted == i)
        expected = common * len(rows)
        frequent = has_label[rows].sum(axis=0) >= max(MIN_LABELS, expected + 2 * np.sqrt(expected))
        for j in np.flatnonzero(frequent & (np.arange(k) != i)):
            rate, count = _least_mean(probs[rows, j], has_label[rows, j], MIN_FRACTION_OF_PAIR)
            excess[i, j] = max(rate - common, 0.0)
            variance[i, j] = rate * (1 - rate) / count
    # in rates or in counts, whichever is larger: a small class confused with a large one has the larger rate
    mirror = np.maximum(rows_predicted[None, :] / np.maximum(rows_predicted, 1)[:, None], 1.0)
    beyond = np.maximum(excess - excess.T * mirror, 0.0)
    error = np.sqrt(variance + variance.T * mirror**2)
    return beyond * expit(((beyond / np.maximum(error, 1e-9)) ** 2 - SIGNIFICANCE**2) / 2)


def _stochastic(rates: Float) -> Float:
    """Turn off-diagonal rates into a stochastic matrix whose diagonal dominates each row."""
    k = len(rates)
    off = ~np.eye(k, dtype=bool)
    lowest = max(1e-4 / k, MIN_RELATIVE_RATE * float(rates[off].mean()))
    T = np.where(off, np.maximum(rates, lowest), 0.0)
    T *= np.minimum(1.0, 1 / (T.sum(axis=1) + 1.2 * T.max(axis=1)))[:, None]
    return T + np.diag(1 - T.sum(axis=1))
