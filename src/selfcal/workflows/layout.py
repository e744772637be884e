"""The columns of a table that hold predictions, found by their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import polars as pl
from polars.selectors import by_name

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.errors import DataError
from selfcal.reporting._names import counted
from selfcal.tabular.cells import as_text, read_numbers, refuse
from selfcal.tabular.schema import column_named

PREFIXES = ("prob_", "proba_", "probability_", "p_", "P_", "prob.", "p.", "prob ", "")
"""Prefixes of columns of probabilities, before the name of the class; the first that matches is used."""

CHOICES = ("predicted", "prediction", "pred", "y_pred", "class", "label")
CONFIDENCES = ("confidence", "conf", "score", "probability", "prob", "y_prob")

WHOLE = r"^([+-]?\d+)\.0*$"
"""A whole number with a decimal point."""


@dataclass(frozen=True)
class Layout:
    """The columns of a table that hold predictions.

    Attributes:
        target: The column with the true classes.
        classes: The class of each column of probabilities; empty if there are none.
        columns: The columns of probabilities.
        choice: The column with the chosen class, if there are no probabilities.
        confidence: The column with the confidence in it.
    """

    target: str
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    choice: str = ""
    confidence: str = ""

    @property
    def text(self) -> str:
        """The columns that are used, for the user to check."""
        if not self.columns:
            return f"Using the class in {self.choice!r} and the confidence in {self.confidence!r}."
        some = ", ".join(map(repr, self.columns[:5])) + (", ..." if len(self.columns) > 5 else "")
        return f"Using {counted(len(self.columns), 'column')} of probabilities: {some}."

    def probabilities(self, part: pl.DataFrame, start: int = 0) -> Float:
        """The probabilities of some rows, the first of which is row `start` + 1 of the table.

        A class and a confidence claim that the class is right: two classes, wrong and right.
        """
        with rows_counted_from(start):
            if self.columns:
                return checks.probabilities(np.column_stack([_numbers(part, name) for name in self.columns]))
            c = checks.unit_interval(_numbers(part, self.confidence), f"column {self.confidence!r}")
            return np.column_stack([1 - c, c])


def find_layout(
    table: pl.DataFrame,
    target: str,
    *,
    prefix: str | None = None,
    columns: Sequence[str] | None = None,
    choice: str | None = None,
    confidence: str | None = None,
) -> Layout:
    """Find the predictions in the first rows of a table.

    Columns of probabilities are named like the classes, perhaps after a prefix such as `prob_`. Without them, a
    column with the chosen class and one with the confidence will do.

    Args:
        table: The first rows.
        target: The column with the true classes.
        prefix: The prefix of the columns of probabilities.
        columns: The columns of probabilities, if their names do not show it.
        choice: The column with the chosen class.
        confidence: The column with the confidence.

    Returns:
        The layout.

    Example:
        >>> table = pl.DataFrame({"y": ["no", "yes"], "prob_no": [0.9, 0.2], "prob_yes": [0.1, 0.8]})
        >>> find_layout(table, "y").classes
        ('no', 'yes')
    """
    try:
        column_named(table, target)
    except DataError as error:
        raise DataError(
            f"{error} Predictions are compared with the true classes beside them; selfcal predict copies that column "
            "if its data has it."
        ) from None
    others = [name for name in table.columns if name != target]
    if columns is not None:
        start = prefix if prefix is not None else _common_prefix(columns)
        return Layout(
            target,
            tuple(n.removeprefix(start) for n in columns),
            tuple(column_named(table, n) for n in columns),
        )
    if choice is None and confidence is None:
        labels = set(as_text(table[target]).drop_nulls().unique().to_list())
        for start in PREFIXES if prefix is None else (prefix,):
            found = [n for n in others if n.startswith(start) and (start != "" or n in labels)]
            named = {n.removeprefix(start) for n in found}
            if len(found) >= 2 and labels <= named | {whole(n) for n in named}:
                return Layout(target, tuple(n.removeprefix(start) for n in found), tuple(found))
    chosen = choice or next((n for n in CHOICES if n in others), None)
    sure = confidence or next((n for n in CONFIDENCES if n in others), None)
    if chosen is None or sure is None or prefix is not None:
        some = ", ".join(map(repr, others[:20])) + (", ..." if len(others) > 20 else "")
        raise DataError(
            "Expected a column of probabilities for each class, named like the class or with a prefix before it "
            f"(--prob-prefix), or a column with the class and one with the confidence; got {some}. Name them: "
            "--columns A,B,C in the order of the classes, or --class-column and --confidence-column."
        )
    return Layout(target, choice=column_named(table, chosen), confidence=column_named(table, sure))


@contextmanager
def rows_counted_from(start: int) -> Iterator[None]:
    """A context in which errors about rows add that these are counted from row `start` + 1 of the table."""
    try:
        yield
    except DataError as error:
        if start == 0:
            raise
        raise DataError(f"{error} Rows are counted from row {start + 1:,} of the table here.") from error


def whole(label: str) -> str:
    """A label without the decimals of a whole number.

    >>> whole("1.0"), whole("1.5"), whole("a.0")
    ('1', '1.5', 'a.0')
    """
    return str(pl.Series([label]).str.replace(WHOLE, "$1")[0])


def _numbers(part: pl.DataFrame, name: str) -> Float:
    values, unreadable = read_numbers(part.select(by_name(column_named(part, name))))
    wrong = unreadable.get(name, values[name].is_null())
    if wrong.any():
        raise refuse(
            name, "probabilities", part[name], wrong, remedy="Correct the cells, or drop their rows."
        )
    return values[name].to_numpy()


def _common_prefix(names: Sequence[str]) -> str:
    return next((p for p in PREFIXES if all(name.startswith(p) for name in names)), "")
