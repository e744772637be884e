"""Label noise estimated from out-of-fold probabilities: the transition matrix and the posterior of the true class."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize, minimize_scalar
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
KEPT = 0.03
"""The weight of a network's own probabilities beside the corrected ones, which can be confident and wrong."""


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
    has_label, others = _pairs(probs, given)
    if probs.shape[1] == 2:
        common = _plateau(_recalibrated(probs, given)[others], has_label[others])
    else:
        rate, count = _least_mean(probs[others], has_label[others], MIN_FRACTION)
        common = rate + _standard_error(rate, count) / 2  # a minimum is biased downwards
    return _stochastic(common + _one_way(probs, has_label, common))


def least_noise(probs: Float, given: Int) -> Float:
    """Estimate P(given j | true i) with rates that are rather too low, for promises about wrong labels.

    The label of the least likely class has two causes: noise and errors of the model. If classes are labelled as
    others at some rate everywhere, no label is less likely than that, and a model that has learned the noise says so:
    up to its lowest probability, the observed rate is noise. Most models have not learned it. With more than two
    classes their errors concentrate on a few likely ones, and the rate at which the least likely labels occur is
    noise up to its standard error. With two classes there is no such third class.

    Args:
        probs: Out-of-fold probabilities (n, C), positive.
        given: The given label codes.

    Returns:
        A matrix (C, C) as `transition_matrix` returns it.
    """
    has_label, others = _pairs(probs, given)
    rate, count = _least_mean(probs[others], has_label[others], MIN_FRACTION)
    common = min(rate, float(probs[others].min()))
    if probs.shape[1] > 2:
        common = max(common, rate - _standard_error(rate, count))
    return _stochastic(common + _one_way(probs, has_label, common))


def true_posterior(probs: Float, given: Int, T: Float) -> Float:
    """Estimate the posterior of the true class, given the noise T.

    It is `noise_corrected` with the single most likely M and β: the audit needs a point estimate, and an error costs
    one review of a row.
    """
    matrices, log_powers, losses = _corrections(probs, given, T, np.inf)
    best = int(losses.argmin())
    return noise_corrected(probs, matrices[best], float(np.exp(log_powers[best])))


def fit_noise_correction(probs: Float, given: Int, T: Float) -> tuple[Float, float]:
    """Fit the matrix M and the power β of `noise_corrected`, as far as the labels are evidence for noise.

    Predictions are averaged over the candidates, weighted by their posterior probability. The uncorrected
    probabilities are a candidate as well, as likely a priori as all others together: where labels do not show whether
    the noise T explains them better, the average lies halfway. M and β are those whose predictions are closest to it.
    """
    matrices, log_powers, losses = _corrections(probs, given, T, LOG_POWER_SCALE)
    uncorrected = -np.log(probs[np.arange(len(given)), given]).sum()
    *weights, kept = softmax(-np.append(losses + np.log(len(losses)), uncorrected))
    average = kept * probs
    for weight, matrix, log_power in zip(weights, matrices, log_powers, strict=True):
        average += weight * noise_corrected(probs, matrix, float(np.exp(log_power)))

    def distance(log_power: float, matrix: Float) -> float:
        corrected = noise_corrected(probs, matrix, float(np.exp(log_power)))
        return float(-(average * np.log(KEPT * probs + (1 - KEPT) * corrected)).sum(axis=1).mean())

    found = [_best_log_power(partial(distance, matrix=matrix)) for matrix in matrices]
    best = int(np.argmin([fit.fun for fit in found]))
    return matrices[best], float(np.exp(found[best].x))


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

        found.append(_best_log_power(loss))
    return matrices, np.array([fit.x for fit in found]), np.array([fit.fun for fit in found])


def _best_log_power(loss: Callable[[float], float]) -> OptimizeResult:
    return minimize_scalar(loss, bounds=(-2.5, 2.5), method="bounded", options={"xatol": 0.02})


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


def _pairs(probs: Float, given: Int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For each row and class, whether the row has its label, and whether another class is predicted."""
    classes = np.arange(probs.shape[1])
    return given[:, None] == classes, probs.argmax(axis=1)[:, None] != classes


def _standard_error(rate: float, count: int) -> float:
    return float(np.sqrt(rate * (1 - rate) / count))


def _plateau(p: Float, has_label: NDArray[np.bool_]) -> float:
    """The lowest probability, corrected by how frequent such labels are, as far as others are equally low."""
    start = np.sort(p)[: max(1, round(MIN_FRACTION * len(p)))]
    lowest = float(start[: max(1, round(LOWEST_FRACTION * len(p)))].mean())
    off, count = _least_mean(p, has_label - p, MIN_FRACTION)
    error = _standard_error(lowest, count)
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


def _one_way(probs: Float, has_label: NDArray[np.bool_], common: float) -> Float:
    """The rate at which each class is labelled as another beyond the common noise, minus the opposite rate."""
    k = probs.shape[1]
    if k == 2:
        return np.zeros((k, k))
    predicted = probs.argmax(axis=1)
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
    one_way = beyond * expit(((beyond / np.maximum(error, 1e-9)) ** 2 - SIGNIFICANCE**2) / 2)
    if rows_predicted @ one_way.sum(axis=1) < MIN_ONE_WAY_RATIO * len(predicted) * (k - 1) * common:
        one_way[:] = 0.0
    return one_way


def _stochastic(rates: Float) -> Float:
    """Turn off-diagonal rates into a stochastic matrix whose diagonal dominates each row."""
    k = len(rates)
    off = ~np.eye(k, dtype=bool)
    lowest = max(1e-4 / k, MIN_RELATIVE_RATE * float(rates[off].mean()))
    T = np.where(off, np.maximum(rates, lowest), 0.0)
    T *= np.minimum(1.0, 1 / (T.sum(axis=1) + 1.2 * T.max(axis=1)))[:, None]
    return T + np.diag(1 - T.sum(axis=1))
