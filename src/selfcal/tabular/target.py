"""The target column: labels as exact strings, and checks for common mistakes."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from selfcal._support.checks import DECIMALS, Int, shorten
from selfcal.errors import DataError
from selfcal.tabular.cells import as_text, first_row, parse_dates, read_numbers, text_cells
from selfcal.tabular.dates import DATE_FORMATS
from selfcal.tabular.notation import MIN_READABLE, understand
from selfcal.tabular.schema import column_named

MAX_INTEGER_CLASSES = 30
"""With more classes than this, all of them whole numbers, the target may be a quantity."""

CONTINUOUS_INTEGERS = 1000
"""With more distinct whole numbers or dates than this, or than half the rows, the target looks continuous."""

_SAMPLE = 100
_WHOLE_NUMBER = re.compile(r"[+-]?\d+")
_WHOLE = re.compile(r"([+-]?\d+)\.0*")


@dataclass(frozen=True)
class Target:
    """Labels as codes, with their exact spelling.

    Attributes:
        name: The column.
        classes: The distinct labels, byte for byte as in the table; finite numbers first, by value, then text,
            sorted.
        codes: The position in `classes` of the label of each labelled row.
        rows: Which rows of the table have a label.
        notes: Notes for the user.
    """

    name: str
    classes: tuple[str, ...]
    codes: Int
    rows: Int
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> NDArray[np.object_]:
        """The label of each labelled row, as objects: fixed-width text would be truncated."""
        return np.array(self.classes, dtype=object)[self.codes]


def read_target(
    table: pl.DataFrame,
    name: str,
    *,
    drop_unlabelled: bool = False,
    classes_anyway: bool = False,
    decimal: str | None = None,
) -> Target:
    """Return the labels in a column.

    Only an empty cell (null) is a missing label: NA, None and a quoted empty cell are classes. Spellings
    of one whole number, such as 1 and 1.0, are one class.

    Args:
        table: The table, as `read_table` returns it.
        name: The column.
        drop_unlabelled: Leave rows without a label out, instead of an error.
        classes_anyway: Accept a target that looks continuous; each number is a class.
        decimal: The decimal separator of numbers, if it is known.

    Returns:
        The target.

    Example:
        >>> target = read_target(pl.DataFrame({"y": ["no", "NA", "no", "1.0", "1"]}), "y")
        >>> target.classes, target.codes.tolist()
        (('1', 'NA', 'no'), [2, 1, 2, 0, 0])
        >>> target.notes
        ("Column 'y' spells one class in several ways; '1.0' is taken as '1'.",)
    """
    cells = table[column_named(table, name)]
    if not classes_anyway:
        _refuse_measurements(name, cells, decimal)
    text = as_text(cells)
    notes = []
    unlabelled = text.is_null()
    if unlabelled.any():
        count = int(unlabelled.sum())
        has, are = ("has", "is") if count == 1 else ("have", "are")
        if not drop_unlabelled or count == len(text):
            raise DataError(
                f"Column {name!r} must hold a label in every row; {count:,} of {len(text):,} {has} none, first "
                f"row {first_row(unlabelled)}. Add it, or leave out such rows with --drop-unlabelled."
            )
        notes.append(f"{count:,} of {len(text):,} rows {has} no label in column {name!r} and {are} left out.")
    rows = np.flatnonzero(~unlabelled.to_numpy())
    text = text.drop_nulls()
    respelt = _respelt(text.unique().to_list())
    if respelt:
        shown = ", ".join(f"{old!r} is taken as {new!r}" for old, new in sorted(respelt.items())[:10])
        notes.append(f"Column {name!r} spells one class in several ways; {shown}.")
        text = text.replace(respelt)
    classes = sorted(text.unique().to_list(), key=_place)
    if len(classes) < 2:
        raise DataError(
            f"Column {name!r} must hold at least two classes; every labelled row is {classes[0]!r}. Check that "
            "the label column is the right one."
        )
    notes += _look_alikes(name, classes)
    if len(classes) > MAX_INTEGER_CLASSES and all(_WHOLE_NUMBER.fullmatch(label) for label in classes):
        notes.append(
            f"Column {name!r} holds {len(classes):,} whole numbers, and each is a separate class. If they measure "
            "or count something, bin them into a few classes first."
        )
    codes = text.cast(pl.Enum(classes)).to_physical().to_numpy().astype(np.int64)
    return Target(name, tuple(classes), codes, rows, tuple(notes))


def _refuse_measurements(name: str, cells: pl.Series, decimal: str | None) -> None:
    """Refuse a target that looks continuous: nearly all numbers or dates, and very many distinct ones."""
    known = len(cells) - cells.null_count()
    kind, read = _quantity(cells, decimal)
    values = read.drop_nulls()
    if not known or len(values) < MIN_READABLE * known:
        return
    distinct = values.unique()
    fractions = (read != read.round()).fill_null(value=False)
    decimals = int((distinct != distinct.round()).sum()) if kind == "numbers" else 0
    often = len(values) / 2
    if decimals:
        continuous = decimals > DECIMALS or len(distinct) > max(20, often)
    else:
        continuous = len(distinct) > min(CONTINUOUS_INTEGERS, max(MAX_INTEGER_CLASSES, often))
    if continuous:
        row = first_row(fractions if decimals else read.is_not_null())
        raise DataError(
            f"Column {name!r} must hold classes; it holds {len(distinct):,} distinct {kind} such as "
            f"{shorten(cells[row - 1])}, in row {row}, and looks continuous. Bin them into classes first, such as "
            "low, medium and high, or pass --classes-anyway if each is a class."
        )


def _quantity(cells: pl.Series, decimal: str | None) -> tuple[str, pl.Series]:
    """Return the cells as numbers, and what these are; all null for text that is neither numbers nor dates."""
    if cells.dtype in (pl.Date, pl.Datetime):
        return "dates", cells.to_physical().cast(pl.Float64)
    if cells.dtype == pl.Boolean:
        return "numbers", cells.cast(pl.Float64)
    values = read_numbers(cells.to_frame("y"), decimal=decimal or ".")[0]["y"]
    if cells.dtype != pl.String or values.null_count() <= (1 - MIN_READABLE) * len(values):
        return "numbers", values
    text = text_cells(cells, ())
    notation = understand(text, decimal=decimal).notation
    if notation is not None:
        return "numbers", notation.read(text)
    sample = text.drop_nulls().head(_SAMPLE)
    form = next((f for f in DATE_FORMATS if parse_dates(sample, f).is_not_null().all()), None)
    if form is not None and len(sample):
        return "dates", parse_dates(text, form).to_physical().cast(pl.Float64)
    return "numbers", values


def _respelt(labels: Iterable[str]) -> dict[str, str]:
    """Map spellings of a whole number that occurs in several spellings to the one to use."""
    spellings = defaultdict(list)
    for label in labels:
        whole = _WHOLE.fullmatch(label)
        spellings[whole[1] if whole else label].append(label)
    return {s: new for new, several in spellings.items() if len(several) > 1 for s in several if s != new}


def _place(label: str) -> tuple[bool, float, str]:
    """Sort key of a class: finite numbers come first, by value; then text."""
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    return (False, value, label) if math.isfinite(value) else (True, 0.0, label)


def _look_alikes(name: str, classes: Iterable[str]) -> list[str]:
    looks = defaultdict(list)
    for label in classes:
        looks[unicodedata.normalize("NFC", label).strip()].append(label)
    return [
        f"Column {name!r} has classes that look alike but differ in their bytes: {', '.join(map(ascii, alike))}. "
        "They are treated as different classes; correct the spelling if they are one."
        for alike in looks.values()
        if len(alike) > 1
    ]
