"""The column with the labels: exact strings, never guessed at, and what may be wrong with them."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from selfcal._checks import Int
from selfcal.cells import as_text, first_row
from selfcal.columns import Schema, column_named
from selfcal.errors import DataError

COPY = 0.999
"""A column that tells the class in this share of the rows is reported as a copy of the target."""

MANY = 30
"""With more classes than this, all of them whole numbers, the target may be a quantity."""

_WHOLE_NUMBER = re.compile(r"[+-]?\d+")
_WHOLE = re.compile(r"([+-]?\d+)\.0*")


@dataclass(frozen=True)
class Target:
    """Labels as codes, with their exact spelling.

    Attributes:
        name: The column.
        classes: The distinct labels, byte for byte as in the table; whole numbers in numeric order, text sorted.
        codes: The place in `classes` of each labelled row.
        rows: Which rows of the table have a label.
        notes: What a user should be told.
    """

    name: str
    classes: tuple[str, ...]
    codes: Int
    rows: Int
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> NDArray[np.object_]:
        """The label of each labelled row; objects, since fixed-width text would be padded and cut."""
        return np.array(self.classes, dtype=object)[self.codes]


def read_target(table: pl.DataFrame, name: str, *, drop_unlabelled: bool = False) -> Target:
    """Return the labels in a column.

    Nothing but an empty cell (null) is a missing label: NA, None and a quoted empty cell are classes. Spellings
    of one whole number, such as 1 and 1.0, are one class.

    Args:
        table: What `read_table` returned.
        name: The column.
        drop_unlabelled: Leave rows without a label out, instead of an error.

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
    _refuse_measurements(name, cells)
    text = as_text(cells)
    notes = []
    unlabelled = text.is_null()
    if unlabelled.any():
        count = int(unlabelled.sum())
        if not drop_unlabelled or count == len(text):
            raise DataError(
                f"Column {name!r} must hold a label in every row; {count:,} of {len(text):,} have none, first row "
                f"{first_row(unlabelled)}. Label them, or leave them out with --drop-unlabelled."
            )
        notes.append(f"{count:,} of {len(text):,} rows have no label in column {name!r} and are left out.")
    rows = np.flatnonzero(~unlabelled.to_numpy())
    text = text.drop_nulls()
    respelt = _respelt(text.unique().to_list())
    if respelt:
        shown = ", ".join(f"{old!r} is taken as {new!r}" for old, new in sorted(respelt.items())[:10])
        notes.append(f"Column {name!r} spells one class in several ways; {shown}.")
        text = text.replace(respelt)
    classes = _ordered(text.unique().to_list())
    if len(classes) < 2:
        raise DataError(
            f"Column {name!r} must hold at least two classes; every labelled row is {classes[0]!r}. Check that "
            "the label column is the right one."
        )
    notes += _look_alikes(name, classes)
    if len(classes) > MANY and all(_WHOLE_NUMBER.fullmatch(label) for label in classes):
        notes.append(
            f"Column {name!r} holds {len(classes):,} whole numbers, and each is a class of its own. If they measure "
            "or count something, cut them into a few classes first."
        )
    codes = text.cast(pl.Enum(classes)).to_physical().to_numpy().astype(np.int64)
    return Target(name, tuple(classes), codes, rows, tuple(notes))


def leaks(table: pl.DataFrame, schema: Schema, target: Target) -> tuple[str, ...]:
    """Return a warning for each column that copies the target.

    A column copies the target if it has few distinct values and they tell the class in nearly every row.

    Example:
        >>> from selfcal.inference import infer_schema
        >>> table = pl.DataFrame({"x": ["1", "2", "1", "1"], "paid": ["n", "y", "n", "y"], "y": ["0", "1", "0", "1"]})
        >>> leaks(table, infer_schema(table, target="y"), read_target(table, "y"))
        ("Column 'paid' tells the target 'y' in 100 % of the rows. If it is known only after the outcome, leave it out
        with --kind paid=drop; the results would be too good to be true.",)
    """
    labels = pl.Series("", target.codes)
    warnings = []
    for column in schema.used:
        if 2 <= column.distinct + bool(column.missing) <= 2 * len(target.classes):
            pairs = pl.DataFrame({"cell": table[column.name][target.rows], "label": labels})
            counts = pairs.group_by("cell", "label").len()
            share = counts.group_by("cell").agg(pl.col("len").max())["len"].sum() / len(labels)
            if share >= COPY:
                warnings.append(
                    f"Column {column.name!r} tells the target {target.name!r} in {100 * share:.3g} % of the rows. If "
                    f"it is known only after the outcome, leave it out with --kind {column.name}=drop; the results "
                    "would be too good to be true."
                )
    return tuple(warnings)


def duplicate_groups(table: pl.DataFrame, schema: Schema) -> Int:
    """Return a number for each row, equal for rows that agree in every used column.

    A split that keeps the rows of one number together never judges a model on a row it was trained on. Rows are
    compared by a 64-bit hash; two that collide merely stay together.

    Example:
        >>> from selfcal.inference import infer_schema
        >>> table = pl.DataFrame({"x": ["1", "2", "1"], "colour": ["red", "red", "red"]})
        >>> duplicate_groups(table, infer_schema(table, kinds={"colour": "category"})).tolist()
        [0, 1, 0]
    """
    hashes = table.select(column.name for column in schema.used).hash_rows(seed=0).to_numpy()
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)  # numbered as they first appear, whatever the hashes are
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[group]


def _refuse_measurements(name: str, cells: pl.Series) -> None:
    """Refuse a target of measurements: many distinct numbers with digits after the point."""
    values = cells.cast(pl.Float64, strict=False) if cells.dtype == pl.String else cells
    if not values.dtype.is_float():
        return
    values = values.fill_nan(None).drop_nulls()
    distinct = values.n_unique()
    if (
        len(values) >= 0.9 * len(cells)
        and distinct > max(20, len(values) / 2)
        and (values != values.round()).any()
    ):
        row = first_row((cells.cast(pl.Float64, strict=False) % 1 != 0).fill_null(value=False))
        raise DataError(
            f"Column {name!r} must hold classes; it holds {distinct:,} distinct numbers such as {cells[row - 1]}, "
            f"in row {row}. Cut them into classes first."
        )


def _respelt(labels: Iterable[str]) -> dict[str, str]:
    """Return the spellings of whole numbers that also occur in another spelling, with the one to use."""
    spellings = defaultdict(list)
    for label in labels:
        whole = _WHOLE.fullmatch(label)
        spellings[whole[1] if whole else label].append(label)
    return {s: new for new, several in spellings.items() if len(several) > 1 for s in several if s != new}


def _ordered(labels: list[str]) -> list[str]:
    try:
        return sorted(labels, key=lambda label: (float(label), label))
    except ValueError:
        return sorted(labels)


def _look_alikes(name: str, classes: Iterable[str]) -> list[str]:
    looks = defaultdict(list)
    for label in classes:
        looks[unicodedata.normalize("NFC", label).strip()].append(label)
    return [
        f"Column {name!r} has classes that look alike but differ in their bytes: {', '.join(map(ascii, twins))}. "
        "They are kept apart; correct the spelling if they are one."
        for twins in looks.values()
        if len(twins) > 1
    ]
