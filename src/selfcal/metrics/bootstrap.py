"""Intervals by resampling: of any metric, and of the binned calibration error, whose noise is a bias."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.binning import Bins, Closed, Norm, Strategy, bin_chunks, bin_index, gap_norm
from selfcal._support.checks import Float
from selfcal.metrics._rows import claims
from selfcal.metrics.intervals import Interval, effective_count, known_level

Metric = Callable[..., float]


def bootstrap_interval(
    metric: Metric,
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    level: float = 0.95,
    n_resamples: int = 1000,
    method: Literal["percentile", "basic"] = "percentile",
    seed: int = 0,
    sample_weight: ArrayLike | None = None,
    **options: Any,
) -> Interval:
    """Interval of any metric by drawing rows with replacement.

    A resample is a weight per row: how often it was drawn, times its own weight. With q the quantiles of the metric
    over resamples and m its value, "percentile" is [q_low, q_high], which stays in the metric's range, and "basic" is
    [2m - q_high, 2m - q_low], which takes out a bias that the resamples repeat. BCa would need one call of
    the metric per row.

    Resampling adds its own noise to that of the data, so that a calibration error, where noise only adds, comes out
    too large in every resample: neither method covers near zero. Use `calibration_error_interval` for binned errors.

    Args:
        metric: A function of `(y_true, probs, sample_weight=...)`.
        y_true: Labels, as the metric takes them.
        probs: Probabilities, one row per sample and one column per class.
        level: Confidence level.
        n_resamples: Number of resamples, each a call of the metric.
        method: "percentile" or "basic".
        seed: Seed of the draws.
        sample_weight: One non-negative weight per row.
        **options: Further arguments of the metric, such as `classes` or `n_bins`.

    Returns:
        The metric of the data with its interval.

    >>> from selfcal.metrics import log_loss
    >>> print(bootstrap_interval(log_loss, [0, 1, 1, 0] * 20, [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]] * 20))
    0.4004 [0.3309, 0.4682]

    Reference: Efron, Tibshirani, An Introduction to the Bootstrap, Chapman & Hall 1993.
    """
    known_level(level)
    checks.one_of("method", method, ("percentile", "basic"))
    value = metric(y_true, probs, sample_weight=sample_weight, **options)
    draws = [
        metric(y_true, probs, sample_weight=weight, **options)
        for weight in resampled_weights(len(checks.as_array(y_true)), n_resamples, seed, sample_weight)
    ]
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    if method == "basic":
        low, high = 2 * value - high, 2 * value - low
    return Interval(value, float(low), float(high), level)


def resampled_weights(
    n: int, n_resamples: int, seed: int, sample_weight: ArrayLike | None
) -> Iterator[Float]:
    """Yield the weights of rows drawn with replacement, from those with positive weight."""
    checks.positive_int("n_resamples", n_resamples)
    own = checks.sample_weights(sample_weight, n)
    rows = np.arange(n) if own is None else np.flatnonzero(own)
    rng = np.random.default_rng(seed)
    for _ in range(n_resamples):
        drawn = np.bincount(rows[rng.integers(0, len(rows), len(rows))], minlength=n)
        yield drawn.astype(np.float64) if own is None else drawn * own


def calibration_error_interval(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    of_class: Any = None,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    norm: Norm = "l1",
    closed: Closed = "right",
    level: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Interval:
    """Calibration error with an interval for its value on infinite data in the same bins.

    Noise makes the gap of a calibrated bin look like an error, so the measured error e is too high, by an amount that
    depends on how large the true gaps are; a plain bootstrap adds the same noise again and misses small errors. So
    a test is inverted instead: a true error t is in the interval if e is neither among the smallest nor
    the largest values that data with gaps of size t would show. Such data have gaps in proportion to
    `sqrt(g_b^2 + v_b)`, with g_b the measured gap and v_b its sampling variance, noise N(0, v_b), and
    resampled weights of the bins. For the upper end an e below the median of a calibrated model counts as that
    median, so the interval is never empty. The interval reaches 0 exactly when e is plausible for a calibrated model;
    with many bins of few rows all of it may lie below e. The worst bin ("max") is most often one of few rows, for
    which the normal noise is rough.

    The cost is one pass over the rows, whatever the number of resamples.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        of_class: The class whose probability is evaluated; the top label's if None.
        n_bins: Number of bins (at most, for "quantile").
        strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
        norm: "l1" for the ECE, "l2" for its root mean square form, "max" for the worst bin.
        closed: "right" for bins (a, b], "left" for [a, b).
        level: Confidence level, for the error of infinite data.
        n_resamples: Number of resamples.
        seed: Seed of the draws.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The measured error, equal to `expected_calibration_error`, with the interval.

    >>> print(calibration_error_interval([0, 1, 1, 0] * 100, [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.7, 0.3]] * 100))
    0.3000 [0.2825, 0.3190]

    Reference: Sun, Chaudhari, Barnett, Dobriban, A Confidence Interval for the l2 Expected Calibration Error, 2024,
    on why the plain bootstrap fails near zero.
    """
    known_level(level)
    checks.positive_int("n_resamples", n_resamples)
    claimed = claims(y_true, probs, classes, sample_weight, of_class=of_class)
    bins = bin_chunks([claimed], n_bins=n_bins, strategy=strategy, closed=closed)
    index = bin_index(claimed.confidence, bins.edges, bins.closed)
    squares = (claimed.correct - claimed.confidence) ** 2
    if claimed.weight is not None:
        squares *= claimed.weight
    total = np.bincount(index, weights=squares, minlength=len(bins.weight)).astype(np.float64)
    n = round(effective_count(claimed.weight, len(claimed.confidence)))
    return interval_of_bins(bins, total, n, norm=norm, level=level, n_resamples=n_resamples, seed=seed)


def interval_of_bins(
    bins: Bins, squares: Float, n: int, *, norm: Norm, level: float, n_resamples: int, seed: int
) -> Interval:
    """Return the interval of `calibration_error_interval` from the bins alone.

    Args:
        bins: The bins.
        squares: The weighted sum of the squares of correctness minus confidence in each bin.
        n: The effective number of rows.
        norm: The norm of the gaps.
        level: Confidence level.
        n_resamples: Number of resamples.
        seed: Seed of the draws.
    """
    value = float(gap_norm(bins.share, bins.gap, norm))
    variance = _gap_variance(bins, squares)
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n_resamples, len(variance))) * np.sqrt(variance)
    weights = rng.multinomial(n, bins.share, size=n_resamples) / n
    shape = np.sqrt(bins.gap**2 + variance)
    size = float(gap_norm(bins.share, shape, norm))

    def measured_if(true: float) -> Float:
        return gap_norm(weights, shape * (true / size) + noise, norm)

    tail = (1 - level) / 2
    no_luck = max(value, float(np.median(measured_if(0.0))))
    low = _smallest(lambda true: bool(np.mean(measured_if(true) >= value) >= tail))
    high = _smallest(lambda true: bool(np.mean(measured_if(true) <= no_luck) < tail))
    return Interval(value, low, high, level)


def _smallest(holds: Callable[[float], bool]) -> float:
    """Return the smallest number in [0, 1] for which something holds that holds for all larger ones."""
    low, high = 0.0, 1.0
    if holds(low):
        return low
    while high - low > 1e-5:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _gap_variance(bins: Bins, squares: Float) -> Float:
    """Return the sampling variance of each bin's gap; 0 for empty bins.

    The variance within a bin is that of its rows and of one more, imagined, row that is a toss-up: a bin of one row,
    or with only hits, would seem free of noise.
    """
    filled = bins.weight > 0
    mean = squares / np.where(filled, bins.weight, 1.0)
    count = np.where(filled, bins.effective_count, 1.0)
    within = np.maximum(mean - bins.gap**2, 0.0)
    return np.where(filled, (within + 0.25 / count) / count, 0.0)
