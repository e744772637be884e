"""Bayesian binning into quantiles: an average of histograms, weighted by their marginal likelihood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, softmax

from selfcal._support import checks
from selfcal._support.binning import bin_index
from selfcal._support.checks import Float, Int
from selfcal.calibrators._one_vs_rest import Curve, OneVsRest
from selfcal.calibrators.histogram import Steps, probability

MAX_BINS = 10_000
"""The number of bins for a billion rows; the time grows with every number of bins up to it."""


class BBQ(OneVsRest):
    """Average histogram binning over the number of bins, each weighted by its marginal likelihood.

    With N the total weight, there is one model for every number of bins B from ``N^(1/3) / spread`` to
    ``spread N^(1/3)``, each with bins of equal weight. The probability of the class in a bin has the prior
    ``Beta(a, b)``, ``a = prior_weight p / B``, ``b = prior_weight (1 - p) / B``, where p is the midpoint of the
    bin. A bin with m of its n rows in the class then predicts ``(m + a) / (n + prior_weight / B)``, and the
    model has the marginal likelihood ``prod_bins B(m + a, n - m + b) / B(a, b)``, by which the models are
    averaged. Beyond the paper, p is kept ``1 / (N + 2)`` away from 0 and 1, so that no prior is more certain
    than the data, and numbers of bins that give the same model because of ties count once.

    Each class has its models, and the rows are normalised; two classes use those of the second. Rows
    in the same bins tie, so the choice of class may change.

    Args:
        prior_weight: Weight of the prior of a whole model, in rows (N' in the paper).
        spread: How far the numbers of bins reach on either side of the cube root of N (C in the paper).
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        curves_: For each class the averaged steps, as `edges` and `values`.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, -3.0]] * 4 + [[0.0, 3.0]] * 4)
        >>> calibrator = BBQ(safeguard=False).fit(logits, [0, 0, 0, 1, 0, 1, 1, 1])
        >>> calibrator.predict_proba([[0.0, -3.0], [0.0, 3.0]])[:, 1].round(3)
        array([0.382, 0.618])

    Reference:
        Naeini, Cooper and Hauskrecht, Obtaining well calibrated probabilities using Bayesian binning, 2015.
    """

    curves_: tuple[Steps, ...]

    def __init__(self, prior_weight: float = 2.0, spread: float = 10.0, *, safeguard: bool = True) -> None:
        super().__init__(safeguard=safeguard)
        self.prior_weight = prior_weight
        self.spread = spread

    def _check_settings(self) -> None:
        super()._check_settings()
        checks.in_range("prior_weight", self.prior_weight, 0, open_low=True)
        checks.in_range("spread", self.spread, 1)

    def _fit_binary(self, log_odds: Float, is_class: NDArray[np.bool_], weight: Float) -> Curve:
        p = probability(log_odds)
        order = np.argsort(p, kind="stable")
        p, weight = p[order], weight[order]
        mass = np.cumsum(np.column_stack([weight, weight * is_class[order]]), axis=0)
        ends = (last_rows(p, mass[:, 0], n_bins) for n_bins in bin_counts(mass[-1, 0], self.spread))
        distinct = {rows.tobytes(): rows for rows in ends}.values()
        models, log_evidence = zip(*(self._model(p, mass, rows) for rows in distinct), strict=True)
        return averaged(models, softmax(log_evidence))

    def _model(self, p: Float, mass: Float, ends: Int) -> tuple[Steps, float]:
        """The histogram whose bins end with these rows, and its log marginal likelihood."""
        edges = np.concatenate([[0.0], (p[ends[:-1]] + p[ends[:-1] + 1]) / 2, [1.0]])
        seen, of_class = np.diff(mass[ends], axis=0, prepend=0.0).T
        margin = 1 / (mass[-1, 0] + 2)
        middle = np.clip((edges[1:] + edges[:-1]) / 2, margin, 1 - margin)
        prior = self.prior_weight / len(ends)
        a, b = prior * middle, prior * (1 - middle)
        others = np.maximum(seen - of_class, 0.0)  # differences of sums may round below zero
        log_evidence = betaln(of_class + a, others + b) - betaln(a, b)
        return Steps(edges, (of_class + a) / (seen + prior)), float(log_evidence.sum())


def bin_counts(total: float, spread: float) -> range:
    """The numbers of bins to average over, at most one for each row, and never more than `MAX_BINS`.

    >>> bin_counts(1000, 10), bin_counts(5, 10)
    (range(1, 101), range(1, 6))
    """
    root = np.cbrt(total)
    highest = max(1, int(min(root * spread, total, MAX_BINS)))
    return range(max(1, int(min(root / spread, highest))), highest + 1)


def last_rows(p: Float, mass: Float, n_bins: int) -> Int:
    """The last row of each bin of equal weight; rows of equal (sorted) p are in one bin."""
    target = np.arange(1, n_bins + 1) * mass[-1] / n_bins
    rows = np.minimum(np.searchsorted(mass, target), len(p) - 1)
    return np.unique(np.searchsorted(p, p[rows], side="right") - 1)


def averaged(models: Sequence[Steps], weights: Float) -> Steps:
    """The weighted mean of step curves, which is one with all their edges."""
    kept = [(steps, w) for steps, w in zip(models, weights, strict=True) if w > np.finfo(np.float64).eps]
    edges = np.unique(np.concatenate([steps.edges for steps, _ in kept]))
    values = sum(w * steps.values[bin_index(edges[1:], steps.edges)] for steps, w in kept)
    return Steps(edges, values / sum(w for _, w in kept))
