"""The columns of a table that hold predictions, found by their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from polars.selectors import by_name
from scipy.special import expit, logit, softmax

from selfcal._support import checks
from selfcal._support.checks import Float, did_you_mean, listed, one_of, such
from selfcal.errors import ConfigError, DataError
from selfcal.reporting._names import counted
from selfcal.tabular.cells import as_text, read_booleans, read_numbers, refuse
from selfcal.tabular.schema import column_named
from selfcal.workflows._class_columns import WHOLE, class_columns, whole, without_affix
from selfcal.workflows._confidence import class_of_probability, confidence_error

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
_OPPOSITES = {"1": "0", "0": "1", "true": "false", "false": "true", "True": "False", "False": "True"}
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Layout:
    """The columns of a table that hold predictions.

    Attributes:
        target: The column with the true classes, or the one that tells whether the prediction is right.
        classes: The classes; empty if there are no probabilities of classes.
        columns: The column of each class, or for two classes only that of the second.
        choice: The column with the predicted class, if there are no probabilities or if it follows from them.
        confidence: The column with the confidence in it.
        unit: The numbers in the columns: "probabilities", "percentages" or "logits".
        seen: The classes in the first rows, if the predictions are classes with a confidence.
    """

    target: str
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    choice: str = ""
    confidence: str = ""
    unit: str = "probabilities"
    seen: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The columns that are used, for the user to check."""
        percent = ", in percent" if self.unit == "percentages" else ""
        if not self.columns:
            first = (
                f"the class in {self.choice!r}"
                if self.choice
                else f"{self.target!r}, whether the prediction is right,"
            )
            return f"Using {first} and the confidence in {self.confidence!r}{percent}."
        if len(self.columns) == 1:
            what = "logit" if self.unit == "logits" else "probability"
            where = f": it is above one half where {self.choice!r} is that class" if self.choice else ""
            return f"Using {self.columns[0]!r} as the {what} of class {self.classes[1]!r}{percent}{where}."
        named = all(one in name for one, name in zip(self.classes, self.columns, strict=True))
        classes = "" if named else f", of the classes {listed(self.classes, 5)}"
        return f"Using {counted(len(self.columns), 'column')} of {self.unit}: {listed(self.columns, 5)}{classes}."

    def probabilities(self, part: pl.DataFrame, start: int = 0) -> Float:
        """The probabilities of some rows, the first of which is row `start` + 1 of the table.

        A class and a confidence claim that the class is right: two classes, wrong and right.
        """
        with rows_counted_from(start):
            used = self.columns or (self.confidence,)
            values = np.column_stack([_numbers(part, name, self.unit) for name in used])
            if len(used) == 1:
                p = self._of_one_class(values[:, 0], used[0])
                self._compare_with_choice(part, p)
                return np.column_stack([1 - p, p])
            return self._of_all_classes(values)

    def cells(self, probs: Float) -> dict[str, Float]:
        """What the columns hold if these are the probabilities; the inverse of `probabilities`."""
        if len(self.columns) >= 2:
            values = np.log(np.maximum(probs, _SMALLEST)) if self.unit == "logits" else probs
        else:
            p = probs[:, 1:]
            values = logit(np.clip(p, _SMALLEST, 1 - _SMALLEST)) if self.unit == "logits" else p
        if self.unit == "percentages":
            values = 100 * values
        return dict(zip(self.columns or (self.confidence,), values.T, strict=True))

    def correct(self, part: pl.DataFrame) -> pl.Series:
        """Whether the prediction is right, in tables with a confidence."""
        if self.choice:
            return (_labels(part, self.choice) == _labels(part, self.target)).fill_null(value=False)
        values, unreadable = read_booleans(part[self.target])
        if unreadable.any():
            raise refuse(
                self.target,
                "0 and 1, or true and false",
                part[self.target],
                unreadable,
                remedy="Correct the cells, or pass the column with the true classes to --target.",
            )
        return values == 1

    def check_confidence(self, part: pl.DataFrame, confidence: Float, start: int = 0) -> None:
        """Refuse values that cannot be the confidence in the predicted class."""
        if not self.choice:
            return
        chosen, labels = _labels(part, self.choice), _labels(part, self.target)
        known = set(self.seen) | set(chosen.drop_nulls().unique()) | set(labels.unique())
        error = confidence_error(self.confidence, confidence, chosen, labels, in_order(known))
        if error is not None:
            with rows_counted_from(start):
                raise DataError(error)

    def _of_all_classes(self, values: Float) -> Float:
        if self.unit == "logits":
            self._check_finite(values)
            return np.asarray(softmax(values, axis=1))
        total = values.sum(axis=1, keepdims=True)
        if self.unit == "percentages":
            off = np.abs(total - 100) > _percent_tolerance(values)
            values = np.where(off, values / 100, values / np.where(off, 100, total))
            total = values.sum(axis=1, keepdims=True)
        try:
            return checks.probabilities(values)
        except DataError:
            wrong = ~(np.abs(total[:, 0] - 1) <= checks.ROW_SUM_TOLERANCE) | (values < 0).any(axis=1)
            row = int(wrong.argmax())
            raise DataError(
                f"Columns {listed(self.columns, 5)} must hold probabilities that sum to one in each row; row "
                f"{row + 1} is {np.array2string(values[row], threshold=6, precision=4)} with sum {total[row, 0]:.6g} "
                f"({such(int(wrong.sum()), 'row')}). For logits pass --logits, for percentages --scale percent."
            ) from None

    def _of_one_class(self, values: Float, name: str) -> Float:
        if self.unit == "logits":
            self._check_finite(values[:, None])
            return np.asarray(expit(values))
        p = values / 100 if self.unit == "percentages" else values
        tolerance = checks.ROW_SUM_TOLERANCE
        wrong = ~((p >= -tolerance) & (p <= 1 + tolerance))
        if wrong.any():
            row = int(wrong.argmax())
            interval = "[0, 100]" if self.unit == "percentages" else "[0, 1]"
            raise DataError(
                f"Column {name!r} must lie in {interval}; row {row + 1} is {values[row]:g} "
                f"({such(int(wrong.sum()), 'row')}). For percentages pass --scale percent; for the logit of a class "
                "pass --logits and --positive CLASS."
            )
        return np.clip(p, 0.0, 1.0)

    def _check_finite(self, values: Float) -> None:
        wrong = ~np.isfinite(values)
        if wrong.any():
            row, code = np.argwhere(wrong)[0]
            raise DataError(
                f"Column {self.columns[code]!r} must hold finite logits; row {row + 1} is {values[row, code]:g}. "
                "Correct the cells, or drop their rows."
            )

    def _compare_with_choice(self, part: pl.DataFrame, p: Float) -> None:
        if not self.columns or not self.choice or self.choice not in part.columns:
            return
        here = (_labels(part, self.choice) == self.classes[1]).fill_null(value=False).to_numpy()
        wrong = np.where(here, p < 0.5, p > 0.5)
        if wrong.any():
            row, column, positive = int(wrong.argmax()), self.columns[0], self.classes[1]
            raise DataError(
                f"Column {column!r} must be above one half exactly where {self.choice!r} is {positive!r}, as in the "
                f"first rows; row {row + 1} is {p[row]:.4g} ({such(int(wrong.sum()), 'row')}). If it is the "
                f"probability of that class, use --positive {positive}; if not, --confidence-column {column}."
            )


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
        self.labels = list(map(whole, classes)) if classes else _classes_in(table, target)

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
        if not rest and positive not in _OPPOSITES:
            raise DataError(
                f"Column {self.target!r} must hold two classes; the first rows are all {positive!r}. Name both "
                f"with --classes OTHER,{positive}."
            )
        other = rest[0] if rest else _OPPOSITES[positive]
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
        seen = set(self.labels) | set(_classes_in(self.table, column_named(self.table, chosen)))
        if len(seen) == 1:
            seen |= {_OPPOSITES[one] for one in seen if one in _OPPOSITES}
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
        labelled = self.table.filter(_labels(self.table, self.target).is_not_null())
        values = _numbers_or_null(labelled, layout.confidence)
        if values.null_count() or layout.unit == "logits":
            return layout
        p = values.to_numpy() / (100 if layout.unit == "percentages" else 1)
        chosen = _labels(labelled, layout.choice)
        positive = class_of_probability(p, chosen, layout.seen) if not chosen.null_count() else None
        if positive is None:
            return layout
        (other,) = (one for one in layout.seen if one != positive)
        return Layout(
            self.target, (other, positive), (layout.confidence,), choice=layout.choice, unit=layout.unit
        )

    def _check_spelling(self, layout: Layout) -> None:
        chosen = _classes_in(self.table, layout.choice)
        labels = _classes_in(self.table, self.target)
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
        return layout

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


@contextmanager
def rows_counted_from(start: int) -> Iterator[None]:
    """A context in which errors about rows add that these are counted from row `start` + 1 of the table."""
    try:
        yield
    except DataError as error:
        if start == 0:
            raise
        raise DataError(f"{error} Rows are counted from row {start + 1:,} of the table here.") from error


def in_order(labels: set[str]) -> list[str]:
    """Classes in the order of their numbers, or else of the alphabet.

    >>> in_order({"10", "9"}), in_order({"yes", "no"})
    (['9', '10'], ['no', 'yes'])
    """
    return sorted(
        labels, key=lambda label: (not label.isdecimal(), len(label) if label.isdecimal() else 0, label)
    )


def _classes_in(table: pl.DataFrame, name: str) -> list[str]:
    return in_order(set(_labels(table, name).drop_nulls().unique().to_list()))


def _labels(part: pl.DataFrame, name: str) -> pl.Series:
    """Labels as text; 1.0 and 1 are the same class."""
    return as_text(part[column_named(part, name)]).str.replace(WHOLE, "$1")


def _numbers(part: pl.DataFrame, name: str, unit: str) -> Float:
    values = _numbers_or_null(part, column_named(part, name))
    wrong = values.is_null()
    if wrong.any():
        kind = unit if unit != "percentages" else "probabilities in percent"
        raise refuse(name, kind, part[name], wrong, remedy="Correct the cells, or drop their rows.")
    return values.to_numpy()


def _numbers_or_null(part: pl.DataFrame, name: str) -> pl.Series:
    cells = part.select(by_name(name))
    if cells[name].dtype == pl.String:
        cells = cells.select(by_name(name).str.strip_suffix("%"))
    return read_numbers(cells)[0][name]


def _in_percent(table: pl.DataFrame, columns: Sequence[str]) -> bool:
    """Whether all cells have a percent sign, or all rows sum to 100."""
    cells = [table[name].drop_nulls() for name in columns]
    if all(of.dtype == pl.String and len(of) and of.str.ends_with("%").all() for of in cells):
        return True
    values = pl.DataFrame([_numbers_or_null(table, name) for name in columns]).drop_nulls().to_numpy()
    if len(columns) < 2 or not len(values):
        return False
    inside = (values >= 0) & (values <= 100)
    return bool(inside.all() and (np.abs(values.sum(axis=1) - 100) <= _percent_tolerance(values)).all())


def _percent_tolerance(values: Float) -> float:
    """What rounding to whole percentages may add up to."""
    return min(5.0, max(1.0, values.shape[1] / 2))
