"""The values of a column that makes groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from selfcal.tabular.cells import as_text, text_cells


def group_values(cells: pl.Series, *, as_category: bool = False) -> NDArray[Any]:
    """Numbers, with NaN where missing, if all cells are numbers; otherwise text, with None where missing.

    >>> group_values(pl.Series(["1", "2.5", ""])), group_values(pl.Series(["a", "NA", "3"]))
    (array([1. , 2.5, nan]), array(['a', None, '3'], dtype=object))
    """
    text = text_cells(as_text(cells))
    numbers = text.cast(pl.Float64, strict=False)
    if not as_category and numbers.null_count() == text.null_count() < len(text):
        return numbers.fill_null(np.nan).to_numpy()
    return np.array(text.to_list(), dtype=object)
