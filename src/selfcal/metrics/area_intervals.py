"""Intervals of the areas under risk-coverage curves, in closed form and fast for millions of rows."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from selfcal._support import checks
from selfcal._support.binning import Chunk
from selfcal._support.checks import Float
from selfcal.metrics._rows import claims
from selfcal.metrics.intervals import Interval, mean_interval
from selfcal.metrics.selective import RiskCoverageCurve, curve_of

Area = Literal["aurc", "excess_aurc", "augrc"]
LARGEST: dict[str, float] = {"aurc": 1.0, "excess_aurc": 1.0, "augrc": 0.5}


def area_interval(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    area: Area = "aurc",
    level: float = 0.95,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Interval:
    """AURC, excess AURC or AUGRC with an interval, from the influence of each row.

    A row influences the area by being wrong or right, and by making less confident rows enter later. The area plus
    that influence is a value per row with the area as its mean; the interval is `mean_interval` of these values. With
    dozens of errors it is about as wide as that of `bootstrap_interval`, at the cost of two sorts. Without errors it
    has no width, although the true area may be above zero.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        area: "aurc", "excess_aurc" or "augrc".
        level: Confidence level, for the area of infinite data.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The area with its interval.

    >>> print(area_interval([0, 1, 1, 0] * 20, [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]] * 20))
    0.0342 [0.0063, 0.0621]

    Reference: Hampel, The Influence Curve and Its Role in Robust Estimation, J. Am. Stat. Assoc. 69 (1974).
    """
    checks.one_of("area", area, LARGEST)
    claimed = claims(y_true, probs, classes, sample_weight)
    order = np.argsort(claimed.confidence)  # neighbours are looked up side by side, which is much faster
    confidence, correct = claimed.confidence[order], claimed.correct[order]
    weight = None if claimed.weight is None else claimed.weight[order]
    curve = curve_of(Chunk(confidence, correct, weight))
    if_wrong, always = _influence(curve, area)
    group = np.searchsorted(-curve.thresholds, -confidence).clip(max=len(always) - 1)
    values = if_wrong[group] * (1.0 - correct) + always[group]
    bounds = (0.0, LARGEST[area])
    found = mean_interval(values, level=level, sample_weight=weight, bounds=bounds)
    return Interval(float(getattr(curve, area)), found.low, found.high, level)


def _influence(curve: RiskCoverageCurve, area: Area) -> tuple[Float, Float]:
    """Return, for each threshold, what a row adds if it is wrong and what it adds in any case.

    A row that enters at coverage u adds `loss * weight(u)` itself, and makes every row after it enter later.
    """
    end, error_rate, rate = curve.coverage, curve.risk[-1], curve.rate
    start = np.append(0.0, end[:-1])
    if area == "augrc":
        middle = (start + end) / 2
        later = rate * (end - middle) + _sum_after(rate * (end - start))
        return 1.0 - middle, error_rate - curve.augrc - later
    log_start = np.log(
        np.where(start > 0, start, 1.0)
    )  # the first is never after another: its value is not used
    weight = 1.0 - (xlogy(end, end) - xlogy(start, start)) / (end - start)
    later = rate * (np.log(end) + weight) + _sum_after(rate * (np.log(end) - log_start))
    always = error_rate - later
    if area == "excess_aurc" and error_rate < 1:
        slope = -np.log1p(-error_rate)
        return weight - slope, always - (curve.aurc - curve.excess_aurc) + slope * error_rate
    return weight, always - (1.0 if area == "excess_aurc" else 0.0)


def _sum_after(values: Float) -> Float:
    """Return the sum of the values after each."""
    total: Float = np.append(np.cumsum(values[:0:-1])[::-1], 0.0)
    return total
