"""Scores of single classes, the confusion matrix, and what the base rates alone would score."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from selfcal import metrics
from selfcal._support.checks import Float, Int
from selfcal.metrics._areas import Area, macro, roc_areas
from selfcal.reporting.content import Baseline, ClassScores, Confusion, Estimate, Usefulness
from selfcal.reporting.predictions import Predictions

CLASSES_LISTED = 25
"""Of more classes, only those with the lowest recall are listed, and no matrix of all counts is kept."""

MISTAKES_LISTED = 20


def estimate(interval: metrics.Interval) -> Estimate:
    """The interval without infinite ends, which a single row has and JSON has not."""
    ends = (interval.value, interval.low, interval.high)
    value, low, high = (end if math.isfinite(end) else None for end in ends)
    assert value is not None, "a score is finite"
    return Estimate(value, low, high)


def fraction(part: int, whole: int, level: float) -> Estimate | None:
    """A fraction of rows with Wilson's interval; None of no rows."""
    if not whole:
        return None
    low, high = metrics.wilson_interval(part / whole, whole, level=level)
    return Estimate(part / whole, float(low), float(high))


def baseline(class_rows: Int) -> Baseline:
    """What always predicting the base rates would score, given the number of rows of each class.

    >>> found = baseline(np.array([3, 1]))
    >>> found.rates, found.accuracy, found.brier_score
    ((0.75, 0.25), 0.75, 0.375)
    """
    rates = class_rows / class_rows.sum()
    some = rates[rates > 0]
    return Baseline(
        rates=tuple(rates.tolist()),
        accuracy=float(rates.max()),
        log_loss=max(0.0, float(-some @ np.log(some))),
        brier_score=float(1 - rates @ rates),
    )


def usefulness(
    judged: Predictions,
    losses: Float,
    coin: Baseline,
    auc: Estimate | None,
    *,
    level: float,
    of_classes: bool,
) -> Usefulness | None:
    """Whether predictions are better than the base rates; None if all rows are of one class.

    Args:
        judged: The predictions.
        losses: Their log loss in each row.
        coin: What the base rates score.
        auc: The area under the ROC curve.
        level: The level of the intervals.
        of_classes: Whether the predictions are probabilities of classes, or only a confidence.
    """
    if auc is None or auc.low is None:
        return None
    rates = np.array(coin.rates)
    gain = estimate(metrics.mean_interval(-np.log(rates[judged.y]) - losses, level=level))
    hits = fraction(int(judged.correct.sum()), len(judged.y), level)
    assert hits is not None, "there are rows"
    assert hits.low is not None, "an interval of a fraction has ends"
    level_text = f"{100 * level:g}% interval"
    if gain.low is not None and gain.low > 0:
        ends = f"{gain.low:.4f} to {gain.high:.4f}"
        text = (
            f"Its log loss is lower by {gain.value:.4f} than that of always predicting the base rates "
            f"({level_text} {ends})."
        )
        return Usefulness("better", gain, text)
    if auc.low > 0.5 or (of_classes and hits.low > coin.accuracy):
        text = (
            "It ranks the rows better than chance, but its probabilities have no lower log loss than always "
            "predicting the base rates: recalibrate it."
        )
        return Usefulness("ranks", gain, text)
    text = (
        "It is no better than always predicting the base rates, as far as these rows can tell: well calibrated or "
        "not, it says nothing about any single row."
        if of_classes
        else "Its confidence does not tell right from wrong predictions, as far as these rows can tell: well "
        "calibrated or not, it says nothing about any single row."
    )
    return Usefulness("none", gain, text)


def class_scores(judged: Predictions, level: float) -> dict[str, Any]:
    """The area under the ROC curve, the scores of each class and the confusion, as fields of a report."""
    k = judged.probs.shape[1]
    found: list[Estimate | None] = []

    def noted() -> Iterator[Area | None]:
        for area in roc_areas(judged.y, judged.probs):
            found.append(None if area is None else estimate(area.interval(level)))
            yield area

    several = len(np.unique(judged.y)) > 1
    auc = estimate(macro(noted()).interval(level)) if several else None
    areas = found * 2 if k == 2 else found
    rows, predicted = (np.bincount(codes, minlength=k).tolist() for codes in (judged.y, judged.chosen))
    right = np.bincount(judged.y[judged.correct], minlength=k).tolist()
    scores = [
        ClassScores(
            code=code,
            rows=rows[code],
            predicted=predicted[code],
            right=right[code],
            recall=fraction(right[code], rows[code], level),
            precision=fraction(right[code], predicted[code], level),
            roc_auc=areas[code] if several else None,
        )
        for code in range(k)
    ]
    if k > CLASSES_LISTED:
        seen = [one for one in scores if one.recall is not None]
        scores = sorted(seen, key=lambda one: one.recall.high or 0.0 if one.recall else 1.0)[:CLASSES_LISTED]
    return {"roc_auc": auc, "by_true_class": tuple(scores), "confusion": confusion(judged)}


def confusion(judged: Predictions) -> Confusion:
    """All counts of few classes, and the most frequent mistakes; of equals, the first."""
    k = judged.probs.shape[1]
    pairs, count = np.unique(
        judged.y[~judged.correct] * k + judged.chosen[~judged.correct], return_counts=True
    )
    order = np.argsort(-count, kind="stable")[:MISTAKES_LISTED]
    mistakes = tuple((*divmod(int(pairs[at]), k), int(count[at])) for at in order)
    counts: tuple[tuple[int, ...], ...] = ()
    if k <= CLASSES_LISTED:
        table = np.bincount(judged.y * k + judged.chosen, minlength=k * k).reshape(k, k)
        counts = tuple(tuple(row) for row in table.tolist())
    return Confusion(counts, mistakes, len(pairs))
