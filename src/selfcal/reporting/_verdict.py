"""The verdict on the calibration of the confidences, in a sentence, and the groups that deviate."""

from __future__ import annotations

from typing import Any

import numpy as np

from selfcal import metrics
from selfcal._support.binning import Bins, Chunk, bins_from_sums, chunk_sums
from selfcal._support.checks import Float, Int
from selfcal.reporting.content import ClassGroup, ClassGroups, Judgement, RangeGroup, Verdict
from selfcal.reporting.predictions import Predictions

ENOUGH_ROWS = 30
"""Minimum number of rows for a separate sentence."""

CLASSES_LISTED = 25
RANGES = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0])
"""Ranges of confidence, finer near certainty, where most predictions are and errors do the most harm."""

JUDGEMENTS: dict[Judgement, str] = {
    "honest": "no sign of miscalibration",
    "over": "over-confident",
    "under": "under-confident",
    "mixed": "over- and under-confident",
}

USEFULNESS = {
    "better": "better than the base rates",
    "ranks": "ranks, but no better than the base rates",
    "none": "no better than the base rates",
}


def claim_tests(judged: Predictions, *, n_bins: int, n_resamples: int, seed: int) -> dict[str, float]:
    """p-values of calibration: by the binned error, and by the largest deficit in any range."""
    claim = np.column_stack([1 - judged.confidence, judged.confidence])
    right = judged.correct.astype(np.int64)
    binned = metrics.consistency_test(
        right, claim, of_class=1, n_bins=n_bins, n_resamples=n_resamples, seed=seed
    )
    return {
        "consistency": binned.p_value,
        "kuiper": metrics.kuiper_test(right, claim, of_class=1).p_value,
    }


def judge(bins: Bins, tests: dict[str, float], level: float) -> Judgement:
    """One of `JUDGEMENTS`; a calibrated model is called miscalibrated with probability at most 1 - level.

    Whether it is over- or under-confident is read from the gaps beyond the intervals of their bins, if there are any.
    """
    if min(tests.values()) >= (1 - level) / len(tests):
        return "honest"
    low, high = metrics.wilson_interval(bins.accuracy, bins.effective_count, level=level)
    over = float(bins.share @ np.maximum(bins.confidence - high, 0))
    under = float(bins.share @ np.maximum(low - bins.confidence, 0))
    if max(over, under) == 0:
        over, under = (float(bins.share @ np.maximum(side * bins.gap, 0)) for side in (-1, 1))
    if max(over, under) <= 3 * min(over, under):
        return "mixed"
    return "over" if over > under else "under"


def verdict(judged: Predictions, *, level: float = 0.95) -> Verdict:
    """The accuracy where the confidence is about 90%, or at another confidence that enough rows have.

    Example:
        >>> confident = np.tile([0.92, 0.08], (200, 1))
        >>> found = verdict(Predictions.from_probabilities(np.arange(200) % 2, confident))
        >>> found.text
        'When its confidence is about 90%, it is right 43-57% of the time.'
        >>> found.rows, round(found.claimed, 2)
        (200, 0.92)
    """
    c = judged.confidence
    everything = f"Over all rows, with a mean confidence of {100 * c.mean():.0f}%"
    candidates = {
        "When its confidence is about 90%": (c >= 0.85) & (c < 0.95),
        "When its confidence is 95% or more": c >= 0.95,
    }
    enough = [name for name, chosen in candidates.items() if np.count_nonzero(chosen) >= ENOUGH_ROWS]
    when = enough[0] if enough else everything
    chosen = candidates.get(when, np.ones(len(c), dtype=bool))
    right, claimed = judged.correct[chosen], c[chosen]
    return verdict_on(
        when, rows=len(right), claimed=float(claimed.mean()), right=float(right.mean()), level=level
    )


def verdict_on(when: str, *, rows: int, claimed: float, right: float, level: float) -> Verdict:
    """The verdict on some rows, from their number, mean confidence and accuracy."""
    low, high = (float(end) for end in metrics.wilson_interval(right, rows, level=level))
    accuracy = percent_range(low, high)
    text = f"{when}, it is right {accuracy} of the time."
    return Verdict(text, when, accuracy, rows, claimed, right, low, high)


def percent_range(low: float, high: float) -> str:
    """Two fractions as a range in whole percent, with a digit more where whole ones would hide it.

    >>> percent_range(0.871, 0.909), percent_range(0.9951, 0.9962)
    ('87-91%', '99.5-99.6%')
    """
    digits = 0 if high - low >= 0.015 else 1
    ends = [f"{100 * end:.{digits}f}" for end in (low, high)]
    return f"{ends[0]}-{ends[1]}%" if ends[0] != ends[1] else f"{ends[0]}%"


def by_range(judged: Predictions, level: float) -> tuple[RangeGroup, ...]:
    """Confidence and accuracy for each range of confidence that has rows, with a finding beyond noise."""
    return in_ranges(range_sums(judged), level)


def range_sums(judged: Predictions) -> Float:
    """The sums over ranges that `in_ranges` needs; those of several sets of rows may be added."""
    return chunk_sums(Chunk(judged.confidence, judged.correct), RANGES, "right")


def in_ranges(sums: Float, level: float) -> tuple[RangeGroup, ...]:
    """`by_range` from `range_sums`."""
    bins = bins_from_sums(sums, RANGES, "right")
    filled = np.flatnonzero(bins.count)
    groups = findings(bins.count[filled], bins.confidence[filled], bins.accuracy[filled], level)
    return tuple(
        RangeGroup(start=float(RANGES[b]), end=float(RANGES[b + 1]), **group)
        for b, group in zip(filled, groups, strict=True)
    )


def by_class(judged: Predictions, level: float) -> ClassGroups:
    """The same for each predicted class; of many, those furthest beyond noise."""
    k = judged.probs.shape[1]
    rows = np.bincount(judged.chosen, minlength=k)
    claimed = np.bincount(judged.chosen, judged.confidence, minlength=k).astype(np.float64)
    right = np.bincount(judged.chosen, judged.correct, minlength=k).astype(np.float64)
    return in_classes(rows, claimed, right, level)


def in_classes(rows: Int, claimed: Float, right: Float, level: float) -> ClassGroups:
    """`by_class` from sums for each predicted class: of rows, of confidences and of right predictions."""
    filled = np.flatnonzero(rows)
    claimed, right = claimed[filled] / rows[filled], right[filled] / rows[filled]
    groups = [
        ClassGroup(code=int(code), **group)
        for code, group in zip(filled, findings(rows[filled], claimed, right, level), strict=True)
    ]
    groups.sort(key=lambda g: max(g.claimed - g.high, g.low - g.claimed), reverse=True)
    found = [group.finding for group in groups]
    return ClassGroups(
        predicted=len(groups),
        over=found.count("over"),
        under=found.count("under"),
        groups=tuple(groups[:CLASSES_LISTED]),
    )


def findings(
    rows: Int, claimed: Float, right: Float, level: float, of: int | None = None
) -> list[dict[str, Any]]:
    """Groups with intervals so wide that all of them, or all `of` them, hold at once (Bonferroni)."""
    low, high = metrics.wilson_interval(right, rows, level=1 - (1 - level) / (of or len(rows)))
    finding = np.where(claimed > high, "over", np.where(claimed < low, "under", ""))
    columns = {"rows": rows, "claimed": claimed, "right": right, "low": low, "high": high, "finding": finding}
    lists = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]
