"""How labels go wrong, read off probabilities that foretell them: transition matrix and true posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, log_softmax, softmax

from selfcal._support.checks import Float, Int

CLEAR = 0.25
"""The share of least likely classes, over all rows, that noise must explain."""
LOWEST = 0.05
"""The share of them whose mean probability stands for the lowest."""
CLEAR_OF_PAIR = 0.5
FEWEST = 5
SURE = 3.0
"""Standard errors at which a one-way excess is as likely noise as chance."""
OUTWEIGHS = 0.3
SPREAD = 0.2
"""The part of the mean noise that every pair of classes has at least, so that no label is beyond doubt."""
SHARES = (0.0, 0.5, 0.8, 0.95, 1.0)
SOFT = 1e-3
USUAL_POWER = 1.0
"""How far the logarithm of the power of an answer usually is from 0."""


def transition_matrix(probs: Float, given: Int) -> Float:
    """Estimate P(given j | true i): noise common to all classes, and what is beyond it from one to another.

    Where a class is least likely, its label should become as rare as one likes. What is left there is noise
    common to all classes. With two classes every row is as near to the one as it is far from the other, so that
    overlap reaches everywhere: there it counts only as far as it is a plateau, since with noise the probabilities
    stop falling and with overlap they fall on. Two classes that are taken for each other both ways overlap; only
    what goes one way more often than the other is noise of the pair.

    Args:
        probs: Out-of-fold probabilities (n, C), positive.
        given: The given label codes.

    Returns:
        A matrix (C, C) with rows that sum to one; the largest entry of each is on the diagonal.
    """
    k = probs.shape[1]
    said = probs.argmax(axis=1)
    bears = given[:, None] == np.arange(k)
    others = said[:, None] != np.arange(k)
    common = (
        _plateau(_recalibrated(probs, given)[others], bears[others])
        if k == 2
        else _least_rate(probs[others], bears[others])
    )
    one_way = _one_way(probs, said, bears, common) if k > 2 else np.zeros((k, k))
    rows_said = np.bincount(said, minlength=k)
    if rows_said @ one_way.sum(axis=1) < OUTWEIGHS * len(said) * (k - 1) * common:
        one_way[:] = 0.0
    return _stochastic(common + one_way)


def explained(probs: Float, given: Int, T: Float) -> Float:
    """Estimate the posterior of the true class, so that the noise T makes the given labels of it.

    The likeliest way of `undone` alone: flags need the best guess, and a wrong one costs a look.
    """
    matrices, log_powers, losses = _ways(probs, given, T, np.inf)
    likeliest = int(losses.argmin())
    return undone(probs, matrices[likeliest], float(np.exp(log_powers[likeliest])))


def undoing(probs: Float, given: Int, T: Float) -> tuple[Float, float]:
    """Find the matrix M and the power β with which `undone` is to answer.

    All ways of it count as far as the labels make them likely, with a power near 1 a priori: few rows with little to
    tell must not make a model sure.
    """
    matrices, log_powers, losses = _ways(probs, given, T, USUAL_POWER)
    belief = softmax(-losses)
    return np.tensordot(belief, matrices, axes=1), float(np.exp(belief @ log_powers))


def _ways(probs: Float, given: Int, T: Float, usual_power: float) -> tuple[Float, Float, Float]:
    """Matrices M and the logarithms of powers β that explain the given labels, and how badly each pair does.

    A share s of the noise is taken out of the probabilities, ``M = ((1 - s) I + s T)⁻¹``, and the rest is sharpened:
    a model that has learned the noise needs s = 1, β = 1; one that cannot express it, such as a linear one, needs a
    larger β.
    """
    matrices = np.stack([np.linalg.inv((1 - share) * np.eye(len(T)) + share * T) for share in SHARES])
    found = []
    for matrix in matrices:

        def loss(log_power: float, matrix: Float = matrix) -> float:
            foretold = np.einsum("nk,kn->n", undone(probs, matrix, float(np.exp(log_power))), T[:, given])
            return float(-np.log(np.maximum(foretold, 1e-300)).sum()) + (log_power / usual_power) ** 2 / 2

        found.append(minimize_scalar(loss, bounds=(-2.5, 2.5), method="bounded", options={"xatol": 0.02}))
    return matrices, np.array([way.x for way in found]), np.array([way.fun for way in found])


def undone(probs: Float, matrix: Float, power: float) -> Float:
    """Return ``p* = softmax(β log (p M)₊)``, where what is not positive becomes a little so."""
    shares = probs @ matrix
    logs = np.log((shares + np.sqrt(shares**2 + 4 * SOFT**2)) / 2)
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


def _least_rate(score: Float, borne: NDArray[np.bool_]) -> float:
    """How often the least likely labels are borne; half an error more, since the least of many is low by chance."""
    rate, count = _least_mean(score, borne, CLEAR)
    return rate + float(np.sqrt(rate * (1 - rate) / count)) / 2


def _plateau(p: Float, borne: NDArray[np.bool_]) -> float:
    """The lowest probability, mended by how often such labels are borne, as far as others are as low."""
    start = np.sort(p)[: max(1, round(CLEAR * len(p)))]
    lowest = float(start[: max(1, round(LOWEST * len(p)))].mean())
    off, count = _least_mean(p, borne - p, CLEAR)
    error = float(np.sqrt(lowest * (1 - lowest) / count))
    mended = lowest + off - float(np.clip(off, -error, error)) / 2
    return max(0.0, mended) * float(lowest / start.mean()) ** 2


def _least_mean(score: Float, values: NDArray[Any], share: float) -> tuple[float, int]:
    """The least mean over rows of lowest score, of all starts that hold at least that share, and its count."""
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    total = np.cumsum(count)
    mean = np.cumsum(np.bincount(place, weights=values)) / total
    start = int(np.searchsorted(total, share * len(score)))
    end = start + int(mean[start:].argmin())
    return float(mean[end]), int(total[end])


def _one_way(probs: Float, said: Int, bears: NDArray[np.bool_], common: float) -> Float:
    """What each class is labelled as another beyond the common noise, less what goes the other way."""
    k = probs.shape[1]
    rows_said = np.bincount(said, minlength=k)
    excess, variance = np.zeros((k, k)), np.zeros((k, k))
    for i in range(k):
        rows = np.flatnonzero(said == i)
        chance = common * len(rows)
        frequent = bears[rows].sum(axis=0) >= max(FEWEST, chance + 2 * np.sqrt(chance))
        for j in np.flatnonzero(frequent & (np.arange(k) != i)):
            rate, count = _least_mean(probs[rows, j], bears[rows, j], CLEAR_OF_PAIR)
            excess[i, j] = max(rate - common, 0.0)
            variance[i, j] = rate * (1 - rate) / count
    # in rates or in counts, whichever is more: a small class mixed up with a large one has the larger rate
    mirror = np.maximum(rows_said[None, :] / np.maximum(rows_said, 1)[:, None], 1.0)
    beyond = np.maximum(excess - excess.T * mirror, 0.0)
    error = np.sqrt(variance + variance.T * mirror**2)
    return beyond * expit(((beyond / np.maximum(error, 1e-9)) ** 2 - SURE**2) / 2)


def _stochastic(rates: Float) -> Float:
    """Rates off the diagonal, made a matrix that keeps most of each class where it is."""
    k = len(rates)
    off = ~np.eye(k, dtype=bool)
    spread = max(1e-4 / k, SPREAD * float(rates[off].mean()))
    T = np.where(off, np.maximum(rates, spread), 0.0)
    T *= np.minimum(1.0, 1 / (T.sum(axis=1) + 1.2 * T.max(axis=1)))[:, None]
    return T + np.diag(1 - T.sum(axis=1))
