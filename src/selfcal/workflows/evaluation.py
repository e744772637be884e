"""Evaluating predictions in a table, in memory that does not grow with the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import chdtrc

from selfcal._support.binning import Chunk, bins_from_sums, chunk_sums, uniform_edges
from selfcal.conformal import SetCounts, SetScores
from selfcal.errors import ConfigError, DataError
from selfcal.metrics import CalibrationAccumulator
from selfcal.reporting import _verdict
from selfcal.reporting.content import Estimate, NoiseFloor, Report, ScoreReport, Scores
from selfcal.reporting.predictions import Predictions
from selfcal.reporting.summarise import summarise
from selfcal.tabular.cells import as_text, first_row
from selfcal.tabular.schema import column_named
from selfcal.workflows._group_values import group_values
from selfcal.workflows.layout import Layout
from selfcal.workflows.layout_search import find_layout
from selfcal.workflows.set_column import SET_COLUMN, count_sets

MOST_KEPT = 2_000_000
"""Probabilities that are kept for the finer tests; beyond, only sums are."""

NAME = "predictions"
"""The name of predictions from a table in a report."""


class Judge:
    """Evaluates predictions part by part.

    Args:
        layout: The columns of the predictions.
        drop_unlabelled: Drop rows without a label, instead of an error.
        n_bins: Number of bins of the calibration error.
        keep: Maximum number of probabilities to keep for the finer tests and the page.
        by: Columns that make groups of rows, each of which is evaluated as well.

    Example:
        >>> table = pl.DataFrame({"y": ["no", "yes"], "prob_no": [0.9, 0.2], "prob_yes": [0.1, 0.8]})
        >>> judge = Judge(find_layout(table, "y"))
        >>> judge.update(table).result().methods[0].accuracy.value
        1.0
    """

    def __init__(
        self,
        layout: Layout,
        *,
        drop_unlabelled: bool = False,
        n_bins: int = 15,
        keep: int = MOST_KEPT,
        by: Sequence[str] = (),
    ) -> None:
        self.layout, self.drop_unlabelled, self.n_bins, self.keep = layout, drop_unlabelled, n_bins, keep
        self.unlabelled = self.rows = 0
        self.classes = layout.classes or ("wrong", "right")
        self._scores = CalibrationAccumulator(len(self.classes), n_bins=n_bins)
        self._bins: Any = 0.0
        self._ranges: Any = 0.0
        self._kept: list[Predictions] | None = []
        self._sets: SetCounts | None = SetCounts()
        self._groups: dict[str, list[pl.Series]] = {name: [] for name in by}

    def update(self, part: pl.DataFrame) -> Judge:
        """Add rows."""
        labels = as_text(part[column_named(part, self.layout.target)])
        unlabelled = labels.is_null()
        if unlabelled.any():
            if not self.drop_unlabelled:
                raise DataError(
                    f"Column {self.layout.target!r} must hold a label in every row; row "
                    f"{self.rows + first_row(unlabelled):,} has none. Label it, or pass --drop-unlabelled."
                )
            self.unlabelled += int(unlabelled.sum())
            part, labels = part.filter(~unlabelled), labels.drop_nulls()
        if part.height:
            for name, cells in self._groups.items():
                cells.append(as_text(part[column_named(part, name)]))
            self._add(self._claims_of(part, labels))
            if SET_COLUMN in part.columns and self._sets is not None:
                known = count_sets(self._sets, part[SET_COLUMN].cast(pl.String), labels)
                self._sets = self._sets if known else None
        self.rows += part.height
        return self

    @property
    def names(self) -> NDArray[np.object_]:
        """The classes, for a report."""
        return np.array(self.classes, dtype=object)

    @property
    def predictions(self) -> Predictions | None:
        """All rows, if they were few enough to be kept."""
        if not self._kept:
            return None
        names = ("y", "chosen", "confidence", "probs")
        return Predictions(*(np.concatenate([getattr(part, name) for part in self._kept]) for name in names))

    @property
    def sets(self) -> SetScores | None:
        """The scores of the prediction sets, if the table has a column `prediction_set` with lists of classes."""
        return self._sets.scores() if self._sets is not None and self._sets.counts else None

    @property
    def of_classes(self) -> bool:
        """Whether the predictions are probabilities of classes, and not a confidence alone."""
        return bool(self.layout.columns)

    @property
    def groups(self) -> dict[str, NDArray[Any]]:
        """The values of the columns that make groups, one per row."""
        return {name: group_values(pl.concat(cells)) for name, cells in self._groups.items()}

    def result(self, level: float = 0.95, **about: Any) -> Report | ScoreReport:
        """The report on all rows, or one from the sums alone if there were too many rows to keep.

        Args:
            level: The level of the intervals.
            **about: `title`, `subtitle`, `settings` and `provenance`, as in `summarise`.
        """
        if not self.rows:
            raise DataError("Evaluation needs at least one labelled row; got none.")
        kept = self.predictions
        if kept is not None:
            about |= {"groups": self.groups, "of_classes": self.of_classes}
            return summarise({NAME: kept}, classes=self.names, n_bins=self.n_bins, level=level, **about)
        if self._groups:
            raise ConfigError(
                f"Groups need all rows in memory, and {self.rows:,} are too many. Evaluate fewer rows, or no groups."
            )
        return ScoreReport(rows=self.rows, level=level, n_bins=self.n_bins, methods=(self._from_sums(level),))

    def _claims_of(self, part: pl.DataFrame, labels: pl.Series) -> Predictions:
        probs = self.layout.probabilities(part, self.rows)
        if self.layout.columns:
            return Predictions.from_probabilities(self.layout.codes(labels, self.rows), probs)
        self.layout.check_confidence(part, probs[:, 1], self.rows)
        right = self.layout.correct(part).to_numpy().astype(np.int64)
        return Predictions(right, np.ones_like(right), probs[:, 1], probs)

    def _add(self, judged: Predictions) -> None:
        self._scores.update(judged.y, judged.probs)
        claim = Chunk(judged.confidence, judged.correct)
        self._bins = self._bins + chunk_sums(claim, uniform_edges(self.n_bins), "right")
        self._ranges = self._ranges + _verdict.range_sums(judged)
        if self._kept is not None:
            self._kept.append(judged)
            self.keep -= judged.probs.size
            if self.keep < 0:
                self._kept = None

    def _from_sums(self, level: float) -> Scores:
        seen = self._scores.compute()
        assert seen.log_loss is not None
        assert seen.brier_score is not None
        bins = bins_from_sums(self._bins, uniform_edges(self.n_bins), "right")
        spread = np.sqrt(bins.confidence * (1 - bins.confidence) / np.maximum(bins.count, 1))
        spread = np.where(bins.count > 0, spread, 0.0)
        # the sum of squared gaps in units of chance; c (1 - c) of the mean is never less than its mean
        z = np.divide(bins.gap, spread, out=np.zeros(len(spread)), where=spread > 0)
        p_value = float(chdtrc(max(1, int((spread > 0).sum())), float(z @ z)))
        floor = float(bins.share @ spread) * math.sqrt(2 / math.pi)
        width = 1.645 * math.sqrt(float(bins.share**2 @ spread**2) * (1 - 2 / math.pi))
        claimed, right = bins.mean_confidence, bins.mean_accuracy
        when = f"Over all rows, with a mean confidence of {100 * claimed:.1f}%"
        verdict = _verdict.verdict_on(when, rows=self.rows, claimed=claimed, right=right, level=level)
        return Scores(
            name=NAME,
            judgement=_verdict.judge(bins, {"bins": p_value}, level),
            verdict=verdict,
            mean_confidence=claimed,
            accuracy=Estimate(right, verdict.low, verdict.high),
            ece=Estimate(float(bins.share @ np.abs(bins.gap)), None, None),
            noise_floor=NoiseFloor(floor, max(0.0, floor - width), floor + width),
            log_loss=Estimate(seen.log_loss, None, None),
            brier_score=Estimate(seen.brier_score, None, None),
            tests={"bins": p_value},
            by_range=_verdict.in_ranges(self._ranges, level),
        )


def judge_parts(parts: Iterable[pl.DataFrame], target: str, **options: Any) -> Judge:
    """Evaluate the parts of a table; options are those of `find_layout` and of `Judge`."""
    own = {name: options.pop(name) for name in ("drop_unlabelled", "n_bins", "keep", "by") if name in options}
    judge: Judge | None = None
    for part in parts:
        if judge is None:
            judge = Judge(find_layout(part, target, **options), **own)
        judge.update(part)
    assert judge is not None, "a table has at least one part"
    return judge
