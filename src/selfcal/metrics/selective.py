"""Selective prediction: how often a model is wrong on the rows that it is confident enough to accept.

A threshold t accepts every row whose confidence is at least t, so equal confidences are accepted together. *Coverage*
is the fraction of the weight that is accepted, *risk* the fraction of the accepted weight that is wrong. A coverage
between two thresholds needs ties to be broken; the areas take the mean over all ways to do so, which defines the risk
for every coverage in (0, 1], and makes a row of weight 2 equal to two rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from selfcal._support import checks
from selfcal._support.binning import Chunk, effective_counts
from selfcal._support.checks import Float
from selfcal.metrics._rows import claims
from selfcal.metrics.intervals import wilson_interval

ROUNDING = 1e-12
"""Tolerance for rounding errors of coverage and risk: 0.1 + 0.2 is more than 0.3."""


@dataclass(frozen=True, eq=False)
class RiskCoverageCurve:
    """Coverage and risk at every distinct threshold, from the strictest to the one that accepts all.

    Attributes:
        thresholds: The distinct confidences, falling; a row is accepted if its confidence is at least the threshold.
        coverage: Fraction of the weight that each threshold accepts, rising to 1.
        risk: Fraction of the weight accepted by each threshold that is wrong.
        effective_count: `(sum w)^2 / sum w^2` of the accepted rows: their number, if all weights are equal.
    """

    thresholds: Float
    coverage: Float
    risk: Float
    effective_count: Float

    @property
    def aurc(self) -> float:
        """Area under the curve; see `selfcal.metrics.aurc`."""
        falls = self.coverage - xlogy(self.coverage, self.coverage)
        return float(self.rate @ np.diff(falls, prepend=0.0))

    @property
    def excess_aurc(self) -> float:
        """Excess over the area of the best order; see `selfcal.metrics.excess_aurc`."""
        right = 1.0 - self.risk[-1]
        return max(0.0, self.aurc - float(1.0 - right + xlogy(right, right)))

    @property
    def augrc(self) -> float:
        """Area under the generalized curve; see `selfcal.metrics.augrc`."""
        rest = self.coverage - self.coverage**2 / 2
        return float(self.rate @ np.diff(rest, prepend=0.0))

    def coverage_at_risk(self, max_risk: float) -> float:
        """Largest coverage of a threshold whose risk is at most `max_risk`; 0 if there is none."""
        checks.in_range("max_risk", max_risk, 0.0, 1.0)
        low_enough = np.flatnonzero(self.risk <= max_risk + ROUNDING)
        return float(self.coverage[low_enough[-1]]) if len(low_enough) else 0.0

    def risk_at_coverage(self, min_coverage: float) -> float:
        """Risk of the strictest threshold that accepts at least `min_coverage`."""
        checks.in_range("min_coverage", min_coverage, 0.0, 1.0, open_low=True)
        return float(self.risk[np.searchsorted(self.coverage, min_coverage - ROUNDING)])

    def risk_interval(self, level: float = 0.95) -> tuple[Float, Float]:
        """Pointwise Wilson interval of the risk; it does not hold for all thresholds simultaneously."""
        return wilson_interval(self.risk, self.effective_count, level=level)

    @property
    def rate(self) -> Float:
        """Fraction of wrong rows among those that each threshold is the first to accept."""
        rate: Float = np.diff(self.coverage * self.risk, prepend=0.0) / np.diff(self.coverage, prepend=0.0)
        return rate


def risk_coverage_curve(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> RiskCoverageCurve:
    """Coverage and risk at each threshold on the confidence max(p).

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row; rows of weight zero are left out.

    Returns:
        Thresholds, coverage and risk, with the areas as properties.

    >>> curve = risk_coverage_curve([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> curve.thresholds, curve.coverage.round(3), curve.risk.round(3)
    (array([0.9, 0.8, 0.6]), array([0.333, 0.667, 1.   ]), array([0.   , 0.   , 0.333]))

    Reference: El-Yaniv, Wiener, On the Foundations of Noise-free Selective Classification, JMLR 11 (2010).
    """
    return curve_of(claims(y_true, probs, classes, sample_weight))


def confidence_risk_coverage_curve(
    correct: ArrayLike, confidence: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> RiskCoverageCurve:
    """Coverage and risk at each threshold, from confidences alone.

    Args:
        correct: Whether each prediction was right, or its probability of being right, in [0, 1].
        confidence: The confidence of each prediction, in [0, 1].
        sample_weight: One non-negative weight per row; rows of weight zero are left out.

    Returns:
        Thresholds, coverage and risk, with the areas as properties.

    >>> curve = confidence_risk_coverage_curve([1, 0, 1, 1], [0.9, 0.6, 0.6, 0.8])
    >>> curve.coverage, curve.risk
    (array([0.25, 0.5 , 1.  ]), array([0.  , 0.  , 0.25]))
    """
    c, a = checks.unit_interval(confidence), checks.unit_interval(correct, "correct")
    n = checks.same_length(correct=a, confidence=c)
    return curve_of(Chunk(c, a, checks.sample_weights(sample_weight, n)))


def aurc(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Area under the risk-coverage curve: the risk, on average over all coverages.

    `integral_0^1 risk(u) du = integral_0^1 -ln(u) r(u) du` with r(u) the error rate of the rows at coverage u: the
    most confident rows count most. The integral is exact, with the mean over the orders of ties. The mean of
    risk(k / n) over k = 1..n, which other libraries use, differs from it by a term of order `log(n) / n`, changes
    when every row is repeated, and has no weighted form.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The area, in [0, 1]; the error rate if the confidence is uninformative.

    >>> round(aurc([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.063023

    Reference: Geifman, Uziel, El-Yaniv, Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers, ICLR 2019;
    for the logarithm: Zhou, Van Landeghem, Popordanoska, Blaschko, A Novel Characterization of the Population Area
    Under the Risk Coverage Curve, ICML 2025.
    """
    return risk_coverage_curve(y_true, probs, classes=classes, sample_weight=sample_weight).aurc


def excess_aurc(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Excess of the area under the risk-coverage curve over that of the best order, with all right rows first.

    `aurc - (e + (1 - e) ln(1 - e))` with e the error rate: how badly the confidence separates right from wrong
    predictions, independent of the accuracy.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The excess, in [0, 1]; 0 if every right row has a higher confidence than every wrong one.

    >>> round(excess_aurc([1, 1, 0], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.636514

    Reference: Geifman, Uziel, El-Yaniv, Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers, ICLR 2019.
    """
    return risk_coverage_curve(y_true, probs, classes=classes, sample_weight=sample_weight).excess_aurc


def augrc(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Area under the generalized risk-coverage curve: the mean fraction of rows that are wrong and accepted.

    `integral_0^1 u risk(u) du = e^2 / 2 + e (1 - e) (1 - AUROC)` with e the error rate and AUROC the probability that
    a right row has a higher confidence than a wrong one. Unlike `aurc` it does not depend on a few confident rows.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The area, in [0, 1/2].

    >>> round(augrc([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.055556

    Reference: Traub et al., Overcoming Common Flaws in the Evaluation of Selective Classification Systems, NeurIPS
    2024.
    """
    return risk_coverage_curve(y_true, probs, classes=classes, sample_weight=sample_weight).augrc


def coverage_at_risk(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    max_risk: float = 0.05,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """The largest coverage with at most this risk on these rows.

    The threshold is chosen on the rows it is evaluated on, so the risk on new rows is often higher; use
    `selfcal.SelectiveClassifier` for a threshold with a guarantee.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        max_risk: The maximum fraction of wrong predictions among the accepted rows.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The largest coverage of a threshold with that risk, in [0, 1]; 0 if none has it.

    >>> round(coverage_at_risk([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 6)
    0.666667
    """
    curve = risk_coverage_curve(y_true, probs, classes=classes, sample_weight=sample_weight)
    return curve.coverage_at_risk(max_risk)


def risk_at_coverage(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    min_coverage: float = 0.8,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """The risk when at least this fraction of the rows must be accepted.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        min_coverage: The minimum fraction of the weight to accept; ties may increase it.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The risk of the strictest threshold with that coverage, in [0, 1].

    >>> risk_at_coverage([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], min_coverage=0.5)
    0.0
    """
    curve = risk_coverage_curve(y_true, probs, classes=classes, sample_weight=sample_weight)
    return curve.risk_at_coverage(min_coverage)


def curve_of(claimed: Chunk) -> RiskCoverageCurve:
    """Return the curve of checked confidences."""
    order = np.argsort(-claimed.confidence)
    w = np.ones(len(order)) if claimed.weight is None else claimed.weight[order]
    order, w = order[w > 0], w[w > 0]
    confidence, wrong = claimed.confidence[order], 1.0 - claimed.correct[order]
    last_of_ties = np.append(confidence[1:] < confidence[:-1], True)
    last = np.flatnonzero(last_of_ties)
    accepted = np.cumsum(w)[last]
    return RiskCoverageCurve(
        thresholds=confidence[last].astype(np.float64, copy=False),
        coverage=accepted / accepted[-1],
        risk=np.cumsum(w * wrong)[last] / accepted,
        effective_count=effective_counts(accepted, np.cumsum(w**2)[last], last.astype(np.float64) + 1),
    )
