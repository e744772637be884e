"""The values of a column that makes groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from selfcal.errors import DataError
from selfcal.tabular.cells import as_text, read_dates, text_cells
from selfcal.tabular.dates import date_format
from selfcal.tabular.notation import Notation, understand
from selfcal.tabular.schema import Column


def group_values(cells: pl.Series, column: Column | None = None) -> NDArray[Any]:
    """Numbers or dates if all cells are, as people write them; otherwise text, with None where missing.

    Args:
        cells: The cells.
        column: What is known about the column, if a model has one of this name.

    >>> group_values(pl.Series(["$1,000", "$2.50", ""])), group_values(pl.Series(["a", "NA", "3"]))
    (array([1000. ,    2.5,     nan]), array(['a', None, '3'], dtype=object))
    >>> group_values(pl.Series(["31.12.2024", "NA"]))
    array(['2024-12-31T00:00:00.000000',                        'NaT'],
          dtype='datetime64[us]')
    """
    text = text_cells(as_text(cells))
    if (column is None or column.kind in ("number", "drop")) and len(text) > text.null_count():
        notation = None if column is None else column.notation
        for how in (Notation(), notation or understand(text).notation):
            numbers = None if how is None else how.read(text)
            if numbers is not None and numbers.null_count() == text.null_count():
                return numbers.fill_null(np.nan).to_numpy()
    dates = _dates(text, column)
    return np.array(text.to_list(), dtype=object) if dates is None else dates


def _dates(text: pl.Series, column: Column | None) -> NDArray[np.datetime64] | None:
    if column is not None and column.kind != "date":
        return None
    try:
        form = date_format(text.name, text, ()) if column is None else column.form
    except DataError:  # dates of several formats, or a day and month in doubt
        return None
    values, unreadable = read_dates(text, form)
    return None if unreadable.any() or values.null_count() == len(text) else values.to_numpy()
