"""The search for the columns of a table that hold predictions, by their names and by what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from selfcal._support.checks import did_you_mean, listed, one_of
from selfcal.errors import ConfigError, DataError
from selfcal.reporting._names import counted
from selfcal.tabular.cells import read_booleans
from selfcal.tabular.schema import column_named
from selfcal.workflows._class_columns import class_columns, whole, without_affix
from selfcal.workflows._confidence import class_of_probability
from selfcal.workflows.layout import (
    Layout,
    classes_in,
    digits_shown,
    in_order,
    labels,
    numbers_or_null,
    percent_tolerance,
)

CHOICES = (
    *("predicted", "prediction", "pred", "y_pred", "y_hat", "yhat", "predicted_class", "predicted_label"),
    *("pred_class", "pred_label", "prediction_label", "class", "label"),
)
CONFIDENCES = ("confidence", "conf", "max_prob", "max_proba", "top1_prob", "prediction_score")
PROBABILITIES = ("score", "probability", "prob", "proba", "y_prob", "y_proba", "y_score", "p")
"""Names of the confidence in the predicted class, or of the probability of the positive class."""

CORRECT = ("correct", "is_correct", "right", "hit")
"""Names of a column that tells whether the prediction is right."""

SCALES = ("fraction", "percent")
OPPOSITES = {"1": "0", "0": "1", "true": "false", "false": "true", "True": "False", "False": "True"}


def find_layout(
    table: pl.DataFrame,
    target: str,
    *,
    prefix: str | None = None,
    columns: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    choice: str | None = None,
    confidence: str | None = None,
    positive: str | None = None,
    correct: bool = False,
    logits: bool = False,
    scale: str | None = None,
) -> Layout:
    """Find the predictions in the first rows of a table.

    Columns of probabilities are named after the classes, such as `cat`, `prob_cat`, `cat_prob` or `P(cat)`; for two
    classes, one column is enough. Without them, a column with the predicted class and one with the confidence will
    do, or a target that tells whether the prediction is right and a confidence.

    Args:
        table: The first rows.
        target: The column with the true classes.
        prefix: The prefix of the columns of probabilities.
        columns: The columns of probabilities, if their names do not show it.
        classes: The classes, in the order of `columns`.
        choice: The column with the predicted class.
        confidence: The column with the confidence.
        positive: The class whose probability the only column of probabilities holds.
        correct: The target tells whether the prediction is right.
        logits: The columns hold logits.
        scale: "fraction" or "percent". By default percentages are recognised where each row sums to 100, or by a
            percent sign.

    Returns:
        The layout.

    Example:
        >>> table = pl.DataFrame({"y": ["no", "yes"], "prob_no": [0.9, 0.2], "prob_yes": [0.1, 0.8]})
        >>> find_layout(table, "y").classes
        ('no', 'yes')
        >>> table = pl.DataFrame({"y_true": [0, 1], "y_pred": [0, 1], "y_prob": [0.1, 0.8]})
        >>> find_layout(table, "y_true").text
        "Using 'y_prob' as the probability of class '1': it is above one half where 'y_pred' is that class."
    """
    try:
        column_named(table, target)
    except DataError as error:
        raise DataError(
            f"{error} Predictions are compared with the true classes beside them; selfcal predict copies that column "
            "if its data has it."
        ) from None
    if scale is not None:
        one_of("--scale", scale, SCALES)
    if logits and scale == "percent":
        raise ConfigError(
            "--logits and --scale percent exclude each other. Pass the one that describes the columns."
        )
    if positive is not None and columns is not None and len(columns) != 1:
        raise ConfigError(f"--positive needs one column of probabilities; --columns names {len(columns)}.")
    search = _Search(table, target, classes, logits=logits, scale=scale)
    if correct:
        return search.correct(confidence)
    if positive is not None:
        return search.positive(whole(positive), columns[0] if columns else confidence, prefix)
    if columns is not None:
        return search.named(columns, prefix)
    if choice is None and confidence is None:
        found = class_columns(search.others, set(search.labels), prefix)
        if found:
            return search.of_classes(found)
    if prefix is None:
        return search.confidence(choice, confidence)
    raise search.nothing_found()


class _Search:
    """The first rows of a table, and what the user said about them."""

    def __init__(
        self,
        table: pl.DataFrame,
        target: str,
        classes: Sequence[str] | None,
        *,
        logits: bool,
        scale: str | None,
    ) -> None:
        self.table, self.target, self.classes, self.scale, self.logits = table, target, classes, scale, logits
        self.others = [name for name in table.columns if name != target]
        self.labels = list(map(whole, classes)) if classes else classes_in(table, target)

    def named(self, columns: Sequence[str], prefix: str | None) -> Layout:
        """The columns that the user named, in the order of the classes."""
        for name in columns:
            column_named(self.table, name)
        if len(set(columns)) < len(columns):
            raise ConfigError(f"--columns must name each column once; got {listed(columns)}.")
        if self.classes is not None and len(self.classes) != len(columns):
            raise ConfigError(
                f"--columns and --classes must name as many; got {counted(len(columns), 'column')} and "
                f"{counted(len(self.classes), 'class', 'classes')}."
            )
        if len(columns) == 1:
            raise ConfigError(
                f"--columns must name a column for each class; got only {columns[0]!r}. If it is the probability of "
                "one of two classes, name that class with --positive."
            )
        if self.classes is not None:
            classes = list(self.classes)
        elif prefix is not None:
            classes = [name.removeprefix(prefix) for name in columns]
        else:
            classes = without_affix(columns)
        return self._with_unit(Layout(self.target, tuple(classes), tuple(columns)))

    def of_classes(self, found: dict[str, str]) -> Layout:
        """Columns that are named after the classes, or that of one of two classes."""
        if len(found) == 1:
            ((positive, column),) = found.items()
            return self.positive(whole(positive), column, None)
        if self.classes is not None:
            columns = {whole(one): column for one, column in found.items()}
            found = {one: columns[whole(one)] for one in self.classes}
        return self._with_unit(Layout(self.target, tuple(found), tuple(found.values())))

    def positive(self, positive: str, column: str | None, prefix: str | None) -> Layout:
        """One column, with the probability of one of two classes."""
        rest = [label for label in self.labels if label != positive]
        if len(rest) > 1:
            hint = did_you_mean(positive, self.labels) if len(self.labels) == 2 else ""
            raise DataError(
                f"--positive must be one of two classes in column {self.target!r}; got {positive!r}, and the classes "
                f"are {listed(self.labels)}.{hint or ' Pass a column for each class: --columns.'}"
            )
        if not rest and positive not in OPPOSITES:
            raise DataError(
                f"Column {self.target!r} must hold two classes; the first rows are all {positive!r}. Name both "
                f"with --classes OTHER,{positive}."
            )
        other = rest[0] if rest else OPPOSITES[positive]
        if column is None:
            found = class_columns(self.others, {other, positive}, prefix)
            column = found.get(positive) or self._only(
                [name for name in (*PROBABILITIES, *CONFIDENCES) if name in self.others]
            )
        column = column_named(self.table, column)
        return self._with_unit(Layout(self.target, (other, positive), (column,)))

    def correct(self, confidence: str | None) -> Layout:
        """A target that tells whether the prediction is right, and a confidence."""
        sure = confidence or self._only(
            [name for name in (*CONFIDENCES, *PROBABILITIES) if name in self.others]
        )
        return self._with_unit(Layout(self.target, confidence=column_named(self.table, sure)))

    def confidence(self, choice: str | None, confidence: str | None) -> Layout:
        """A class and a confidence, or what looks like it."""
        names = (*CONFIDENCES, *PROBABILITIES)
        chosen = choice or next((name for name in CHOICES if name in self.others), None)
        sure = confidence or next((name for name in names if name in self.others), None)
        if sure is None or chosen is None:
            if sure is not None and self.target.lower() in CORRECT and self._truth_values():
                return self.correct(sure)
            raise self.nothing_found(sure)
        seen = set(self.labels) | set(classes_in(self.table, column_named(self.table, chosen)))
        if len(seen) == 1:
            seen |= {OPPOSITES[one] for one in seen if one in OPPOSITES}
        layout = self._with_unit(
            Layout(
                self.target,
                choice=chosen,
                confidence=column_named(self.table, sure),
                seen=tuple(in_order(seen)),
            )
        )
        self._check_spelling(layout)
        if confidence is None and sure in PROBABILITIES:
            return self._perhaps_positive(layout)
        return layout

    def nothing_found(self, alone: str | None = None) -> DataError:
        """The error that asks for the names of the columns."""
        got = f"got {listed(self.others, 20)}"
        told = next((name for name in self.others if name.lower() in CORRECT), None)
        if alone is not None and told is not None:
            remedy = f"If {told!r} tells whether the prediction is right, use --target {told} --correct."
        elif alone is not None and len(self.labels) <= 2:
            positive = self.labels[-1] if self.labels else "CLASS"
            remedy = (
                f"If {alone!r} is the probability of class {positive!r}, use --positive {positive}; if not, name the "
                "columns: --class-column and --confidence-column."
            )
        else:
            remedy = (
                "Name them: --columns A,B,C --classes X,Y,Z in the same order, or --class-column and "
                "--confidence-column."
            )
        return DataError(
            "Expected a column of probabilities for each class, named like the class or with a prefix before it "
            f"(--prob-prefix), or a column with the class and one with the confidence; {got}. {remedy}"
        )

    def _perhaps_positive(self, layout: Layout) -> Layout:
        labelled = self.table.filter(labels(self.table, self.target).is_not_null())
        values = numbers_or_null(labelled, layout.confidence)
        if values.null_count() or layout.unit == "logits":
            return layout
        p = values.to_numpy() / (100 if layout.unit == "percentages" else 1)
        chosen = labels(labelled, layout.choice)
        positive = class_of_probability(p, chosen, layout.seen) if not chosen.null_count() else None
        if positive is None:
            return layout
        (other,) = (one for one in layout.seen if one != positive)
        return Layout(
            self.target, (other, positive), (layout.confidence,), choice=layout.choice, unit=layout.unit
        )

    def _check_spelling(self, layout: Layout) -> None:
        chosen = classes_in(self.table, layout.choice)
        labels = classes_in(self.table, self.target)
        if len(chosen) >= 2 and labels and not set(chosen) & set(labels):
            raise DataError(
                f"Columns {self.target!r} and {layout.choice!r} must name the same classes; got {listed(labels, 5)} "
                f"and {listed(chosen, 5)}. Spell them alike, or name the right column with --class-column."
            )

    def _with_unit(self, layout: Layout) -> Layout:
        if self.logits:
            if not layout.columns:
                raise ConfigError(
                    "--logits needs a column of logits for each class (--columns), or one for the class that "
                    "--positive names."
                )
            return replace(layout, unit="logits")
        used = layout.columns or (layout.confidence,)
        if self.scale == "percent" or (self.scale is None and _in_percent(self.table, used)):
            return replace(layout, unit="percentages")
        if len(layout.columns) < 2:
            return layout
        values = pl.DataFrame([numbers_or_null(self.table, name) for name in used]).drop_nulls().to_numpy()
        return replace(layout, digits=digits_shown(values))

    def _only(self, candidates: Sequence[str]) -> str:
        if candidates:
            return candidates[0]
        if len(self.others) == 1:
            return self.others[0]
        raise DataError(
            f"Expected a column with the probability, named prob or confidence; got {listed(self.others, 20)}. "
            "Name it with --confidence-column."
        )

    def _truth_values(self) -> bool:
        values, unreadable = read_booleans(self.table[self.target])
        return values.null_count() < len(values) and not unreadable.any()


def _in_percent(table: pl.DataFrame, columns: Sequence[str]) -> bool:
    """Whether all cells have a percent sign, or all rows sum to 100."""
    cells = [table[name].drop_nulls() for name in columns]
    if all(of.dtype == pl.String and len(of) and of.str.ends_with("%").all() for of in cells):
        return True
    values = pl.DataFrame([numbers_or_null(table, name) for name in columns]).drop_nulls().to_numpy()
    if len(columns) < 2 or not len(values):
        return False
    inside = (values >= 0) & (values <= 100)
    return bool(inside.all() and (np.abs(values.sum(axis=1) - 100) <= percent_tolerance(values)).all())
