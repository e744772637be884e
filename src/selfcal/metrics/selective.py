"""Selective prediction: how often a model is wrong on the rows it is sure enough of to answer.

A threshold t accepts every row whose confidence is at least t, so equal confidences are accepted together. *Coverage*
is the share of the weight that is accepted, *risk* the share of what is accepted that is wrong. A coverage between
two thresholds could only be had by breaking ties; the areas take the mean over all ways to do so, which gives every
coverage in (0, 1] a risk, and makes a row of weight 2 the same as two rows.
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
"""How far a coverage or a risk may miss its target by rounding alone: 0.1 + 0.2 is more than 0.3."""


@dataclass(frozen=True, eq=False)
class RiskCoverageCurve:
    """Coverage and risk at every threshold that makes a difference, from the strictest to the one that accepts all.

    Attributes:
        thresholds: The distinct confidences, falling; a row is accepted if its confidence is at least the threshold.
        coverage: Fraction of the weight that each threshold accepts, rising to 1.
        risk: Fraction of what each threshold accepts that is wrong.
        effective_count: `(sum w)^2 / sum w^2` of what each threshold accepts: the rows, if all weights are equal.
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
        """Area above that of the best order; see `selfcal.metrics.excess_aurc`."""
        right = 1.0 - self.risk[-1]
        return max(0.0, self.aurc - float(1.0 - right + xlogy(right, right)))

    @property
    def augrc(self) -> float:
        """Area under the curve of errors accepted; see `selfcal.metrics.augrc`."""
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
        """Wilson's interval of the risk at each threshold by itself; it does not hold for all of them at once."""
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
    """Coverage and risk at each threshold, for those who have only confidences.

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
    surest rows count most. The integral is exact, with ties in the mean over their orders. The mean of risk(k / n)
    over k = 1..n, which others take, differs from it by a term of order `log(n) / n`, changes when every row
    is repeated, and has no weighted form.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The area, in [0, 1]; the error rate if the confidence tells nothing.

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
    """How much the area under the risk-coverage curve exceeds that of the best order, with all right rows first.

    `aurc - (e + (1 - e) ln(1 - e))` with e the error rate: how badly the confidence tells right from wrong, whatever
    the accuracy.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The excess, in [0, 1]; 0 if every right row is surer than every wrong one.

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
    """Area under the generalized risk-coverage curve: the share of rows wrong and accepted, over all coverages.

    `integral_0^1 u risk(u) du = e^2 / 2 + e (1 - e) (1 - AUROC)` with e the error rate and AUROC the probability that
    a right row is surer than a wrong one. Unlike `aurc` it does not hang on the few rows that are surest.

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
    """How much could be answered with at most this share of wrong answers, had the threshold been known before.

    The threshold is chosen on the rows it is judged on, so the risk on new rows will often be higher; one that keeps
    its promise is what `selfcal.SelectiveClassifier` finds.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        max_risk: The largest share of wrong answers among those given.
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
    """Fraction of wrong answers when at least this share of the rows must be answered.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        min_coverage: The smallest share of the weight to accept; ties may make it more.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The risk of the strictest threshold that accepts so much, in [0, 1].

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
    last = np.flatnonzero(
        np.append(confidence[1:] < confidence[:-1], True)
    )  # of each group of equal confidences
    accepted = np.cumsum(w)[last]
    return RiskCoverageCurve(
        thresholds=confidence[last].astype(np.float64, copy=False),
        coverage=accepted / accepted[-1],
        risk=np.cumsum(w * wrong)[last] / accepted,
        effective_count=effective_counts(accepted, np.cumsum(w**2)[last], last.astype(np.float64) + 1),
    )
