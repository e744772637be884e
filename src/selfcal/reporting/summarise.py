"""From predictions to a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from selfcal import __version__, metrics
from selfcal._support import checks
from selfcal._support.binning import Bins
from selfcal._support.checks import Float
from selfcal.errors import ConfigError, DataError
from selfcal.metrics._rows import values_per_row
from selfcal.metrics.intervals import ROW_SCORES
from selfcal.reporting import _classes, _explorer, _groups, _verdict
from selfcal.reporting._classes import estimate
from selfcal.reporting._names import shown, shown_apart
from selfcal.reporting._sets import prediction_sets
from selfcal.reporting.content import (
    Baseline,
    Bin,
    Estimate,
    Importance,
    MethodReport,
    Mistake,
    NoiseFloor,
    Novelty,
    Provenance,
    RejectCurve,
    Report,
    SuspectLabel,
    SuspectLabels,
)
from selfcal.reporting.predictions import Predictions

if TYPE_CHECKING:
    from selfcal.label_noise.audit import LabelAudit

FORMAT = 1
LABELS_SHOWN = 50
TITLE = "How far can these predictions be trusted?"


def summarise(
    methods: Mapping[str, Predictions],
    *,
    title: str = TITLE,
    subtitle: str = "",
    classes: ArrayLike | None = None,
    row_names: Sequence[object] | None = None,
    settings: Mapping[str, object] | None = None,
    notes: Sequence[str] = (),
    groups: Mapping[str, ArrayLike] | None = None,
    importance: Importance | None = None,
    provenance: Provenance | None = None,
    of_classes: bool = True,
    labels: LabelAudit | None = None,
    label_rows: Sequence[int] | None = None,
    novelty: Novelty | None = None,
    n_worst: int = 20,
    n_bins: int = 15,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Report:
    """Evaluate predictions of one or more methods on the same rows.

    Args:
        methods: Predictions on the same rows, by the method's name.
        title: The heading of the page.
        subtitle: A description of the data, in a line or two.
        classes: The name of each class; by default its code.
        row_names: A name for each row. Only with them are single rows shown: the worst mistakes.
        settings: Further facts about data and training, by name.
        notes: Remarks on the data and the training, each a sentence or two.
        groups: For each name, such as "age", a value per row: calibration is also evaluated for each group of rows.
            Numbers are cut at quantiles, rare categories are pooled, and missing values are a group.
        importance: Which columns matter, as `permutation_importance` returns it.
        provenance: Where the report comes from.
        of_classes: False if the two columns of the probabilities are of a wrong and a right prediction.
        labels: An audit of the training labels; its first flagged rows are shown.
        label_rows: The number of each audited row in its table, if it differs from its index in the audit.
        novelty: How often rows are marked as unlike the training rows, as `novelty_report` returns it.
        n_worst: Number of the worst mistakes to list.
        n_bins: Number of bins of the calibration error and the reliability diagrams.
        level: The level of all intervals.
        n_resamples: Number of label sets for the noise floor and the test.
        seed: Seed of the draws.

    Returns:
        The report; `to_dict` makes it ready for JSON.

    Example:
        >>> probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
        >>> judged = summarise({"mine": Predictions.from_probabilities([0, 1, 1], probs)})
        >>> judged.methods[0].accuracy.value
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
        raise ConfigError(f"level must be between 0 and 1, for example 0.95; got {level!r}.")
    log_loss = ROW_SCORES["log_loss"]
    losses = {name: values_per_row(log_loss, p.y, p.probs, None) for name, p in methods.items()}
    leader = min(losses, key=lambda name: float(losses[name].mean()))
    method_names = shown_apart(list(methods))
    class_rows = np.bincount(first.y, minlength=k)
    coin = _classes.baseline(class_rows)
    grouping = _groups.cut_all(groups or {}, n)
    how = _Evaluation(level, n_bins, n_resamples, seed, coin, grouping, of_classes)
    judged = [
        how.of(
            p,
            name=label,
            losses=losses[name],
            behind=None if name == leader else losses[name] - losses[leader],
            reject=_explorer.explore(p, level=level, cells=min(k * k, 200), n_methods=len(methods)),
            worst=None if row_names is None else _worst(p, row_names, n_worst),
        )
        for label, (name, p) in zip(method_names, methods.items(), strict=True)
    ]
    return Report(
        title=shown(title, 160),
        subtitle=shown(subtitle, 600) if subtitle else "",
        format=FORMAT,
        selfcal=__version__,
        rows=n,
        classes=tuple(shown_apart(names)),
        class_rows=tuple(class_rows.tolist()),
        level=level,
        n_bins=n_bins,
        n_resamples=n_resamples,
        seed=seed,
        settings={shown(name): shown(value, 200) for name, value in (settings or {}).items()},
        notes=tuple(shown(text, 600) for text in notes),
        provenance=provenance and printable(provenance),
        baseline=coin,
        of_classes=of_classes,
        importance=importance,
        methods=tuple(judged),
        labels=None if labels is None else _labels(labels, label_rows),
        novelty=novelty,
    )


def _same_rows(methods: Mapping[str, Predictions]) -> Predictions:
    if not isinstance(methods, Mapping) or not all(isinstance(p, Predictions) for p in methods.values()):
        raise DataError(
            "methods must be a dictionary of Predictions, such as {'mine': Predictions.from_probabilities(y, probs)}."
        )
    if not methods:
        raise DataError("Expected predictions of at least one method to report on; got none.")
    first = next(iter(methods.values()))
    for name, predictions in methods.items():
        if predictions.probs.shape != first.probs.shape or (predictions.y != first.y).any():
            raise DataError(
                f"Methods must be evaluated on the same rows; {shown(name)!r} has {len(predictions.y)} rows in "
                f"{predictions.probs.shape[1]} classes, or other labels than {shown(next(iter(methods)))!r}."
            )
    return first


class _Evaluation(NamedTuple):
    """How every method is evaluated; see `summarise`."""

    level: float
    n_bins: int
    n_resamples: int
    seed: int
    coin: Baseline
    groups: Mapping[str, _groups.Groups]
    of_classes: bool

    def of(
        self,
        p: Predictions,
        *,
        name: str,
        losses: Float,
        behind: Float | None,
        reject: RejectCurve,
        worst: tuple[Mistake, ...] | None,
    ) -> MethodReport:
        """Scores with intervals, the bins, the tests, and the resulting verdict."""
        bins = metrics.reliability_curve(p.correct, p.confidence, n_bins=self.n_bins)
        claim = np.column_stack([1 - p.confidence, p.confidence])
        ece = metrics.calibration_error_interval(
            p.correct.astype(np.int64),
            claim,
            of_class=1,
            n_bins=self.n_bins,
            level=self.level,
            seed=self.seed,
        )
        floor = metrics.ece_noise_floor(
            p.confidence, n_bins=self.n_bins, n_resamples=self.n_resamples, seed=self.seed
        )
        tests = _verdict.claim_tests(p, n_bins=self.n_bins, n_resamples=self.n_resamples, seed=self.seed)
        of_each = _classes.class_scores(p, self.level)
        useful = _classes.usefulness(
            p, losses, self.coin, of_each["roc_auc"], level=self.level, of_classes=self.of_classes
        )
        low, high = metrics.wilson_interval(bins.mean_accuracy, len(p.y), level=self.level)
        return MethodReport(
            name=name,
            judgement=_verdict.judge(bins, tests, self.level),
            verdict=_verdict.verdict(p, level=self.level),
            mean_confidence=bins.mean_confidence,
            accuracy=Estimate(float(p.correct.mean()), float(low), float(high)),
            ece=estimate(ece),
            noise_floor=NoiseFloor(floor.mean, floor.low, floor.high),
            log_loss=estimate(metrics.mean_interval(losses, level=self.level, bounds=(0.0, math.inf))),
            log_loss_behind_best=None
            if behind is None
            else estimate(metrics.mean_interval(behind, level=self.level)),
            brier_score=estimate(metrics.score_interval(p.y, p.probs, score="brier_score", level=self.level)),
            tests=tests,
            below_chance=p.below_chance,
            bins=bins_of(bins, self.level),
            by_range=_verdict.by_range(p, self.level),
            by_class=_verdict.by_class(p, self.level),
            reject=reject,
            worst=worst,
            usefulness=useful,
            by_group=_groups.judge_groups(p, self.groups, level=self.level, seed=self.seed),
            sets=prediction_sets(p, level=self.level, seed=self.seed) if self.of_classes else (),
            **of_each,
        )


def bins_of(bins: Bins, level: float) -> tuple[Bin, ...]:
    """The bins that have rows, with the intervals of their accuracy."""
    low, high = metrics.wilson_interval(bins.accuracy, bins.effective_count, level=level)
    columns = (bins.edges[:-1], bins.edges[1:], bins.count, bins.confidence, bins.accuracy, low, high)
    every = (Bin(*values) for values in zip(*(column.tolist() for column in columns), strict=True))
    return tuple(one for one in every if one.rows)


def printable(made: Provenance) -> Provenance:
    """The same with names that are fit to print."""
    files = tuple(shown(file, 200) for file in made.files)
    command = shown(made.command, 600) if made.command else ""
    return replace(made, files=files, command=command)


def _labels(audit: LabelAudit, numbers: Sequence[int] | None) -> SuspectLabels:
    """The audit with labels that are fit to print."""
    rows = tuple(
        SuspectLabel(
            row=row["row"] if numbers is None else int(numbers[row["row"]]),
            given=shown(row["given"]),
            suggested=shown(row["suggested"]),
            suspicion=row["suspicion"],
        )
        for row in audit.rows(LABELS_SHOWN)
    )
    return SuspectLabels(
        audited=len(audit.ranking),
        noise_rate=audit.noise_rate,
        flagged=len(audit.flagged),
        false_alarms=audit.false_alarms,
        expected_false_alarms=audit.expected_false_alarms,
        rows=rows,
        summary=str(audit),
    )


def _worst(p: Predictions, row_names: Sequence[object], n_worst: int) -> tuple[Mistake, ...]:
    """The mistakes with the highest confidence; of equals, the first rows."""
    wrong = np.flatnonzero(~p.correct)
    order = wrong[np.argsort(-p.confidence[wrong], kind="stable")][:n_worst]
    return tuple(
        Mistake(
            row=shown(row_names[row]),
            answered=int(p.chosen[row]),
            true=int(p.y[row]),
            confidence=float(p.confidence[row]),
            probability_of_true=float(p.probs[row, p.y[row]]),
        )
        for row in order.tolist()
    )
