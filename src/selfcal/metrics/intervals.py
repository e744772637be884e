"""Confidence intervals of proportions and means, in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, stdtrit

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.errors import DataError
from selfcal.metrics._rows import Block, values_per_row
from selfcal.metrics.scores import negative_log_likelihood, squared_distance

RowScore = Literal["accuracy", "log_loss", "brier_score"]

ROW_SCORES: dict[str, Callable[[Block], Float]] = {
    "accuracy": lambda block: block.top_label().correct.astype(np.float64),
    "log_loss": negative_log_likelihood,
    "brier_score": squared_distance,
}
"""The scores that are means over rows, by the name of their function."""


@dataclass(frozen=True)
class Interval:
    """A measured value and the ends of its interval.

    >>> print(Interval(value=0.8, low=0.75, high=0.85, level=0.95))
    0.8000 [0.7500, 0.8500]

    Attributes:
        value: The measured value.
        low: Lower end.
        high: Upper end.
        level: Confidence level.
    """

    value: float
    low: float
    high: float
    level: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def wilson_interval(rate: ArrayLike, count: ArrayLike, *, level: float = 0.95) -> tuple[Float, Float]:
    """Wilson score interval of a proportion; unlike the Wald interval it stays in [0, 1] and works at 0 and 1.

    `(r + z^2 / 2n -+ z sqrt(r (1 - r) / n + z^2 / 4n^2)) / (1 + z^2 / n)`, z the normal quantile of the level.

    Args:
        rate: Observed proportions, in [0, 1].
        count: Number of observations of each proportion; (effective) counts need not be whole.
        level: The probability with which the interval should cover the true proportion.

    Returns:
        Lower and upper ends; 0 and 1 where the count is 0.

    >>> low, high = wilson_interval([0.5, 1.0], [10, 10])
    >>> low.round(3), high.round(3)
    (array([0.237, 0.722]), array([0.763, 1.   ]))

    Reference: Wilson, Probable Inference, J. Am. Stat. Assoc. 22 (1927).
    """
    known_level(level)
    r, n = np.broadcast_arrays(checks.numbers(rate, "rate"), checks.numbers(count, "count"))
    some = np.where(n > 0, n, 1.0)
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    centre = (r + z2 / (2 * some)) / (1 + z2 / some)
    half = np.sqrt(z2 * (r * (1 - r) / some + z2 / (4 * some**2))) / (1 + z2 / some)
    low = np.where(n > 0, np.maximum(centre - half, 0.0), 0.0)
    high = np.where(n > 0, np.minimum(centre + half, 1.0), 1.0)
    return low, high


def clopper_pearson_interval(
    rate: ArrayLike, count: ArrayLike, *, level: float = 0.95
) -> tuple[Float, Float]:
    """Exact interval of a proportion: it covers the true one with at least the given probability, at any count.

    With x = r n successes and a = 1 - level, the a/2 quantile of Beta(x, n - x + 1) and the 1 - a/2 quantile of
    Beta(x + 1, n - x). Wider than `wilson_interval`, whose coverage is right on average over the true proportion.

    Args:
        rate: Observed proportions, in [0, 1].
        count: Number of observations of each proportion; (effective) counts need not be whole.
        level: The minimum probability with which the interval covers the true proportion.

    Returns:
        Lower and upper ends; 0 and 1 where the count is 0.

    >>> low, high = clopper_pearson_interval([0.5, 1.0], [10, 10])
    >>> low.round(3), high.round(3)
    (array([0.187, 0.692]), array([0.813, 1.   ]))

    Reference: Clopper, Pearson, The Use of Confidence or Fiducial Limits, Biometrika 26 (1934).
    """
    known_level(level)
    r, n = np.broadcast_arrays(checks.numbers(rate, "rate"), checks.numbers(count, "count"))
    hits, misses = r * n, (1 - r) * n
    tail = (1 - level) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(hits > 0, betaincinv(hits, misses + 1, tail), 0.0)
        high = np.where(misses > 0, betaincinv(hits + 1, misses, 1 - tail), 1.0)
    return low, high


def mean_interval(
    values: ArrayLike,
    *,
    level: float = 0.95,
    sample_weight: ArrayLike | None = None,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Interval:
    """Student interval of a weighted mean.

    `m -+ t sqrt(n / (n - 1) sum_i v_i^2 (x_i - m)^2)` with v the weights divided by their sum, n = 1 / sum v^2 the
    effective number of rows and t the Student quantile with n - 1 degrees of freedom.

    Args:
        values: One value per row.
        level: Confidence level.
        sample_weight: One non-negative weight per row; their scale does not matter.
        bounds: The range of the values; the interval is cut to it, and is all of it when one row is all there is.

    Returns:
        The mean with its interval.

    >>> print(mean_interval([1.0, 2.0, 3.0, 4.0]))
    2.5000 [0.4457, 4.5543]
    """
    known_level(level)
    x = checks.numbers(values, "values")
    if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all():
        raise DataError(f"values must be a vector of finite numbers, at least one; got shape {x.shape}.")
    return student_interval(
        *mean_and_error(x, checks.sample_weights(sample_weight, len(x))), level=level, bounds=bounds
    )


def student_interval(
    mean: float, error: float, freedom: float, *, level: float, bounds: tuple[float, float]
) -> Interval:
    """Return the interval of a mean with its standard error and degrees of freedom (0 for a single row)."""
    half = error * float(stdtrit(freedom, (1 + level) / 2)) if freedom > 0 else math.inf
    low, high = bounds
    return Interval(mean, max(low, mean - half), min(high, mean + half), level)


def score_interval(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    score: RowScore = "log_loss",
    level: float = 0.95,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Interval:
    """Accuracy, log loss or Brier score with the interval of its mean over rows.

    Wilson's interval for the accuracy, `mean_interval` for the others, with effective counts if weighted.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        score: "accuracy", "log_loss" or "brier_score".
        level: Confidence level.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The score with its interval.

    >>> print(score_interval([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], score="accuracy"))
    0.6667 [0.2077, 0.9385]
    """
    checks.one_of("score", score, ROW_SCORES)
    values = values_per_row(ROW_SCORES[score], y_true, probs, classes)
    if score != "accuracy":
        return mean_interval(values, level=level, sample_weight=sample_weight, bounds=(0.0, math.inf))
    weight = checks.sample_weights(sample_weight, len(values))
    rate = float(np.average(values, weights=weight))
    low, high = wilson_interval(rate, effective_count(weight, len(values)), level=level)
    return Interval(rate, float(low), float(high), level)


def effective_count(weight: Float | None, n: int) -> float:
    """Return the number of equally weighted rows with the same information: `(sum w)^2 / sum w^2`."""
    return float(n) if weight is None else float(weight.sum() ** 2 / (weight @ weight))


def mean_and_error(values: Float, weight: Float | None) -> tuple[float, float, float]:
    """Return the weighted mean, its standard error and the degrees of freedom (0 for a single row)."""
    n = effective_count(weight, len(values))
    normalized = np.full(len(values), 1 / len(values)) if weight is None else weight / weight.sum()
    mean = float(normalized @ values)
    if n < 1 + 1e-9:
        return mean, math.inf, 0.0
    variance = float(normalized**2 @ (values - mean) ** 2) * n / (n - 1)
    return mean, math.sqrt(variance), n - 1


def known_level(level: float) -> None:
    """Check that the level is in (0, 1)."""
    checks.in_range("level", level, 0.0, 1 - 1e-12, open_low=True)
