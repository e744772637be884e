"""Excel workbooks (.xlsx), row by row; a cell is read as Excel would write it to a CSV file, dates as in ISO."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from datetime import date, datetime
from itertools import islice
from typing import Any, BinaryIO

import polars as pl

from selfcal._support.checks import did_you_mean, listed, such
from selfcal.errors import ConfigError, DataError
from selfcal.tabular.io.records import names_of_columns
from selfcal.tabular.io.source import Opened

_BLOCK_ROWS = 8192
_PEEKED = 20


def excel_batches(opened: Opened, file: BinaryIO, sheet: str | None) -> Iterator[pl.DataFrame]:
    """Yield the table of a sheet in batches of strings and nulls; the first one has no rows.

    Empty rows, and columns without a name and without a cell in the header, are left out.
    """
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise ConfigError(
            f"Reading the Excel workbook {opened.name} needs openpyxl, which is not installed. Run: "
            "pip install 'selfcal[excel]', or save it as CSV."
        ) from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on styles and features that do not matter here
        try:
            book = load_workbook(file, read_only=True, data_only=True)
            chosen = _sheet(book, sheet, opened.name)
            opened.size, opened.taken = chosen.max_row, 0
            rows = enumerate(chosen.iter_rows(values_only=True), start=1)
            yield from _batches(rows, opened)
        except (DataError, ConfigError):
            raise
        except Exception as error:  # a damaged workbook may raise anything
            raise DataError(
                f"{opened.name} is a damaged Excel workbook ({type(error).__name__}: {error}). Save it again."
            ) from error


def _sheet(book: Any, name: str | None, file: str) -> Any:
    sheets = {one.title: one for one in book.worksheets}
    if name is not None:
        if name not in sheets:
            hint = did_you_mean(name, sheets)
            raise ConfigError(f"sheet must be one of {listed(list(sheets))}; got {name!r}.{hint}")
        return sheets[name]
    shown = {title: one for title, one in sheets.items() if one.sheet_state == "visible"} or sheets
    filled = {title: one for title, one in shown.items() if _has_cells(one)} if len(shown) > 1 else shown
    if len(filled) > 1:
        raise DataError(
            f"{file} has {len(filled)} sheets: {listed(list(filled), 20)}. Name the one to read with --sheet."
        )
    if not shown:
        raise DataError(f"{file} must have a sheet with a table; it has none.")
    return next(iter(filled.values()), next(iter(shown.values())))


def _has_cells(sheet: Any) -> bool:
    rows = islice(sheet.iter_rows(values_only=True), _PEEKED)
    return any(value is not None for row in rows for value in row)


def _batches(rows: Iterator[tuple[int, tuple[Any, ...]]], opened: Opened) -> Iterator[pl.DataFrame]:
    filled = ((number, row) for number, row in rows if any(value is not None for value in row))
    line, header = next(filled, (0, ()))
    if not header:
        raise DataError(f"{opened.name} must hold a table; the sheet is empty. Check the path and the sheet.")
    width = max(i for i, value in enumerate(header, start=1) if value is not None)
    names = names_of_columns([_text(value) or "" for value in header[:width]], opened.name, line)
    schema = dict.fromkeys(names, pl.String)
    yield pl.DataFrame(schema=schema)
    while block := list(islice(filled, _BLOCK_ROWS)):
        wide = [number for number, row in block if any(value is not None for value in row[width:])]
        if wide:
            raise DataError(
                f"{opened.name}: row {wide[0]:,} has cells beyond the {width} columns that row {line} names "
                f"({such(len(wide), 'row')}). Name their columns, or remove them."
            )
        opened.taken = block[-1][0]
        cells = [[_text(value) for value in row[:width]] + [None] * (width - len(row)) for _, row in block]
        yield pl.DataFrame(cells, schema=schema, orient="row")


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else str(value)
