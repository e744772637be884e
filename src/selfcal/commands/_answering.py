"""Predictions for a table as columns, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from selfcal.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

    from selfcal.conformal import ConformalClassifier
    from selfcal.workflows.table_model import Answers, TableModel

NOVEL = ("mark", "abstain", "off")
"""What can be done with rows unlike the training data."""

NOTEWORTHY = 1e-3
"""The p-value of the number of novel rows below which there is a note."""


class Answering:
    """Predicts a table part by part, and collects the notes to print at the end."""

    def __init__(self, model: TableModel, keep: list[str], *, novel: str = "off") -> None:
        self.model, self.keep, self.novel = model, keep, novel
        self.threshold: float | None = None
        self.conformal: ConformalClassifier | None = None
        self.abstained = self.rows = self.in_sets = self.marked = 0
        self.unseen: Counter[str] = Counter()
        self.extra: tuple[str, ...] = ()

    def answers(self, parts: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        from selfcal.workflows.layout import rows_counted_from

        start = 0
        for part in parts:
            with rows_counted_from(start):
                said = self.model.predict(part)
            self.unseen.update(said.unseen)
            self.extra = said.extra
            yield self._columns(part, said)
            self.rows += part.height
            start += part.height

    @property
    def abstains(self) -> bool:
        """Whether there is a column `abstain`."""
        return self.threshold is not None or self.novel == "abstain"

    def found(self) -> dict[str, Any]:
        """What was counted, of what was asked for; with the marks expected among rows like the training rows."""
        counts: dict[str, Any] = {"abstained": self.abstained} if self.abstains else {}
        if self.novel != "off":
            detector = self.model.detector
            assert detector is not None, "only a model that can tell marks rows"
            expected = round(detector.false_alarms * self.rows, 6)
            counts |= {
                "novel": self.marked,
                "novel_expected": expected,
                "novel_p_value": detector.p_value_of_many(self.marked, self.rows),
                "novel_guarantee": detector.guarantee_,
            }
        if self.conformal is not None:
            counts["mean_set_size"] = self.mean_set_size
        return counts

    @property
    def mean_set_size(self) -> float | None:
        """The mean number of classes in a set; None without sets."""
        return self.in_sets / self.rows if self.conformal is not None and self.rows else None

    def notes(self) -> tuple[str, ...]:
        from selfcal.tabular.preprocessing import Encoded

        ignored = tuple(name for name in self.extra if name not in self.keep)
        notes = Encoded(self.model.held_out_confidence[:0, None], dict(self.unseen), ignored).notes
        if self.found().get("novel_p_value", 1.0) < NOTEWORTHY:
            notes += (
                "More rows than chance would make are unlike the training data: look for other units, columns that "
                "were mixed up, or another population.",
            )
        return notes

    def _columns(self, part: pl.DataFrame, said: Answers) -> pl.DataFrame:
        import numpy as np
        import polars as pl

        from selfcal.tabular.schema import column_named
        from selfcal.workflows.set_column import SET_COLUMN, set_column

        names = pl.Series(self.model.classes, dtype=pl.String)
        columns = {
            "predicted": names.gather(said.chosen),
            "confidence": pl.Series(said.confidence),
            **{
                f"prob_{name}": pl.Series(said.probs[:, code]) for code, name in enumerate(self.model.classes)
            },
        }
        abstain = np.zeros(part.height, dtype=bool)
        if self.novel != "off":
            assert said.novel is not None, "only a model that can tell marks rows"
            self.marked += int(said.novel.sum())
            columns["novel"] = pl.Series(said.novel)
        if self.novel == "abstain":
            abstain |= columns["novel"].to_numpy()
        if self.threshold is not None:
            abstain |= said.confidence < self.threshold
        if self.abstains:
            self.abstained += int(abstain.sum())
            columns["abstain"] = pl.Series(abstain)
        if self.conformal is not None:
            sets = self.conformal.predict_set(said.probs) if part.height else np.empty((0, 0), dtype=bool)
            self.in_sets += int(sets.sum())
            columns[SET_COLUMN] = set_column(sets, self.model.classes)
        kept = [column_named(part, name) for name in self.keep]
        target = self.model.schema.target
        if target in part.columns and target not in kept:
            kept.insert(0, target)
        clash = [name for name in kept if name in columns]
        if clash:
            raise ConfigError(
                f"Column {clash[0]!r} of the data has the name of a column of the predictions. Rename it in the data."
            )
        return pl.DataFrame([*(part[name] for name in kept), *(s.alias(n) for n, s in columns.items())])
