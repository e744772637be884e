"""A piecewise linear line that never falls, and terms for groups of rows, fitted by penalised log loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from selfcal._support.checks import Float, Int


@dataclass(frozen=True, eq=False)
class Line:
    """A line through (0, offset) with a slope below the first knot, between two, and above the last."""

    knots: Float
    slopes: Float
    offset: float = 0.0

    def __call__(self, x: Float) -> Float:
        segment = np.searchsorted(self.knots, x)
        return self.offset + (run(self.knots) @ self.slopes)[segment] + self.slopes[segment] * x


class Rows(NamedTuple):
    """The data that a line is fitted to."""

    scores: Float
    """One column for each class; a single one for the second of two classes."""
    codes: Int
    weight: Float
    groups: Any
    """A sparse table with a one where a row belongs to a group."""


def run(knots: Float) -> Float:
    """The table A with ``line(x) = offset + A[i] @ slopes + slopes[i] x`` in segment i.

    The way from 0 to x crosses segments; A[i, j] is the signed length of segment j on that way, for j = i
    only the part that does not depend on x.
    """
    ends = np.concatenate([[-np.inf], knots, [np.inf]])
    start = np.clip(0.0, ends[:-1], ends[1:])
    n = len(start)
    below, above = np.tri(n, k=-1, dtype=bool), np.tri(n, k=-1, dtype=bool).T
    table = np.diag(-start)
    table += np.where(below, ends[1:] - start, 0.0) + np.where(above, ends[:-1] - start, 0.0)
    return table


def inner_quantiles(x: Float, weight: Float, n_bins: int) -> Float:
    """The different ones of the n_bins - 1 values that divide the scores into parts of equal weight.

    Counted from both ends and averaged, so that two classes may change places.
    """
    if n_bins == 1:
        return np.zeros(0)
    levels = np.arange(1, n_bins) / n_bins
    weights = np.repeat(weight, x.shape[1])
    up, down = (
        np.quantile(side, levels, weights=weights, method="inverted_cdf") for side in (x.ravel(), -x.ravel())
    )
    return np.unique((up - down[::-1]) / 2)


def as_logits(values: Float) -> Float:
    """The values themselves; a single column is that of the second of two classes, the first has zero."""
    return np.column_stack([np.zeros(len(values)), values]) if values.shape[1] == 1 else values


def fit_line(knots: Float, rows: Rows, n_classes: int, l2: float) -> tuple[Line, Float]:
    """The line and the terms (groups, classes) of lowest ``sum w log loss + l2 / 2 |difference to identity|^2``."""
    table, n = run(knots), len(knots) + 1
    segment = np.searchsorted(knots, rows.scores)
    truth = np.arange(len(rows.codes)), rows.codes
    total = rows.weight.sum()
    identity = np.concatenate([[0.0], np.ones(n), np.zeros(rows.groups.shape[1] * n_classes)])

    def loss(theta: Float) -> tuple[float, Float]:
        offset, slopes, terms = theta[0], theta[1 : n + 1], theta[n + 1 :].reshape(-1, n_classes)
        values = offset + (table @ slopes)[segment] + slopes[segment] * rows.scores
        log_p = log_softmax(as_logits(values) + rows.groups @ terms, axis=1)
        away = theta - identity
        value = -(rows.weight @ log_p[truth]) + l2 / 2 * (away @ away)
        residual = np.exp(log_p)
        residual[truth] -= 1
        residual *= rows.weight[:, None]
        of_line = residual[:, -rows.scores.shape[1] :].ravel()
        count = np.bincount(segment.ravel(), of_line, minlength=n)
        moment = np.bincount(segment.ravel(), of_line * rows.scores.ravel(), minlength=n)
        slope = np.concatenate([[count.sum()], table.T @ count + moment, (rows.groups.T @ residual).ravel()])
        return value / total, (slope + l2 * away) / total

    free = [(None, None)]
    best = minimize(
        loss,
        identity,
        jac=True,
        method="L-BFGS-B",
        bounds=[*free, *[(0.0, None)] * n, *free * (len(identity) - n - 1)],
        options={"maxiter": 1000, "ftol": 1e-13, "gtol": 1e-9, "maxcor": 20},
    ).x
    return Line(knots, best[1 : n + 1], float(best[0])), best[n + 1 :].reshape(-1, n_classes)
