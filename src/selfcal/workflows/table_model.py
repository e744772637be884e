"""A classifier for tables: from the cells of a file to classes, probabilities and abstentions."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import clone

from selfcal._support import checks
from selfcal._support.checks import Float, Int, shorten
from selfcal._support.progress import progress_bar
from selfcal.conformal import ConformalClassifier, NoveltyDetector
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.estimators.classifier import SelfCalibratedClassifier
from selfcal.reject.rules import Guarantee, risk_guarantee
from selfcal.reporting.content import Novelty, Provenance, Report
from selfcal.reporting.importance import permutation_importance
from selfcal.reporting.predictions import Predictions
from selfcal.storage import read_extra
from selfcal.storage.files import PREPROCESSOR
from selfcal.tabular.io.reading import MEMORY_BUDGET
from selfcal.tabular.leakage import leaks
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.tabular.schema import Schema, column_named
from selfcal.tabular.split import Division, Parts, divide
from selfcal.workflows._group_values import group_values
from selfcal.workflows.inspection import no_table
from selfcal.workflows.table_novelty import fit_novelty, novelty_on_held_out
from selfcal.workflows.table_report import report_on
from selfcal.workflows.table_storage import TableContents
from selfcal.workflows.table_training import Fit, TrainingRows

HELD_OUT = 0.2
"""The fraction of rows to evaluate a model on; it is neither trained nor calibrated on them."""

REFIT = "refit"
"""The subfolder of the checkpoints of a refit."""
MAX_STORED_PROBS = 64 * 2**20
"""Bytes of the probabilities of held-out rows that are stored for prediction sets at most."""
NOVELTY = 0.05
"""The fraction of ordinary rows that may be marked as novel."""


@dataclass(frozen=True)
class Answers:
    """Predictions for some rows: codes of the predicted classes, confidences, probabilities, and notes.

    `novel` is whether each row is unlike the training rows; None if the model has no novelty score.
    """

    chosen: Int
    confidence: Float
    probs: Float
    unseen: Mapping[str, int]
    extra: tuple[str, ...]
    novel: NDArray[np.bool_] | None = None


class TableModel:
    """A fitted preprocessor and classifier, and a report on held-out rows.

    Copies of a row stay on one side of each split, so that no copy leaks into the evaluation; see
    `copies.find_copies`.

    Args:
        method: The name of a recipe, one of `recipes.names()`.
        seed: Seeds the splits and the training.
        held_out: The fraction of rows to evaluate on.
        refit: After the evaluation, fit again on all rows, with the same settings and its own time budget. The report
            remains that on the first fit, and `threshold`, prediction sets and the novelty score are not available:
            no rows are left to guarantee them on.
        novelty: The fraction of ordinary rows that may be marked as unlike the training rows; None fits no novelty
            score.
        max_levels: Maximum number of categories of one column.
        memory: Maximum number of bytes of the table and its numbers; a table that needs more is refused.
        **settings: Arguments of `SelfCalibratedClassifier`.

    Attributes:
        schema: The columns and their kinds.
        classes: The labels, byte for byte as in the table.
        notes: Notes for the user on the data and the training.
        remarks: Those of them that follow from the settings; the others on the training were warnings, too.
        report: The report on the held-out rows. A model that was fitted as an estimator has none, and asking for it
            is an error; see `has_report`.
        held_out_confidence: The confidence in each held-out row; empty after a refit, which has seen them all, and
            without a report.
        held_out_wrong: Whether the prediction was wrong there.
        held_out_codes: The true class there, as a code.
        held_out_probs: The probability of each class there.

    Example:
        >>> from selfcal.datasets import Blobs
        >>> X, y = Blobs(std=1.7).sample(300, seed=0)
        >>> table = pl.DataFrame({"east": X[:, 0], "north": X[:, 1], "kind": y.astype(str)})
        >>> model = TableModel("standard", max_epochs=20).fit(table, "kind")
        >>> model.predict(table.head(2)).probs.shape
        (2, 5)
    """

    schema: Schema
    classes: tuple[str, ...]
    notes: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    held_out_confidence: Float
    held_out_wrong: NDArray[np.bool_]
    held_out_codes: Int
    held_out_probs: Float
    _report: Report | None

    def __init__(
        self,
        method: str = "auto",
        *,
        seed: int = 0,
        held_out: float = HELD_OUT,
        refit: bool = False,
        novelty: float | None = NOVELTY,
        max_levels: int = 100,
        memory: int = MEMORY_BUDGET,
        **settings: Any,
    ) -> None:
        self.seed = checks.positive_int("seed", seed, low=0)
        self.held_out = checks.in_range("held_out", held_out, 0.01, 0.9)
        self.refit = checks.boolean("refit", refit)
        self.novelty = None if novelty is None else checks.in_range("novelty", novelty, 1e-6, 0.5)
        self.preprocessor = Preprocessor(max_levels=max_levels, budget=memory)
        # the preprocessor has scaled the numbers already, by all rows that take part in the training
        settings = {"standardize": False, **settings}
        self.classifier = SelfCalibratedClassifier(method, random_state=seed, **settings)
        self.classifier.check_settings()

    def fit(
        self,
        table: pl.DataFrame,
        target: str,
        *,
        drop_unlabelled: bool = False,
        classes_anyway: bool = False,
        group: str | None = None,
        by: Sequence[str] = (),
        provenance: Provenance | None = None,
        before_training: Callable[[Self], None] | None = None,
        before_refit: Callable[[Self], None] | None = None,
        **reading: Any,
    ) -> Self:
        """Infer the kinds of the columns, train, and evaluate the model on held-out rows.

        Args:
            table: The table, as `read_table` returns it.
            target: The column with the labels.
            drop_unlabelled: Drop rows without a label, instead of an error.
            classes_anyway: Accept a target that looks continuous; each number is a class.
            group: A column whose equal values belong together, such as the patient of each visit: their rows are on
                one side of every split. It is not used as a feature. By default copies of a row are kept together.
            by: Columns that make groups of held-out rows, each of which is evaluated as well.
            provenance: Where the table comes from, for the report.
            before_training: Called once `schema`, `classes` and `notes` are set.
            before_refit: Called once the model is evaluated, if it is fitted again.
            **reading: Options of `infer_schema`: `kinds`, `missing`, `nonfinite` and `decimal`.
        """
        options = {"drop_unlabelled": drop_unlabelled, "classes_anyway": classes_anyway, "group": group}
        for name in by:
            column_named(table, name)
        if target in by:
            raise ConfigError(f"--by must name another column than the target {target!r}.")
        divided = self._divide(table, target, **options, **reading)
        labels = divided.labels
        rows = TrainingRows(divided.table, labels.codes, divided.groups, divided.parts, labels.classes)
        leaky = leaks(divided.values, self.schema, labels, divided.groups)
        self.notes, self.remarks = (*labels.notes, *self.schema.notes, *leaky, *divided.notes), ()
        del divided  # the values take as much room as the table
        if before_training is not None:
            before_training(self)
        first = Fit.prepared(rows, self.schema, self.preprocessor, self.classifier)
        second = self._prepared_refit(rows) if self.refit else None  # its errors come before training, too
        if second is None:
            self._train(first)
            judged, about = self._judge(rows), self._questions(rows, by)
        else:
            with progress_bar("Training", 2, self.classifier.verbose, ends_early=True) as advance:
                advance(0, "1 of 2")
                self._train(first)
                judged, about = self._judge(rows), self._questions(rows, by)
                if before_refit is not None:
                    before_refit(self)
                advance(1, "2 of 2")
                self._train(second, "Refit: ")
            self._replace_by(second)
        self._report = report_on(
            judged, first, second, seed=self.seed, notes=self.notes, provenance=provenance, **about
        )
        return self

    @property
    def has_report(self) -> bool:
        """Whether there is a report on held-out rows."""
        return self._report is not None

    @property
    def report(self) -> Report:
        if self._report is None:
            raise ConfigError(
                "A report needs held-out rows; this model was saved from Python, without any. Fit it with selfcal "
                "fit, or evaluate its predictions for labelled rows with selfcal evaluate."
            )
        return self._report

    def parts(self, table: pl.DataFrame, target: str, **options: Any) -> Parts:
        """The rows that `fit` would train, validate and evaluate on; numbers count labelled rows only."""
        return self._divide(table, target, **options).parts

    def predict(self, table: pl.DataFrame) -> Answers:
        """Predictions for the rows of a table, whatever the order of its columns."""
        encoded = self.preprocessor.encode(table)
        width = len(self.classes)
        if not len(encoded.values):
            none = np.empty(0)
            novel = self._novel(encoded.values)
            return Answers(none.astype(np.int64), none, np.empty((0, width)), {}, encoded.extra, novel)
        predicted = self.classifier.predict_encoded(encoded.values)
        return Answers(*predicted, encoded.unseen, encoded.extra, self._novel(encoded.values))

    @property
    def detector(self) -> NoveltyDetector | None:
        """What tells rows unlike the training rows, with its guarantee; None if there is no novelty score."""
        return self.classifier.novelty_

    def threshold(self, max_risk: float, level: float = 0.95) -> tuple[float, Guarantee]:
        """The threshold on the confidence that keeps the risk at most `max_risk`, and its guarantee."""
        self._check_held_out("A guaranteed maximum risk needs", "choose a threshold", "SelectiveClassifier")
        return risk_guarantee(self.held_out_confidence, self.held_out_wrong, max_risk=max_risk, level=level)

    def prediction_sets(self, coverage: float) -> ConformalClassifier:
        """The prediction sets of this coverage for probabilities of `predict`, chosen on the held-out rows."""
        self._check_held_out("Prediction sets need", "choose the sets", "ConformalClassifier")
        if not len(self.held_out_codes):
            raise ConfigError(
                "Prediction sets need the stored probabilities of held-out rows; this model has none, because it was "
                "stored by an earlier version or has too many classes. Fit it again with fewer classes, or choose "
                "the sets on labelled rows with ConformalClassifier."
            )
        return ConformalClassifier(coverage=coverage).fit(self.held_out_probs, self.held_out_codes)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model, its report and its card into a folder, which appears whole or not at all."""
        contents = TableContents(
            self.preprocessor,
            self.notes,
            self._report,
            self.held_out_confidence,
            self.held_out_wrong,
            self.held_out_codes,
            self.held_out_probs,
        )
        return self.classifier.save(path, metrics=contents.metrics(), extras=contents.files())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The model that `save` wrote into a folder."""
        classifier = SelfCalibratedClassifier.load(path)
        preprocessor, data = classifier.preprocessor_, read_extra(path, PREPROCESSOR)
        if preprocessor is None or data is None:
            raise no_table(path)
        try:
            contents = TableContents.read(data, preprocessor)
        except Exception as error:  # a damaged or hostile file may raise anything
            raise ModelFormatError(
                f"{path}/{PREPROCESSOR} holds nothing that can be used: {shorten(error, 300)}"
            ) from error
        self = cls()
        preprocessor.budget = self.preprocessor.budget
        self.classifier, self.preprocessor = classifier, preprocessor
        self.schema, self.classes = preprocessor.schema, tuple(map(str, classifier.classes_))
        self.notes, self._report = contents.notes, contents.report
        self.held_out_confidence, self.held_out_wrong = contents.confidence, contents.wrong
        self.held_out_codes, self.held_out_probs = contents.codes, contents.probs
        if len(self.held_out_codes) and self.held_out_probs.shape[1] != len(self.classes):
            raise ModelFormatError(
                f"{path}/{PREPROCESSOR} holds probabilities of other classes than the model's."
            )
        return self

    def _check_held_out(self, needs: str, choose: str, with_class: str) -> None:
        if len(self.held_out_confidence):
            return
        how = "refitted on all rows. Fit it without --refit"
        if not self.has_report:
            how = "saved from Python, without held-out rows. Fit it with selfcal fit"
        raise ConfigError(
            f"{needs} labelled rows that the model was not trained on; this model was {how}, or {choose} on new "
            f"labelled rows with {with_class}."
        )

    def _divide(self, table: pl.DataFrame, target: str, **options: Any) -> Division:
        validation = self.classifier.validation_fraction
        divided = divide(
            table, target, held_out=self.held_out, validation=validation, seed=self.seed, **options
        )
        self.schema, self.classes = divided.schema, divided.labels.classes
        return divided

    def _train(self, fit: Fit, prefix: str = "") -> None:
        """Train, and note what there is to say about it that is not yet known."""
        warned = fit.train()
        self.notes += tuple(prefix + note for note in warned if note not in self.notes)
        remarks = tuple(prefix + note for note in fit.remarks if note not in self.notes)
        self.notes, self.remarks = self.notes + remarks, self.remarks + remarks

    def _judge(self, rows: TrainingRows) -> Predictions:
        """Predict the held-out rows."""
        held_out = rows.parts.held_out
        answers = self.predict(rows.table[held_out])
        judged = Predictions(rows.codes[held_out], answers.chosen, answers.confidence, answers.probs)
        self.held_out_confidence, self.held_out_wrong = judged.confidence, ~judged.correct
        kept = slice(None if judged.probs.nbytes <= MAX_STORED_PROBS else 0)
        self.held_out_codes, self.held_out_probs = judged.y[kept], judged.probs[kept]
        return judged

    def _novel(self, values: Float) -> NDArray[np.bool_] | None:
        return None if self.detector is None else self.classifier.is_novel_encoded(values)

    def _learn_novelty(self, rows: TrainingRows) -> Novelty | None:
        """Fit the novelty score, note if there is none, and measure it."""
        if self.novelty is None:
            return None
        problem = fit_novelty(self.classifier, rows, self.novelty, seed=self.seed)
        if problem is not None:
            self.notes, self.remarks = (*self.notes, problem), (*self.remarks, problem)
            return None
        return novelty_on_held_out(self.classifier, rows, seed=self.seed)

    def _questions(self, rows: TrainingRows, by: Sequence[str]) -> dict[str, Any]:
        """The groups of the held-out rows, which columns matter for them, and which of them are strange."""
        held_out = rows.table[rows.parts.held_out]
        kinds = {column.name: column for column in self.schema.used}
        groups = {name: group_values(held_out[name], kinds.get(name)) for name in by}
        importance = permutation_importance(
            lambda values: self.classifier.predict_encoded(values).probs,
            self.preprocessor.transform(held_out),
            rows.codes[rows.parts.held_out],
            columns=self.preprocessor.columns,
            seed=self.seed,
        )
        return {"groups": groups, "importance": importance, "novelty": self._learn_novelty(rows)}

    def _prepared_refit(self, rows: TrainingRows) -> Fit:
        """The fit on all rows: a preprocessor and a classifier of its own, with the same settings."""
        whole = rows.all_fitted(self.classifier.validation_fraction, self.seed)
        preprocessor = Preprocessor(max_levels=self.preprocessor.max_levels, budget=self.preprocessor.budget)
        classifier = clone(self.classifier)
        if classifier.checkpoint_dir is not None:
            classifier.checkpoint_dir = Path(classifier.checkpoint_dir) / REFIT
        return Fit.prepared(whole, self.schema, preprocessor, classifier)

    def _replace_by(self, second: Fit) -> None:
        """Take over a model that was fitted on all rows: none of them is held out from it."""
        second.classifier.checkpoint_dir = self.classifier.checkpoint_dir  # in case of another `fit`
        self.preprocessor, self.classifier = second.preprocessor, second.classifier
        self.held_out_confidence, self.held_out_wrong = self.held_out_confidence[:0], self.held_out_wrong[:0]
        self.held_out_codes, self.held_out_probs = self.held_out_codes[:0], self.held_out_probs[:0]
