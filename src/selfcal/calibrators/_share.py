"""The share of a calibrator in a mixture with temperature scaling, by cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize_scalar

from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import as_rows
from selfcal.calibrators.temperature import BOUND, best_log_beta, tempered
from selfcal.errors import CalibrationWarning

FOLDS = 5
ENOUGH_ROWS = 2000
"""Folds are left out in turn until this many rows were left out; more cost time and hardly change the share."""
WHOLE = 1 - 1e-9
"""A part of a row as large as this is the whole row; sums of weights leave a rounding error."""

Predict = Callable[[Int, Float, Int], Float]
"""From the rows to fit on, their weights and the rows left out to probabilities of the latter."""


def safe_temperature(z: Float, codes: Int, weight: Float) -> float:
    """The temperature of the lowest log loss; 1 if every row is right, which tells too little to sharpen."""
    log_beta = best_log_beta(z, codes, weight)
    return 1.0 if log_beta >= BOUND else float(np.exp(-log_beta))


def compared(z: Float, codes: Int, weight: Float, predict: Predict) -> tuple[Float, Float]:
    """Return the advantage of a method over temperature scaling on rows left out, and the weights of these rows.

    The advantage is the ratio of the probabilities of the true class, either of them smoothed to ``(n p + 1/k) /
    (n + 1)`` for n rows and k classes, so that no single row decides.
    """
    left_out, n = parts(z, codes, weight), float(weight.sum())
    ratios, weights = [np.zeros(0)], [np.zeros(0)]
    for part in left_out[: int(np.ceil(FOLDS * min(1.0, ENOUGH_ROWS / n)))]:
        rows, kept = np.flatnonzero(part > 1 - WHOLE), np.flatnonzero(part < WHOLE)
        if not (len(rows) and len(kept)):
            continue
        kept_weight = weight[kept] * (1 - part[kept])
        with warnings.catch_warnings(), np.errstate(invalid="ignore", over="ignore"):
            warnings.simplefilter("ignore", CalibrationWarning)
            method = as_rows(predict(kept, kept_weight, rows))
        scaled = tempered(z[rows], safe_temperature(z[kept], codes[kept], kept_weight))
        true = np.arange(len(rows)), codes[rows]
        ratios.append((n * method[true] + 1 / z.shape[1]) / (n * scaled[true] + 1 / z.shape[1]))
        weights.append(weight[rows] * part[rows])
    return np.concatenate(ratios), np.concatenate(weights)


def best_share(ratio: Float, weight: Float, doubt: float) -> float:
    """Return the share whose advantage over temperature scaling is largest, less `doubt` standard errors of it.

    A share a changes the loss of a row by ``-log(1 + a (ratio - 1))``. The upper bound is the mean of that
    plus `doubt` standard errors, and the share is 0 if no bound is below 0. One more row, on which the ratio is 0,
    keeps a method from being trusted fully because of a few rows.

    Example:
        ``3 log(1 + 2 a) + log(1 - a)`` is largest at a = 5/8, and ``log(1 + a) + log(1 - a)`` at 0:

        >>> round(best_share(np.array([3.0, 3.0, 3.0]), np.ones(3), doubt=0.0), 6)
        0.625
        >>> best_share(np.array([2.0]), np.ones(1), doubt=0.0)
        0.0
    """
    if not len(ratio) or not np.isfinite(ratio).all():
        return 0.0
    gain, all_weights = np.append(ratio, 0.0) - 1, np.append(weight, 1.0)
    total = all_weights.sum()

    def bound(share: float) -> float:
        change = -np.log1p(share * gain)
        mean = all_weights @ change / total
        return float(mean + doubt * np.sqrt(all_weights @ (change - mean) ** 2) / total)

    best = minimize_scalar(bound, bounds=(0.0, 1 - 1e-9), method="bounded", options={"xatol": 1e-9})
    return float(best.x) if best.fun < 0 else 0.0


def parts(z: Float, codes: Int, weight: Float) -> Float:
    """Return which part of each row every fold leaves out, one row of the result for each fold.

    A row of weight one is in one fold; one of weight two is divided between two, as two equal rows would be. Rows
    are told apart by their logits and labels alone, so that the folds depend neither on the order of the rows
    nor on that of the classes.

    Example:
        >>> parts(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0, 1]), np.array([1.0, 2.0]))
        array([[0. , 0.5],
               [1. , 0.5],
               [0. , 0. ],
               [0. , 0. ],
               [0. , 0. ]])
    """
    below = z - z.max(axis=1, keepdims=True)
    irrational = np.sqrt(np.arange(2.0, z.shape[1] + 2.0))  # no two rows that occur have the same sum
    key = (np.sort(below, axis=1) * irrational).sum(axis=1) + np.pi * below[np.arange(len(z)), codes]
    _, group = np.unique(key, return_inverse=True)
    total = np.bincount(group, weight)
    first = np.random.default_rng(0).permutation(len(total)) % FOLDS
    rounds, rest = np.divmod(total, FOLDS)
    place = (np.arange(FOLDS)[:, None] - first) % FOLDS  # how many folds after its first
    return ((rounds + np.clip(rest - place, 0.0, 1.0)) / total)[:, group]
