"""The numbers of a report, as plain Python: what `report.json` holds and the page shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal import __version__, metrics
from selfcal._support import checks
from selfcal._support.binning import Bins
from selfcal.errors import ConfigError, DataError
from selfcal.metrics._rows import values_per_row
from selfcal.metrics.intervals import ROW_SCORES
from selfcal.reporting import _explorer, _verdict
from selfcal.reporting._names import shown, shown_apart
from selfcal.reporting.predictions import Predictions

if TYPE_CHECKING:
    from selfcal.label_noise.audit import LabelAudit

FORMAT = 1
LABELS_SHOWN = 50


def summarise(
    methods: Mapping[str, Predictions],
    *,
    classes: ArrayLike | None = None,
    row_names: Sequence[object] | None = None,
    settings: Mapping[str, object] | None = None,
    labels: LabelAudit | None = None,
    n_worst: int = 20,
    n_bins: int = 15,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Judge predictions of one or more methods on the same rows.

    Args:
        methods: Predictions on the same rows, by the method's name.
        classes: The name of each class; by default its code.
        row_names: A name for each row. Only with them are single rows shown: the worst mistakes.
        settings: What else to write down about data and training, by name.
        labels: An audit of the training labels; its first flagged rows are shown.
        n_worst: How many of the worst mistakes to list.
        n_bins: Number of bins of the calibration error and the reliability diagrams.
        level: The level of all intervals.
        n_resamples: Number of label sets for the noise floor and the test.
        seed: Seed of the draws.

    Returns:
        A dictionary ready for JSON.

    Example:
        >>> probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
        >>> numbers = summarise({"mine": Predictions.from_probabilities([0, 1, 1], probs)})
        >>> numbers["methods"][0]["accuracy"]["value"]
        0.6666666666666666
    """
    first = _same_rows(methods)
    n, k = first.probs.shape
    names = list(range(k)) if classes is None else np.asarray(classes).tolist()
    if len(names) != k:
        raise DataError(f"classes must name the {k} columns of the probabilities; got {len(names)} names.")
    if row_names is not None:
        checks.same_length(row_names=row_names, predictions=first.y)
    if not 0 < level < 1:
        raise ConfigError(f"level must be a share between 0 and 1, such as 0.95; got {level!r}.")
    draws = {"n_bins": n_bins, "n_resamples": n_resamples, "seed": seed}
    log_loss = ROW_SCORES["log_loss"]
    losses = {name: values_per_row(log_loss, p.y, p.probs, None) for name, p in methods.items()}
    leader = min(losses, key=lambda name: float(losses[name].mean()))
    method_names = shown_apart(list(methods))
    judged = [
        {
            "name": label,
            **_scores(p, level=level, **draws),
            "log_loss": _ends(metrics.mean_interval(losses[name], level=level, bounds=(0.0, math.inf))),
            "log_loss_behind_best": None
            if name == leader
            else _ends(metrics.mean_interval(losses[name] - losses[leader], level=level)),
            "reject": _explorer.explore(p, level=level, cells=min(k * k, 200), n_methods=len(methods)),
            "by_range": _verdict.by_range(p, level),
            "by_class": _verdict.by_class(p, level),
            "worst": None if row_names is None else _worst(p, row_names, n_worst),
        }
        for label, (name, p) in zip(method_names, methods.items(), strict=True)
    ]
    return {
        "format": FORMAT,
        "selfcal": __version__,
        "rows": n,
        "classes": shown_apart(names),
        "class_rows": np.bincount(first.y, minlength=k).tolist(),
        "level": level,
        **draws,
        "settings": {shown(name): shown(value, 200) for name, value in (settings or {}).items()},
        "methods": judged,
        "labels": None if labels is None else _labels(labels),
    }


def _same_rows(methods: Mapping[str, Predictions]) -> Predictions:
    if not methods:
        raise DataError("Expected predictions of at least one method to report on; got none.")
    first = next(iter(methods.values()))
    for name, predictions in methods.items():
        if predictions.probs.shape != first.probs.shape or (predictions.y != first.y).any():
            raise DataError(
                f"Methods must be judged on the same rows; {shown(name)!r} has {len(predictions.y)} rows in "
                f"{predictions.probs.shape[1]} classes, or other labels than {shown(next(iter(methods)))!r}."
            )
    return first


def _scores(p: Predictions, *, level: float, n_bins: int, n_resamples: int, seed: int) -> dict[str, Any]:
    """Scores with intervals, the bins, the tests, and the verdict they add up to."""
    bins = metrics.reliability_curve(p.correct, p.confidence, n_bins=n_bins)
    claim = np.column_stack([1 - p.confidence, p.confidence])
    ece = metrics.calibration_error_interval(
        p.correct.astype(np.int64), claim, of_class=1, n_bins=n_bins, level=level, seed=seed
    )
    floor = metrics.ece_noise_floor(p.confidence, n_bins=n_bins, n_resamples=n_resamples, seed=seed)
    tests = _verdict.claim_tests(p, n_bins=n_bins, n_resamples=n_resamples, seed=seed)
    low, high = metrics.wilson_interval(bins.mean_accuracy, len(p.y), level=level)
    return {
        "judgement": _verdict.judge(bins, tests, level),
        "verdict": _verdict.verdict(p, level=level),
        "mean_confidence": bins.mean_confidence,
        "accuracy": {"value": float(p.correct.mean()), "low": float(low), "high": float(high)},
        "ece": _ends(ece),
        "noise_floor": {"mean": floor.mean, "low": floor.low, "high": floor.high},
        "brier_score": _ends(metrics.score_interval(p.y, p.probs, score="brier_score", level=level)),
        "tests": tests,
        "below_chance": p.below_chance,
        "bins": _bins(bins, level),
    }


def _ends(interval: metrics.Interval) -> dict[str, float | None]:
    """The interval without infinite ends, which a single row has and JSON has not."""
    ends = {"value": interval.value, "low": interval.low, "high": interval.high}
    return {name: end if math.isfinite(end) else None for name, end in ends.items()}


def _bins(bins: Bins, level: float) -> list[dict[str, Any]]:
    low, high = metrics.wilson_interval(bins.accuracy, bins.effective_count, level=level)
    columns = {
        "from": bins.edges[:-1],
        "to": bins.edges[1:],
        "rows": bins.count,
        "confidence": bins.confidence,
        "accuracy": bins.accuracy,
        "low": low,
        "high": high,
    }
    lists = [column.tolist() for column in columns.values()]
    every = [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]
    return [one for one in every if one["rows"]]


def _labels(audit: LabelAudit) -> dict[str, Any]:
    """The audit with labels that are fit to print."""
    numbers = audit.to_dict(LABELS_SHOWN)
    rows = [
        {**row, "given": shown(row["given"]), "suggested": shown(row["suggested"])} for row in numbers["rows"]
    ]
    return {**numbers, "summary": str(audit), "rows": rows}


def _worst(p: Predictions, row_names: Sequence[object], n_worst: int) -> list[dict[str, Any]]:
    """The mistakes made with most confidence; of equals, the first rows."""
    wrong = np.flatnonzero(~p.correct)
    order = wrong[np.argsort(-p.confidence[wrong], kind="stable")][:n_worst]
    return [
        {
            "row": shown(row_names[row]),
            "answered": int(p.chosen[row]),
            "true": int(p.y[row]),
            "confidence": float(p.confidence[row]),
            "probability_of_true": float(p.probs[row, p.y[row]]),
        }
        for row in order.tolist()
    ]
