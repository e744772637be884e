"""Training a table model: the memory it needs, the fit, and notes for the user."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from selfcal._support.checks import Int
from selfcal.errors import DataError
from selfcal.estimators.classifier import SelfCalibratedClassifier
from selfcal.tabular.io.reading import memory_of
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.tabular.schema import Schema
from selfcal.tabular.split import Parts


@dataclass(frozen=True)
class TrainingRows:
    """A table with labels, ready to train on.

    Attributes:
        table: The labelled rows.
        codes: The class of each row.
        groups: The group of each row; rows of a group stay together in every split.
        parts: The rows for training, for validation and to hold out.
        classes: The labels, in the order of the codes.
    """

    table: pl.DataFrame
    codes: Int
    groups: Int
    parts: Parts
    classes: tuple[str, ...]

    @property
    def fitted(self) -> Int:
        """The rows that take part in the training in any way."""
        return np.union1d(self.parts.train, self.parts.validation)

    def all_fitted(self, validation: float, seed: int) -> TrainingRows:
        """The same rows with none of them held out; `validation` and `seed` as in `divide`."""
        return replace(self, parts=Parts.of(self.codes, self.groups, 0.0, validation, seed))


@dataclass(frozen=True)
class Fit:
    """A preprocessor and a classifier, and the rows to fit them on.

    Attributes:
        rows: The rows.
        preprocessor: Turns them into numbers; fitted on those that take part in the training.
        classifier: The classifier to train.
    """

    rows: TrainingRows
    preprocessor: Preprocessor
    classifier: SelfCalibratedClassifier

    @classmethod
    def prepared(
        cls,
        rows: TrainingRows,
        schema: Schema,
        preprocessor: Preprocessor,
        classifier: SelfCalibratedClassifier,
    ) -> Fit:
        """Fit the preprocessor, and raise if training would need more memory than allowed."""
        fit = cls(rows, preprocessor.fit(rows.table[rows.fitted], schema), classifier)
        fit._check_memory()
        return fit

    def train(self) -> tuple[str, ...]:
        """Fit the classifier.

        Returns:
            Its warnings.
        """
        rows = self.rows
        first, second = rows.parts.train, rows.parts.validation
        # codes are enough to train on; names of any length are needed only to predict
        further: dict[str, Any] = {"class_names": np.array(rows.classes, dtype=object)}
        if self.classifier.trains_several():
            first = rows.fitted
        else:
            further |= {"X_val": rows.table[second], "y_val": rows.codes[second]}
            further |= {"groups_val": rows.groups[second]}
        further |= {"groups": rows.groups[first], "preprocessor": self.preprocessor}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.classifier.fit(rows.table[first], rows.codes[first], **further)
        for warning in caught:
            warnings.warn(warning.message, stacklevel=3)
        return tuple(str(w.message) for w in caught if issubclass(w.category, UserWarning))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes on the settings of the fitted classifier."""
        return tuple(_notes(self.classifier))

    def _check_memory(self) -> None:
        """Raise before training if it would need more memory than allowed; measured, with a margin of a fifth."""
        parts, n_classes = self.rows.parts, len(self.rows.classes)
        predicted = len(parts.held_out) + len(parts.validation)
        cells = 3 * predicted * n_classes  # scores, probabilities, and a copy to work on
        if self.classifier.trains_several():
            fitted = self.rows.fitted
            predicted = len(parts.held_out) + len(fitted)
            copies = self.classifier.probability_copies()
            cells = 3 * len(parts.held_out) * n_classes + copies * len(fitted) * n_classes + 14 * n_classes**2
        # the numbers of the network's input, in double and in single precision
        numbers = 12 * self.rows.table.height * len(self.preprocessor.feature_names)
        budget, needed = self.preprocessor.budget, 2 * memory_of(self.rows.table) + numbers + 8 * cells
        if needed > budget:
            raise DataError(
                f"The table and the probabilities must fit into {budget / 2**30:.1f} GB of memory; with method "
                f"{self.classifier.method!r}, {n_classes:,} classes and {predicted:,} rows to predict need about "
                f"{needed / 2**30:.1f} GB. Use fewer rows, join rare classes, train a single network (method "
                "'temperature'), or raise the budget (--memory of selfcal fit)."
            )


def _notes(classifier: SelfCalibratedClassifier) -> list[str]:
    notes = []
    if classifier.n_networks is not None:
        notes.append(
            "One network was distilled from the ensemble, at an estimated cost of {cost:+.4f} in log loss (standard "
            "error {standard_error:.4f}): {log_loss:.4f} instead of {teacher_log_loss:.4f}.".format(
                **classifier.distilled_
            )
        )
        notes.append(classifier.distilled_["measured"])
    if classifier.noisy_labels:
        notes.append(
            "The model predicts true labels but is evaluated on the given labels: where some of them are wrong, it "
            "looks over-confident and less accurate than it is."
        )
    return notes
