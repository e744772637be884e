"""A classifier for tables: from the cells of a file to classes, probabilities, and answers withheld."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from selfcal._support import checks
from selfcal._support.checks import Float, Int, shorten
from selfcal.errors import DataError, ModelFormatError
from selfcal.estimators.classifier import SelfCalibratedClassifier
from selfcal.reject import rules
from selfcal.reject.rules import Guarantee, MaxRisk
from selfcal.reporting.card import model_card
from selfcal.reporting.page import render
from selfcal.reporting.predictions import Predictions
from selfcal.reporting.summarise import summarise
from selfcal.storage import read_extra, skops_archive
from selfcal.tabular.io.reading import MEMORY_BUDGET, memory_of
from selfcal.tabular.leakage import leaks
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.tabular.schema import Schema
from selfcal.tabular.split import Division, Parts, divide

HELD_OUT = 0.2
"""The share of rows on which a model is judged, and which no part of it has seen."""

_PREPROCESSOR, _REPORT, _CARD = "preprocessor.skops", "report.html", "model_card.md"


@dataclass(frozen=True)
class Answers:
    """What a model says about some rows: codes of the chosen classes, how sure it is, all probabilities, notes."""

    chosen: Int
    confidence: Float
    probs: Float
    unseen: Mapping[str, int]
    extra: tuple[str, ...]


class TableModel:
    """A fitted preprocessor and classifier, and how both did on rows that were kept apart.

    Copies of a row stay on one side of each split, so that no row is judged by its copy; see `copies.find_copies`.

    Args:
        method: The name of a recipe, one of `recipes.names()`.
        seed: Seeds the splits and the training.
        held_out: The share of rows to judge on.
        max_levels: The most categories to keep of one column.
        memory: The most bytes the table and its numbers may take; a table that needs more is refused.
        **settings: Arguments of `SelfCalibratedClassifier`.

    Attributes:
        schema: The columns and their kinds.
        classes: The labels, byte for byte as in the table.
        notes: What a user should be told about the data and the training.
        numbers: What the report says, as plain Python.
        held_out_confidence: How sure the model was in each row that was kept apart.
        held_out_wrong: Whether it was wrong there.

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
    numbers: dict[str, Any]
    held_out_confidence: Float
    held_out_wrong: np.ndarray[Any, np.dtype[np.bool_]]

    def __init__(
        self,
        method: str = "auto",
        *,
        seed: int = 0,
        held_out: float = HELD_OUT,
        max_levels: int = 100,
        memory: int = MEMORY_BUDGET,
        **settings: Any,
    ) -> None:
        self.seed = checks.positive_int("seed", seed, low=0)
        self.held_out = checks.in_range("held_out", held_out, 0.01, 0.9)
        self.preprocessor = Preprocessor(max_levels=max_levels, budget=memory)
        # the preprocessor has scaled the numbers already; a rare category, scaled once more, would be a giant
        settings = {"standardize": False, **settings}
        self.classifier = SelfCalibratedClassifier(method, random_state=seed, **settings)

    def fit(
        self,
        table: pl.DataFrame,
        target: str,
        *,
        drop_unlabelled: bool = False,
        classes_anyway: bool = False,
        group: str | None = None,
        before_training: Callable[[Self], None] | None = None,
        **reading: Any,
    ) -> Self:
        """Find out what the columns hold, train, and judge the result on rows kept apart.

        Args:
            table: What `read_table` returned.
            target: The column with the labels.
            drop_unlabelled: Leave rows without a label out, instead of an error.
            classes_anyway: Accept a target that looks continuous; each number is a class.
            group: A column whose equal values belong together, such as the patient of each visit: their rows are on
                one side of every split. It is not used as a feature. By default copies of a row are kept together.
            before_training: Called once `schema`, `classes` and `notes` say what was found in the table.
            **reading: What `infer_schema` is to know: `kinds`, `missing`, `nonfinite` and `decimal`.
        """
        options = {"drop_unlabelled": drop_unlabelled, "classes_anyway": classes_anyway, "group": group}
        divided = self._divide(table, target, **options, **reading)
        table, labels, groups, parts = divided.table, divided.labels, divided.groups, divided.parts
        leaky = leaks(divided.values, self.schema, labels, groups)
        self.notes = (*labels.notes, *self.schema.notes, *leaky, *divided.notes)
        del divided  # the values take as much room as the table
        if before_training is not None:
            before_training(self)
        self.preprocessor.fit(table[np.union1d(parts.train, parts.validation)], self.schema)
        self._check_room(table, labels.codes, groups, parts)
        self.notes += tuple(self._train(table, labels.codes, groups, parts))
        self._judge(table[parts.held_out], labels.codes[parts.held_out], parts)
        return self

    def parts(self, table: pl.DataFrame, target: str, **options: Any) -> Parts:
        """The rows that `fit` would train on, choose by and judge by; numbers count labelled rows only."""
        return self._divide(table, target, **options).parts

    def predict(self, table: pl.DataFrame) -> Answers:
        """What the model says about the rows of a table, whatever the order of its columns."""
        encoded = self.preprocessor.encode(table)
        width = len(self.classes)
        if not len(encoded.values):
            none = np.empty(0)
            return Answers(none.astype(np.int64), none, np.empty((0, width)), {}, encoded.extra)
        predicted = self.classifier.predict_with_confidence(encoded.values)
        return Answers(*predicted, encoded.unseen, encoded.extra)

    def threshold(self, max_risk: float, level: float = 0.95) -> tuple[float, Guarantee]:
        """The confidence from which on at most a share of `max_risk` is wrong, and the promise in words."""
        checks.in_range("max_risk", max_risk, 1e-9, 1 - 1e-9)
        right = (~self.held_out_wrong).astype(np.int64)
        threshold, guarantee = MaxRisk(max_risk).choose(rules.Answers(_HeldOut(self), None), right, level)
        return float(threshold), guarantee  # type: ignore[arg-type] # one number unless asked per class

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model, its report and its card into a folder, which appears whole or not at all."""
        stored = {
            "preprocessor": self.preprocessor.state(),
            "table": json.dumps({"notes": self.notes, "numbers": self.numbers}),
            "confidence": self.held_out_confidence,
            "wrong": self.held_out_wrong,
        }
        extras = {
            _PREPROCESSOR: skops_archive.dump(stored),
            _REPORT: render(self.numbers).encode(),
            _CARD: model_card(self.numbers).encode(),
        }
        judged = self.numbers["methods"][0]
        scores = {
            name: judged[name] for name in ("accuracy", "ece", "noise_floor", "log_loss", "brier_score")
        }
        metrics = {"held_out_rows": self.numbers["rows"], "judgement": judged["judgement"], **scores}
        return self.classifier.save(path, metrics=metrics, extras=extras)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The model that `save` wrote into a folder."""
        classifier = SelfCalibratedClassifier.load(path)
        data = read_extra(path, _PREPROCESSOR)
        if data is None:
            raise ModelFormatError(
                f"{path} holds a classifier without {_PREPROCESSOR}: it was trained on arrays, not on a table. Use "
                "it from Python, with SelfCalibratedClassifier.load."
            )
        try:
            stored = skops_archive.load(data)
            table = json.loads(stored["table"])
            self = cls()
            self.classifier = classifier
            self.preprocessor = Preprocessor.from_state(stored["preprocessor"])
            self.schema, self.classes = self.preprocessor.schema, tuple(classifier.classes_)
            self.notes, self.numbers = tuple(table["notes"]), dict(table["numbers"])
            self.held_out_confidence = checks.unit_interval(stored["confidence"])
            self.held_out_wrong = np.asarray(stored["wrong"], dtype=bool)
            checks.same_length(confidence=self.held_out_confidence, wrong=self.held_out_wrong)
            if len(self.preprocessor.feature_names) != classifier.n_features_in_:
                raise ModelFormatError("the preprocessor is not that of the network")
        except Exception as error:  # whatever a damaged or hostile file makes go wrong
            raise ModelFormatError(
                f"{path}/{_PREPROCESSOR} holds nothing that can be used: {shorten(error, 300)}"
            ) from error
        return self

    def _divide(self, table: pl.DataFrame, target: str, **options: Any) -> Division:
        share = self.classifier.validation_fraction
        divided = divide(table, target, held_out=self.held_out, validation=share, seed=self.seed, **options)
        self.schema, self.classes = divided.schema, divided.labels.classes
        return divided

    def _check_room(self, table: pl.DataFrame, codes: Int, groups: Int, parts: Parts) -> None:
        """Refuse before training what would take more memory than there may be; measured, with a fifth to spare."""
        n_classes, kept = len(self.classes), len(parts.held_out) + len(parts.validation)
        cells = 3 * kept * n_classes  # scores, probabilities, and a copy to work on
        if self.classifier.trains_several:
            trained = np.union1d(parts.train, parts.validation)
            kept = len(parts.held_out) + len(trained)
            copies = self.classifier.probability_copies
            cells = (
                3 * len(parts.held_out) * n_classes + copies * len(trained) * n_classes + 14 * n_classes**2
            )
        # the numbers of the network's input, in double and in single precision
        numbers = 12 * table.height * len(self.preprocessor.feature_names)
        budget, needed = self.preprocessor.budget, 2 * memory_of(table) + numbers + 8 * cells
        if needed > budget:
            raise DataError(
                f"The table and the probabilities must fit into {budget / 2**30:.1f} GB of memory; with method "
                f"{self.classifier.method!r}, {n_classes:,} classes and {kept:,} rows to predict need about "
                f"{needed / 2**30:.1f} GB. Use fewer rows, join rare classes, train a single network (--method "
                "temperature), or raise the budget (--memory of selfcal fit)."
            )

    def _train(self, table: pl.DataFrame, codes: Int, groups: Int, parts: Parts) -> list[str]:
        """Fit the classifier; what it warned of."""
        first, second = parts.train, parts.validation
        # codes are enough to train on; names of any length are needed only to answer
        further: dict[str, Any] = {"class_names": np.array(self.classes, dtype=object)}
        if self.classifier.trains_several:
            first = np.union1d(first, second)
            further |= {"groups": groups[first]}
        else:
            further |= {"groups": groups[first], "groups_val": groups[second]}
            further |= {"X_val": self.preprocessor.transform(table[second]), "y_val": codes[second]}
        X = self.preprocessor.transform(table[first])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.classifier.fit(X, codes[first], **further)
        for warning in caught:
            warnings.warn(warning.message, stacklevel=3)
        warned = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
        return [*warned, *_training_notes(self.classifier)]

    def _judge(self, table: pl.DataFrame, codes: Int, parts: Parts) -> None:
        answers = self.predict(table)
        judged = Predictions(codes, answers.chosen, answers.confidence, answers.probs)
        self.held_out_confidence, self.held_out_wrong = judged.confidence, ~judged.correct
        method = self.classifier.recipe_.name
        rows = {
            "rows for training": f"{len(parts.train):,}",
            "rows for the outer level, calibration and early stopping": f"{len(parts.validation):,}",
        }
        if self.classifier.trains_several:
            rows = {"rows, some of them held out from each network": f"{self.classifier._n_rows:,}"}
        settings = {
            "target": self.schema.target,
            "method": method,
            "seed": self.seed,
            **rows,
            **tried(self.classifier),
            "steps": self.classifier.n_iter_,
            "columns used": f"{len(self.schema.used):,} of {len(self.schema.columns):,}",
            **{f"note {number}": note for number, note in enumerate(self.notes, start=1)},
        }
        audit = self.classifier.suspect_labels() if self.classifier.trains_several else None
        self.numbers = {
            "title": "How far can this model be trusted?",
            "subtitle": f"Judged on {len(codes):,} rows that no part of the model has seen.",
            **summarise(
                {method: judged},
                classes=np.array(self.classes, dtype=object),
                settings=settings,
                labels=audit,
            ),
        }
        if audit is not None:
            trained_on = np.union1d(parts.train, parts.validation)
            for suspect in self.numbers["labels"]["rows"]:
                suspect["row"] = int(trained_on[suspect["row"]])


def _training_notes(classifier: SelfCalibratedClassifier) -> list[str]:
    notes = []
    if classifier.n_networks is not None:
        notes.append(
            "One network was taught by those that were tried: on rows it has not seen, its log loss is "
            "{log_loss:.4f}, and theirs {teacher_log_loss:.4f}.".format(**classifier.distilled_)
        )
    if classifier.noisy_labels:
        notes.append(
            "The model foretells true labels, and is judged by labels as they were given: where some are wrong, it "
            "looks too sure and less accurate than it is."
        )
    return notes


def tried(classifier: SelfCalibratedClassifier) -> dict[str, str]:
    """What a race has tried, one line for each candidate."""
    tried = {}
    for record in getattr(classifier, "selection_", ()):
        loss = record["out_of_fold_log_loss"]
        tried[f"network {record['network']!r}"] = (
            "not trained: no time was left"
            if loss is None
            else f"counts {record['weight']:.0%}; log loss {loss:.4f} on rows held out, {record['networks']} of "
            f"{record['planned']} networks{', cut short by the time budget' if record['out_of_time'] else ''}"
        )
    return tried


class _HeldOut:
    """The rows kept apart, as the reject option sees a classifier: each answer claims to be right."""

    classes_ = np.array([0, 1])

    def __init__(self, model: TableModel) -> None:
        self._confidence = model.held_out_confidence

    def predict(self, X: object) -> Int:
        return np.ones(len(self._confidence), dtype=np.int64)

    def confidence(self, X: object) -> Float:
        return self._confidence
