"""Thresholds on the confidence with a guarantee: of a maximum risk, or of a minimum coverage.

Both guarantees are exact for any number of rows and do not require a calibrated confidence, not even that more
confident rows are right more often. They require that the rows are drawn independently from the distribution of new
rows, and that the model was not fitted on them.
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

MAX_STARTS = 4


def threshold_for_risk(
    wrong: ArrayLike, confidence: ArrayLike, *, max_risk: float, level: float = 0.95
) -> float:
    """The lowest threshold found for which the risk is at most `max_risk`, with probability at least `level`.

    The k-th candidate accepts the rows that are more confident than the (k + 1)-th most confident row. The m rows
    that it accepts are then distributed like any other rows it would accept, so that `P(Bin(m, max_risk) <= errors)`
    is an exact p-value for "its risk is too high": it is small exactly when the Clopper-Pearson upper bound is below
    `max_risk`. Candidates are tested from strict to lax until one fails. For a false guarantee the first candidate
    whose risk is too high must pass, which has probability at most `1 - level`, however many are tested. The
    candidates and their order depend on the confidences only; with ties, candidates that accept the same rows are
    one.

    The strictest candidates accept few rows, and one error among them would end the sequence. The error probability
    is therefore divided between up to four starting points, at equal ratios of k, and what is left when one sequence
    reaches the next starting point is passed on to it (the fallback procedure). Without failures nothing is lost; a
    failure among the most confident rows costs the α of one starting point.

    Args:
        wrong: Whether each prediction was wrong, on rows the model was not fitted on.
        confidence: The confidence of each prediction, in [0, 1].
        max_risk: The maximum fraction of wrong predictions among the accepted rows, in (0, 1).
        level: The probability, over such sets of rows, with which the guarantee holds.

    Returns:
        The threshold: rows with at least this confidence are accepted. 0 accepts all rows; infinity accepts none, if
        no candidate has passed.

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
    checks.same_length(wrong=is_wrong, confidence=c)
    return max(0.0, lowest_for_risk(is_wrong, c, max_risk=max_risk, level=level))


def threshold_for_coverage(confidence: ArrayLike, *, min_coverage: float, level: float = 0.95) -> float:
    """The highest threshold with a coverage of at least `min_coverage`, with probability at least `level`.

    The coverage of the k-th largest confidence is at least a Beta(k, n - k + 1) variable, so that k is the smallest
    number with `P(Bin(n, min_coverage) >= k) <= 1 - level`.

    Args:
        confidence: The confidence of each prediction, in [0, 1].
        min_coverage: The minimum fraction of new rows to accept, in (0, 1].
        level: The probability, over such sets of rows, with which the guarantee holds.

    Returns:
        The threshold: rows with at least this confidence are accepted. 0 accepts all.

    >>> confidence = np.linspace(0.99, 0.5, 1000)
    >>> round(threshold_for_coverage(confidence, min_coverage=0.8), 3)  # 0.598 accepts 80% of these rows
    0.587

    Reference: Wilks, Determination of Sample Sizes for Setting Tolerance Limits, Ann. Math. Stat. 12 (1941).
    """
    return max(
        0.0, lowest_for_coverage(checks.unit_interval(confidence), min_coverage=min_coverage, level=level)
    )


def rows_needed(max_risk: float, level: float = 0.95) -> int:
    """The number of rows without an error that show a risk of at most `max_risk`: `ln(1 - level) / ln(1 - max_risk)`.

    Args:
        max_risk: The maximum fraction of wrong predictions among the accepted rows, in (0, 1).
        level: The probability with which the guarantee holds.

    Returns:
        The number of rows.

    >>> rows_needed(0.05), rows_needed(0.01), rows_needed(0.001)
    (59, 299, 2995)
    """
    known_level(level)
    known_risk(max_risk)
    return max(1, math.ceil(math.log(1 - level) / math.log1p(-max_risk)))


def known_risk(max_risk: float) -> float:
    """Return `max_risk` if it is between 0 and 1, and not too close to either for the computations."""
    try:
        return checks.in_range("max_risk", max_risk, 1e-9, 1 - 1e-9)
    except ConfigError:
        raise ConfigError(f"max_risk must be between 0 and 1, for example 0.05; got {max_risk!r}.") from None


def risk_bound(errors: int, accepted: int, level: float = 0.95) -> float:
    """The Clopper-Pearson upper confidence bound of the risk, which is exact.

    Args:
        errors: Number of wrong predictions.
        accepted: Number of accepted rows, by a rule fixed beforehand.
        level: The probability with which the bound is not below the true risk.

    Returns:
        The bound; 1 if no row was accepted or all were wrong.

    >>> round(risk_bound(0, 59), 4), round(risk_bound(3, 100), 4)
    (0.0495, 0.0757)
    """
    known_level(level)
    return float(betaincinv(errors + 1, accepted - errors, level)) if errors < accepted else 1.0


def lowest_for_risk(is_wrong: Int, c: Float, *, max_risk: float, level: float) -> float:
    """Return what `threshold_for_risk` does for numbers of any range; minus infinity accepts all."""
    n = len(c)
    starts, alpha = _starts(n, max_risk, level)
    if starts[0] > n:
        return math.inf
    order = np.argsort(-c)
    errors = np.append(0, np.cumsum(is_wrong[order]))
    limits = np.append(c[order], -math.inf)[starts[0] :]
    accepted = np.searchsorted(-c[order], -limits, side="left")
    p_values = bdtr(errors[accepted], accepted, max_risk)
    too_few = accepted < starts[0]  # ties: these cannot pass whatever the labels are, and are skipped
    laxest, budget = -1, 0.0
    for start, end in pairwise([*(starts - starts[0]), len(limits)]):
        budget += alpha
        failed = np.flatnonzero((p_values[start:end] > budget) & ~too_few[start:end])
        last = (start + failed[0] if len(failed) else end) - 1
        if last >= start and not too_few[last]:
            laxest = last
        if len(failed):
            budget = 0.0
    if laxest < 0:
        return math.inf
    return float(np.nextafter(limits[laxest], math.inf)) if limits[laxest] > -math.inf else -math.inf


def lowest_for_coverage(c: Float, *, min_coverage: float, level: float) -> float:
    """Return what `threshold_for_coverage` does for numbers of any range; minus infinity accepts all."""
    known_level(level)
    checks.in_range("min_coverage", min_coverage, 0.0, 1.0, open_low=True)
    n = len(c)
    enough = np.flatnonzero(bdtrc(np.arange(n), n, min_coverage) <= 1 - level)
    return float(np.sort(c)[n - 1 - enough[0]]) if len(enough) else -math.inf


def _starts(n: int, max_risk: float, level: float) -> tuple[Int, float]:
    """Return the ranks at which a sequence of tests starts, and the error probability α of each.

    A starting point justifies its α only if the next one is far beyond it: at twice the rank or more.
    """
    for count in range(MAX_STARTS, 0, -1):
        alpha = (1 - level) / count
        first = rows_needed(max_risk, 1 - alpha)
        if count == 1 or first * 2**count <= n:
            break
    ranks: Float = np.geomspace(first, max(n, first), count + 1)[:-1]
    return ranks.round().astype(np.int64), alpha
