"""Finding wrong labels from out-of-fold predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit

from selfcal._support.checks import (
    Float,
    Int,
    in_range,
    label_codes,
    numbers,
    plain,
    probabilities,
    same_length,
)
from selfcal.errors import DataError
from selfcal.label_noise.transition import least_noise, transition_matrix, true_posterior

ROWS_PER_BIN = 50
"""Rows of about equal doubt in which wrong labels are counted: a count of fewer is too uncertain."""
SMALLEST = 1e-12
"""The smallest probability; zeros are raised to it before a logarithm is taken."""


@dataclass(frozen=True)
class LabelAudit:
    """Rows ranked by the probability that their label is wrong, and the rows to review.

    Attributes:
        ranking: All rows, most suspicious first.
        suspicion: For each row, a cautious estimate of the probability that its label is wrong: what may be an error
            of the model is not counted.
        flagged: The longest prefix of the ranking whose expected fraction of false alarms is allowed, restricted to
            rows whose label is more likely wrong than right.
        given: The given class of each row, as a code.
        suggested: The most likely true class of each row, given its label.
        noise_rate: The estimated fraction of wrong labels. Errors of a weak model look like wrong labels and are
            included.
        false_alarms: The allowed fraction of false alarms among the flagged rows.
        expected_false_alarms: The expected fraction of false alarms among the flagged rows.
        transition: `transition[i, j]` is the estimated probability that class i is labelled j.
        classes: The label of each class.
    """

    ranking: Int
    suspicion: Float
    flagged: Int
    given: Int
    suggested: Int
    noise_rate: float
    false_alarms: float
    expected_false_alarms: float
    transition: Float
    classes: NDArray[Any]

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The flagged rows for a table, most suspicious first."""
        return [
            {
                "row": row,
                "given": plain(self.classes[self.given[row]]),
                "suggested": plain(self.classes[self.suggested[row]]),
                "suspicion": float(self.suspicion[row]),
            }
            for row in self.flagged[:limit].tolist()
        ]

    def to_dict(self, limit: int | None = None) -> dict[str, Any]:
        """The audit as plain Python, ready for JSON if the class labels are; `limit` shortens the rows."""
        return {
            "audited": len(self.ranking),
            "noise_rate": self.noise_rate,
            "flagged": len(self.flagged),
            "false_alarms": self.false_alarms,
            "expected_false_alarms": self.expected_false_alarms,
            "rows": self.rows(limit),
        }

    def __str__(self) -> str:
        n, found = len(self.ranking), len(self.flagged)
        start = f"About {self.noise_rate:.1%} of {n:,} labels look wrong; "
        if not found:
            return start + f"none can be named with at most {self.false_alarms:.0%} false alarms."
        return start + (
            f"{found:,} row{'s are' if found > 1 else ' is'} flagged, of which about "
            f"{self.expected_false_alarms:.1%} are expected to be false alarms."
        )


def audit_labels(
    probs: ArrayLike,
    y: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    false_alarms: float = 0.1,
) -> LabelAudit:
    """Estimate for each row how likely its label is wrong, from out-of-fold probabilities.

    The probabilities predict the given labels, wrong ones included. With p* for the true class and
    T[i, j] = P(given j | true i),

        P(given j | x) = Σ_i p*_i(x) T[i, j],    suspicion = 1 - T[y, y] p*_y(x) / P(given y | x).

    T is estimated where a class is least likely, as the fraction of rows that have its label nevertheless. Overlap of
    the classes is therefore not counted as noise as long as some rows are unambiguous.

    The suspicion of rows with about the same doubt is scaled so that it sums to the number of wrong labels that noise
    of a cautiously low rate leaves there; all other labels that contradict the model count as its errors. Rows are
    flagged only if the noise is evident: about a hundred contradictions among unambiguous rows are needed, or a model
    that has learned the rate of the noise. With two classes, only such a model flags rows. The bound `false_alarms`
    is not a guarantee for any data: it assumes that wrong labels do not depend on the features and that some rows are
    unambiguous to the model. The documentation shows where it was measured to hold and where it is exceeded.

    Args:
        probs: Out-of-fold probabilities of shape (n, C): no row may be in the training data of the model that
            predicts it.
        y: The given labels: codes, or names if `classes` is given.
        classes: The label of each column.
        weights: Learned sample weights, lower for rows that look wrong; NaN for rows without one. They shift the
            log odds of the suspicion by half of what they indicate, since both come from the same data.
        false_alarms: The largest expected fraction of correct labels among the flagged rows.

    Returns:
        A `LabelAudit`.

    Example:
        >>> from selfcal.datasets import Blobs
        >>> X, y = Blobs(std=1.3).sample(1000, seed=0)
        >>> given = y.copy()
        >>> given[:100] = (y[:100] + np.arange(100) % 4 + 1) % 5
        >>> audit = audit_labels(0.875 * Blobs(std=1.3).posterior(X) + 0.025, given)
        >>> round(audit.noise_rate, 2), len(audit.flagged), int((audit.flagged < 100).sum())
        (0.11, 101, 94)

    Reference:
        Patrini et al., Making deep neural networks robust to label noise (CVPR 2017), for the transition matrix
        estimated from unambiguous rows; Efron, Large-scale inference (2010), for the local false discovery rate;
        Northcutt et al., Confident learning (JAIR 2021), for finding label errors from out-of-fold predictions.
    """
    p = probabilities(probs)
    n, k = p.shape
    given = label_codes(y, k, classes, name="y")
    same_length(y=given, probs=p)
    in_range("false_alarms", false_alarms, 0.0, 1.0)
    p = np.clip(p, SMALLEST, None)
    p /= p.sum(axis=1, keepdims=True)
    T = transition_matrix(p, given)
    true = true_posterior(p, given, T)
    own = np.arange(n), given
    doubt = np.clip(1 - true * np.diag(T) / (true @ T), 0.0, 1.0)
    suspicion = _suspicion(doubt, true, least_noise(p, given), given)
    if weights is not None:
        suspicion = _weighed(suspicion, _checked_weights(weights, n))
    ranking = np.lexsort((p[own], -doubt[own], -suspicion))
    expected = np.cumsum(1 - suspicion[ranking]) / np.arange(1, n + 1)
    likely_wrong = suspicion[ranking] >= 0.5  # never flag the others, even if the bound would allow it
    found = int(np.count_nonzero(likely_wrong & (expected <= false_alarms)))
    return LabelAudit(
        ranking=ranking,
        suspicion=suspicion,
        flagged=ranking[:found],
        given=given,
        suggested=(true * T[:, given].T).argmax(axis=1),
        noise_rate=float((true @ (1 - np.diag(T))).mean()),
        false_alarms=float(false_alarms),
        expected_false_alarms=float(expected[found - 1]) if found else 0.0,
        transition=T,
        classes=np.arange(k) if classes is None else np.asarray(classes),
    )


def _suspicion(doubt: Float, true: Float, T: Float, given: Int) -> Float:
    """Return the suspicion of each row: its doubt, scaled to the number of wrong labels that the noise T explains.

    Labels are counted in bins of about equal doubt. A surplus over the expected number is correct labels of rows that
    the model misjudges. They lower the suspicion of the whole bin, and the fewer other rows have fewer wrong labels.
    """
    own = doubt[np.arange(len(given)), given]
    n_bins = max(1, len(given) // ROWS_PER_BIN)
    edges = np.unique(np.quantile(own, np.arange(1, n_bins) / n_bins))
    place = np.searchsorted(edges, own, side="right")
    place_of_pairs = np.searchsorted(edges, doubt.ravel(), side="right")

    def in_bins(places: Int, weights: Float) -> Float:
        return np.bincount(places, weights=weights.ravel(), minlength=len(edges) + 1).astype(np.float64)

    labels = true @ T
    pairs = in_bins(place_of_pairs, np.ones_like(doubt))
    surplus = in_bins(place, np.ones_like(own)) - in_bins(place_of_pairs, labels)
    distinct = (np.trace(T) - 1) / (len(T) - 1)  # how much more frequent a label is if it is the true one
    misjudged = np.clip(surplus / (np.maximum(pairs, 1.0) * distinct), 0.0, 1.0)
    expected = in_bins(place_of_pairs, labels - true * np.diag(T)) * (1 - misjudged)
    doubted = in_bins(place, own)
    scale = np.divide(expected, doubted, out=np.ones_like(expected), where=doubted > 0)
    order = np.argsort(own, kind="stable")
    suspicion = np.empty_like(own)
    suspicion[order] = np.minimum(isotonic_regression((own * scale[place])[order]).x, 1.0)
    return suspicion


def _weighed(suspicion: Float, weights: Float) -> Float:
    """Shift the log odds by half of what the weights indicate, keeping the mean suspicion."""
    known = np.isfinite(weights)
    if not known.any():
        return suspicion
    safe = np.clip(suspicion, SMALLEST, 1 - SMALLEST)
    _, place, count = np.unique(weights[known], return_inverse=True, return_counts=True)
    mean = np.bincount(place, weights=safe[known]) / count
    indicated = np.clip(isotonic_regression(mean, weights=count, increasing=False).x, 1e-3, 1 - 1e-3)
    moved = logit(safe)
    moved[known] += (logit(indicated) - logit(np.clip(safe[known].mean(), 1e-3, 1 - 1e-3)))[place] / 2
    low, high = -20.0, 20.0
    for _ in range(50):
        shift = (low + high) / 2
        low, high = (shift, high) if expit(moved + shift).mean() < safe.mean() else (low, shift)
    return expit(moved + shift)


def _checked_weights(weights: ArrayLike, n: int) -> Float:
    w = numbers(weights, "weights")
    if w.shape != (n,):
        raise DataError(f"weights must hold one weight for each of the {n} rows; got shape {w.shape}.")
    if np.isinf(w).any() or (w < 0).any():
        row = int(np.argmax(np.isinf(w) | (w < 0)))
        raise DataError(
            f"weights must be finite and not negative, or NaN where unknown; row {row} is {w[row]:g}."
        )
    return w
