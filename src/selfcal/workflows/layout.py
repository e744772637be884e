"""The columns of a table that hold predictions, found by their names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import polars as pl
from polars.selectors import by_name
from scipy.special import expit, logit, softmax

from selfcal._support import checks
from selfcal._support.checks import Float, Int, listed, such
from selfcal.errors import DataError
from selfcal.reporting._names import counted
from selfcal.tabular.cells import as_text, first_row, read_booleans, read_numbers, refuse
from selfcal.tabular.schema import column_named
from selfcal.workflows._class_columns import WHOLE, whole
from selfcal.workflows._confidence import confidence_error

_SMALLEST = 1e-12
_MOST_DIGITS = 5


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
        digits: The digits that the probabilities were rounded to, if the first rows therefore do not all sum to one.
    """

    target: str
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    choice: str = ""
    confidence: str = ""
    unit: str = "probabilities"
    seen: tuple[str, ...] = ()
    digits: int | None = None

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
        rounded = "" if self.digits is None else f", rounded to {self.digits} digits and rescaled to sum to 1"
        used = f"{counted(len(self.columns), 'column')} of {self.unit}: {listed(self.columns, 5)}"
        return f"Using {used}{classes}{rounded}."

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

    @property
    def used(self) -> list[str]:
        """All columns that evaluation reads."""
        named = (self.target, *self.columns, self.choice, self.confidence)
        return list(dict.fromkeys(name for name in named if name))

    def codes(self, labels: pl.Series, start: int = 0) -> Int:
        """The number of the class of each label; the first is that of row `start` + 1 of the table."""
        codes = self.known_codes(labels)
        unknown = codes.is_null()
        if unknown.any():
            row = first_row(unknown)
            raise DataError(
                f"Column {self.target!r} must hold classes that have a column of probabilities; row "
                f"{start + row:,} is {labels[row - 1]!r}, and the columns are for "
                f"{', '.join(map(repr, self.classes[:10]))}. Correct the label, or name the columns and "
                "their classes: --columns A,B,C --classes X,Y,Z."
            )
        return codes.to_numpy().astype(np.int64)

    def known_codes(self, labels: pl.Series) -> pl.Series:
        """The number of the class of each label; null for labels of no class."""
        codes = labels.cast(pl.Enum(self.classes), strict=False).to_physical()
        if codes.null_count():
            # 1.0 in one place and 1 in the other are the same class
            plain = labels.str.replace(WHOLE, "$1").cast(
                pl.Enum([whole(n) for n in self.classes]), strict=False
            )
            codes = codes.fill_null(plain.to_physical())
        return codes

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
            return (labels(part, self.choice) == labels(part, self.target)).fill_null(value=False)
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
        chosen, true = labels(part, self.choice), labels(part, self.target)
        known = set(self.seen) | set(chosen.drop_nulls().unique()) | set(true.unique())
        error = confidence_error(self.confidence, confidence, chosen, true, in_order(known))
        if error is not None:
            with rows_counted_from(start):
                raise DataError(error)

    def _of_all_classes(self, values: Float) -> Float:
        if self.unit == "logits":
            self._check_finite(values)
            return np.asarray(softmax(values, axis=1))
        total = values.sum(axis=1, keepdims=True)
        if self.unit == "percentages":
            off = np.abs(total - 100) > percent_tolerance(values)
            values = np.where(off, values / 100, values / np.where(off, 100, total))
            total = values.sum(axis=1, keepdims=True)
        if self.digits is not None:
            near = np.abs(total - 1) <= rounding(values.shape[1], self.digits)
            values = np.where(near & (total > 0), values / np.where(total > 0, total, 1), values)
        try:
            return checks.probabilities(values)
        except DataError:
            wrong = ~(np.abs(total[:, 0] - 1) <= checks.ROW_SUM_TOLERANCE) | (values < 0).any(axis=1)
            row = int(wrong.argmax())
            raise DataError(
                f"Columns {listed(self.columns, 5)} must hold probabilities that sum to one in each row; row "
                f"{row + 1} is {np.array2string(values[row], threshold=6, precision=4)} with sum {total[row, 0]:.6g} "
                f"({such(int(wrong.sum()), 'row')}). For logits pass --logits, for percentages --scale percent; "
                "otherwise name the columns of all classes (--columns) or write more digits."
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
        here = (labels(part, self.choice) == self.classes[1]).fill_null(value=False).to_numpy()
        wrong = np.where(here, p < 0.5, p > 0.5)
        if wrong.any():
            row, column, positive = int(wrong.argmax()), self.columns[0], self.classes[1]
            raise DataError(
                f"Column {column!r} must be above one half exactly where {self.choice!r} is {positive!r}, as in the "
                f"first rows; row {row + 1} is {p[row]:.4g} ({such(int(wrong.sum()), 'row')}). If it is the "
                f"probability of that class, use --positive {positive}; if not, --confidence-column {column}."
            )


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


def classes_in(table: pl.DataFrame, name: str) -> list[str]:
    """The classes in a column, in order."""
    return in_order(set(labels(table, name).drop_nulls().unique().to_list()))


def labels(part: pl.DataFrame, name: str) -> pl.Series:
    """Labels as text; 1.0 and 1 are the same class."""
    return as_text(part[column_named(part, name)]).str.replace(WHOLE, "$1")


def _numbers(part: pl.DataFrame, name: str, unit: str) -> Float:
    values = numbers_or_null(part, column_named(part, name))
    wrong = values.is_null()
    if wrong.any():
        kind = unit if unit != "percentages" else "probabilities in percent"
        raise refuse(name, kind, part[name], wrong, remedy="Correct the cells, or drop their rows.")
    return values.to_numpy()


def numbers_or_null(part: pl.DataFrame, name: str) -> pl.Series:
    """The numbers in a column, perhaps with percent signs; null for cells that are none."""
    cells = part.select(by_name(name))
    if cells[name].dtype == pl.String:
        cells = cells.select(by_name(name).str.strip_suffix("%"))
    return read_numbers(cells)[0][name]


def rounding(n_classes: int, digits: int) -> float:
    """What rounding of each probability to so many digits may change in the sum of a row."""
    return n_classes * 0.5 * 10.0**-digits + checks.ROW_SUM_TOLERANCE


def digits_shown(values: Float) -> int | None:
    """The digits that all probabilities are rounded to, if these explain that some rows do not sum to one.

    >>> digits_shown(np.array([[0.33, 0.33, 0.33], [0.5, 0.25, 0.25]]))
    2
    >>> digits_shown(np.array([[0.33, 0.33, 0.3], [0.5, 0.25, 0.25]])) is None
    True
    """
    off = np.abs(values.sum(axis=1) - 1)
    if not (off > checks.ROW_SUM_TOLERANCE).any():
        return None
    fitting = (
        d for d in range(2, _MOST_DIGITS + 1) if np.allclose(values, values.round(d), rtol=0, atol=1e-9)
    )
    digits = next(fitting, None)
    return digits if digits is not None and (off <= rounding(values.shape[1], digits)).all() else None


def percent_tolerance(values: Float) -> float:
    """What rounding to whole percentages may add up to."""
    return min(5.0, max(1.0, values.shape[1] / 2))
