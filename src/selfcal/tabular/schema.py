"""The schema of a table: the kind of each column, for display and storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from polars.selectors import by_name

from selfcal._support.checks import Float, did_you_mean, listed, shorten
from selfcal.errors import DataError
from selfcal.tabular.cells import MISSING, first_row, read_booleans, read_dates, read_levels, read_numbers
from selfcal.tabular.notation import Notation


@dataclass(frozen=True)
class Column:
    """A column: its kind, the number of missing cells and of distinct values, and a note for the user.

    The cells of a date are in the format `form`, the numbers of text in `notation`, if it is not the plain one.
    """

    name: str
    kind: str
    missing: int = 0
    distinct: int = 0
    note: str = ""
    form: str | None = None
    notation: Notation | None = None


@dataclass(frozen=True)
class Schema:
    """The columns of a table without the target, and the spellings of missing values.

    Attributes:
        columns: In the order of the table; those of kind "drop" are not used.
        missing: Spellings of a missing value.
        nonfinite: What to do with infinite numbers: "error" or "impute".
        target: The column with the labels, if any.
        decimal: The decimal separator that is accepted besides a point.
    """

    columns: tuple[Column, ...]
    missing: tuple[str, ...] = MISSING
    nonfinite: str = "error"
    target: str | None = None
    decimal: str = "."

    @property
    def used(self) -> tuple[Column, ...]:
        return tuple(c for c in self.columns if c.kind != "drop")

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user: columns that are dropped, or of a kind one might not expect."""
        return tuple(f"Column {c.name!r} {c.note}." for c in self.columns if c.note)

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as plain lists, strings and numbers, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Schema:
        columns = tuple(_column(c) for c in state["columns"])
        return cls(**{**state, "columns": columns, "missing": tuple(state["missing"])})

    def numbers(self, table: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, pl.Series]]:
        """Return the columns of kind "number" as `read_numbers` does, in their notations."""
        columns = [c for c in self.columns if c.kind == "number"]
        notations = {c.name: c.notation for c in columns if c.notation is not None}
        cells = table.select(by_name([c.name for c in columns]))
        return read_numbers(cells, self.missing, decimal=self.decimal, notations=notations)

    def __str__(self) -> str:
        rows = [("column", "kind", "missing", "distinct", "")]
        rows += [
            (_shown(shorten(c.name)), c.kind, f"{c.missing:,}", f"{c.distinct:,}", _shown(c.note))
            for c in self.columns
        ]
        width = [max(len(row[i]) for row in rows) for i in range(4)]
        return "\n".join(
            f"{r[0]:<{width[0]}}  {r[1]:<{width[1]}}  {r[2]:>{width[2]}}  {r[3]:>{width[3]}}  {r[4]}".rstrip()
            for r in rows
        )


def column_named(table: pl.DataFrame, name: str) -> str:
    """Return `name` if the table has such a column; otherwise an error with the nearest name."""
    if name in table.columns:
        return name
    hint = did_you_mean(name, table.columns)
    if table.width == 1:
        hint = " A single column may mean another separator; name it with --sep."
    raise DataError(f"The table must have a column {name!r}; it has {listed(table.columns, 20)}.{hint}")


def column_values(table: pl.DataFrame, schema: Schema) -> Float:
    """Return the used columns as numbers, such that equal values are equal numbers, however they are spelt.

    A category becomes its rank, a date its microseconds since 1970, and a missing value NaN.

    Example:
        >>> table = pl.DataFrame({"x": ["1.50", "15e-1", "?"], "colour": ["red", " red", "blue"]})
        >>> column_values(table, Schema((Column("x", "number"), Column("colour", "category"))))
        array([[1.5, 2. ],
               [1.5, 2. ],
               [nan, 1. ]])
    """
    kinds = [column.kind for column in schema.used]
    values = np.empty((table.height, len(kinds)))
    numbers = [i for i, kind in enumerate(kinds) if kind == "number"]
    if numbers:
        values[:, numbers] = schema.numbers(table)[0].to_numpy()
    for i, column in enumerate(schema.used):
        if column.kind != "number":
            values[:, i] = _column_values(table[column.name], column, schema.missing).to_numpy()
    values[np.isinf(values)] = np.nan
    return values


def _column(state: Mapping[str, Any]) -> Column:
    column = Column(**state)
    written = state.get("notation")
    return column if written is None else replace(column, notation=Notation(**written))


def _column_values(cells: pl.Series, column: Column, missing: tuple[str, ...]) -> pl.Series:
    if column.kind == "category":
        return read_levels(cells).rank("dense").cast(pl.Float64)
    if column.kind == "boolean":
        return read_booleans(cells, missing)[0]
    return read_dates(cells, column.form, missing)[0].to_physical().cast(pl.Float64)


def infinite_cells(masks: Mapping[str, pl.Series]) -> DataError:
    """Return the error that names the columns with infinite numbers."""
    shown = [f"{name!r} has {mask.sum():,} (first in row {first_row(mask)})" for name, mask in masks.items()]
    more = f" and {len(shown) - 10} more columns" if len(shown) > 10 else ""
    return DataError(
        f"Columns must hold finite numbers; infinite or too large: {', '.join(shown[:10])}{more}. Correct them, or "
        "pass --nonfinite impute to treat them as missing."
    )


def _shown(text: str) -> str:
    """Return the text with control characters escaped."""
    return text if text.isprintable() else repr(text)
