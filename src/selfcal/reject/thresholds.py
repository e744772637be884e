"""Thresholds on the confidence that keep a promise: of a largest risk, or of a smallest coverage.

Both are exact at any number of rows and ask nothing of the confidence: not that it is calibrated, not even that surer
rows are right more often. They ask that the rows are drawn independently from where new rows will come from, and that
the model was not fitted on them.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, bdtrc, betaincinv

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.errors import ConfigError
from selfcal.metrics.intervals import known_level

MOST_STARTS = 4


def threshold_for_risk(
    wrong: ArrayLike, confidence: ArrayLike, *, max_risk: float, level: float = 0.95
) -> float:
    """The laxest threshold found for which the risk is at most `max_risk`, with probability at least `level`.

    The k-th candidate accepts what is surer than the (k + 1)-th surest row. The m rows that it accepts are then drawn
    like any others it would accept, so that `P(Bin(m, max_risk) <= errors)` is an exact p-value for "its risk is too
    high": it is small just when Clopper and Pearson's upper bound is below `max_risk`. Candidates are tested from
    strict to lax until one fails. For a false promise the first candidate whose risk is too high must pass, which it
    does with probability `1 - level` at most, however many are tested. Which candidates there are, and in which
    order, rests on the confidences alone; with ties, those that accept the same rows are one.

    The strictest candidates accept few rows, and one error among them would end everything. So up to four starts,
    at even ratios of k, divide the error probability among them, and what is left when a start reaches the next is
    handed on to it (the fallback procedure). If all goes well nothing is lost; bad luck among the surest rows costs
    one part.

    Args:
        wrong: Whether each prediction was wrong, on rows the model was not fitted on.
        confidence: The confidence of each prediction, in [0, 1].
        max_risk: The largest fraction of wrong answers among those given, in (0, 1).
        level: The probability, over such sets of rows, with which the promise is kept.

    Returns:
        The threshold: rows with at least this confidence are accepted. 0 accepts all; infinity, none: no
        candidate has passed.

    >>> confidence = np.linspace(0.99, 0.5, 1000)
    >>> round(threshold_for_risk(confidence < 0.6, confidence, max_risk=0.05), 3)
    0.585
    >>> threshold_for_risk(confidence > 0.6, confidence, max_risk=0.05)
    inf

    Reference: Geifman, El-Yaniv, Selective Classification for Deep Neural Networks, NeurIPS 2017; Angelopoulos et
    al., Learn then Test, Ann. Appl. Stat. 19 (2025); Bauer, Multiple Testing in Clinical Trials, Stat. in Medicine 10
    (1991); Wiens, A Fixed Sequence Bonferroni Procedure for Testing Multiple Endpoints, Pharm. Stat. 2 (2003).
    """
    c, is_wrong = checks.unit_interval(confidence), checks.label_codes(wrong, 2, name="wrong")
    n = checks.same_length(wrong=is_wrong, confidence=c)
    starts, part = _starts(n, max_risk, level)
    if starts[0] > n:
        return math.inf
    order = np.argsort(-c)
    errors = np.append(0, np.cumsum(is_wrong[order]))
    limits = np.append(c[order], -math.inf)[starts[0] :]
    accepted = np.searchsorted(-c[order], -limits, side="left")
    p_values = bdtr(errors[accepted], accepted, max_risk)
    too_few = accepted < starts[0]  # ties: these cannot pass whatever the labels are, and are passed over
    laxest, budget = -1, 0.0
    for start, end in pairwise([*(starts - starts[0]), len(limits)]):
        budget += part
        failed = np.flatnonzero((p_values[start:end] > budget) & ~too_few[start:end])
        last = (start + failed[0] if len(failed) else end) - 1
        if last >= start and not too_few[last]:
            laxest = last
        if len(failed):
            budget = 0.0
    if laxest < 0:
        return math.inf
    return max(0.0, float(np.nextafter(limits[laxest], math.inf)))


def threshold_for_coverage(confidence: ArrayLike, *, min_coverage: float, level: float = 0.95) -> float:
    """The strictest confidence that accepts a fraction of at least `min_coverage`, with probability at least `level`.

    The coverage of the k-th largest confidence is at least a Beta(k, n - k + 1) variable, so that k is the smallest
    number with `P(Bin(n, min_coverage) >= k) <= 1 - level`.

    Args:
        confidence: The confidence of each prediction, in [0, 1].
        min_coverage: The smallest fraction of new rows to accept, in (0, 1].
        level: The probability, over such sets of rows, with which the promise is kept.

    Returns:
        The threshold: rows with at least this confidence are accepted. 0 accepts all.

    >>> confidence = np.linspace(0.99, 0.5, 1000)
    >>> round(threshold_for_coverage(confidence, min_coverage=0.8), 3)  # 0.598 would be that of 80% of these rows
    0.587

    Reference: Wilks, Determination of Sample Sizes for Setting Tolerance Limits, Ann. Math. Stat. 12 (1941).
    """
    known_level(level)
    checks.in_range("min_coverage", min_coverage, 0.0, 1.0, open_low=True)
    c = checks.unit_interval(confidence)
    n = len(c)
    enough = np.flatnonzero(bdtrc(np.arange(n), n, min_coverage) <= 1 - level)
    return float(np.sort(c)[n - 1 - enough[0]]) if len(enough) else 0.0


def rows_needed(max_risk: float, level: float = 0.95) -> int:
    """The fewest rows, all of them right, that show a risk of at most `max_risk`: `ln(1 - level) / ln(1 - max_risk)`.

    Args:
        max_risk: The largest fraction of wrong answers among those given, in (0, 1).
        level: The probability with which the promise is kept.

    Returns:
        The number of rows.

    >>> rows_needed(0.05), rows_needed(0.01), rows_needed(0.001)
    (59, 299, 2995)
    """
    known_level(level)
    known_risk(max_risk)
    return max(1, math.ceil(math.log(1 - level) / math.log1p(-max_risk)))


def known_risk(max_risk: float) -> float:
    """Return `max_risk` if it lies between 0 and 1, far enough from both to count with."""
    try:
        return checks.in_range("max_risk", max_risk, 1e-9, 1 - 1e-9)
    except ConfigError:
        raise ConfigError(f"max_risk must be between 0 and 1, for example 0.05; got {max_risk!r}.") from None


def risk_bound(errors: int, accepted: int, level: float = 0.95) -> float:
    """The largest risk that is compatible with what was seen: an exact upper bound, Clopper and Pearson's.

    Args:
        errors: How many answers were wrong.
        accepted: How many answers were given, by a rule set beforehand.
        level: How often, at least, the bound is not below the true risk.

    Returns:
        The bound; 1 if no answer was given or all were wrong.

    >>> round(risk_bound(0, 59), 4), round(risk_bound(3, 100), 4)
    (0.0495, 0.0757)
    """
    known_level(level)
    return float(betaincinv(errors + 1, accepted - errors, level)) if errors < accepted else 1.0


def _starts(n: int, max_risk: float, level: float) -> tuple[Int, float]:
    """Return the ranks at which a chain of tests starts, and the part of the error probability each has.

    A start is worth its part only if the next lies well beyond it: at twice the rank or more.
    """
    for count in range(MOST_STARTS, 0, -1):
        part = (1 - level) / count
        first = rows_needed(max_risk, 1 - part)
        if count == 1 or first * 2**count <= n:
            break
    ranks: Float = np.geomspace(first, max(n, first), count + 1)[:-1]
    return ranks.round().astype(np.int64), part
