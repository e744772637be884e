import datetime
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from selfcal.errors import DataError, SelfcalError
from selfcal.tabular.frames import as_frame, is_frame, is_mixed, mixed_frame

pandas = pytest.importorskip("pandas")
MIDNIGHT = datetime.datetime(2020, 1, 1)
UTC = datetime.UTC


@pytest.mark.parametrize(
    ("column", "cells", "dtype"),
    [
        (pandas.Series([2**60 + 1, None], dtype="Int64"), [2**60 + 1, None], pl.Int64),
        (pandas.Series([2**64 - 1, 1], dtype="uint64"), [2**64 - 1, 1], pl.UInt64),
        (pandas.Series([1.5, np.nan]), [1.5, None], pl.Float64),
        (pandas.Series([np.inf, 1]), [np.inf, 1], pl.Float64),
        (pandas.Series([True, None], dtype="boolean"), [True, None], pl.Boolean),
        (pandas.Series([True, None], dtype=object), [True, None], pl.Boolean),
        (pandas.Series(["a", pandas.NA], dtype="string"), ["a", None], pl.String),
        (pandas.Series([MIDNIGHT, pandas.NaT]), [MIDNIGHT, None], pl.Datetime("us")),
        (pandas.Series([datetime.date(2020, 1, 1), None]), [MIDNIGHT, None], pl.Datetime("us")),
        (
            pandas.Series([MIDNIGHT]).dt.tz_localize("Europe/Berlin"),
            [datetime.datetime(2019, 12, 31, 23)],
            pl.Datetime("us"),
        ),
        (pandas.Series([1, "a", None], dtype=object), ["1", "a", None], pl.String),
        (pandas.Series([1, True, 2.5], dtype=object), ["1", "true", "2.5"], pl.String),
        (pandas.Series([Decimal("1.5"), None], dtype=object), ["1.5", None], pl.String),
        (pandas.Series([None, None], dtype=object), [None, None], pl.Boolean),
        (pl.Series([Decimal("1.5"), None]), [1.5, None], pl.Float64),
        (pl.Series([MIDNIGHT.replace(tzinfo=UTC), None]), [MIDNIGHT, None], pl.Datetime("us")),
        (pl.Series([None, None]), [None, None], pl.String),
    ],
    ids=str,
)
def test_cells_keep_their_value_and_kind(column, cells, dtype):
    library = pl if isinstance(column, pl.Series) else pandas
    frame = as_frame(library.DataFrame({"a": column}))
    assert (frame.table["a"].to_list(), frame.table["a"].dtype) == (cells, dtype)
    assert not frame.kinds


@pytest.mark.parametrize(
    "column",
    [
        pandas.Series(["a", None], dtype="category"),
        pandas.Series([1, 2], dtype="category"),
        pl.Series(["a", None], dtype=pl.Categorical),
        pl.Series(["a", None], dtype=pl.Enum(["a", "b"])),
    ],
    ids=["pandas", "numbers", "polars", "enum"],
)
def test_a_categorical_column_holds_categories(column):
    library = pl if isinstance(column, pl.Series) else pandas
    assert as_frame(library.DataFrame({"a": column})).kinds == {"a": "category"}


@pytest.mark.parametrize(
    "frame",
    [
        pandas.DataFrame({"odd": pandas.to_timedelta([1, 2], unit="D")}),
        pandas.DataFrame({"odd": [[1], None]}),
        pandas.DataFrame({"odd": [b"a", b"b"]}),
        pl.DataFrame({"odd": [{"a": 1}]}),
        pl.DataFrame({"odd": [datetime.timedelta(1)]}),
    ],
    ids=["duration", "list", "bytes", "struct", "polars duration"],
)
def test_other_cells_are_an_error_that_names_the_column(frame):
    with pytest.raises(
        SelfcalError, match=r"numbers, text, booleans or dates; .*Turn it into simple columns"
    ) as error:
        as_frame(frame)
    assert "odd" in str(error.value)


def test_what_is_a_frame_and_what_is_mixed():
    assert is_frame(pl.DataFrame({"a": [1]}))
    assert not is_frame(np.ones((2, 2)))
    assert is_mixed([[1, "red"]])
    assert is_mixed(np.array([[MIDNIGHT, 1.0]], dtype=object))
    for numbers in (
        [[1, 2]],
        np.array([["1", "2"]]),
        np.array([[1, None]], dtype=object),
        ["red"],
        [[1], [2, 3]],
        None,
    ):
        assert not is_mixed(numbers)


def test_cells_of_an_array_are_those_of_the_frame():
    cells = {"a": [1, None], "b": ["x", None], "c": [True, None], "d": [MIDNIGHT, None]}
    rows = [list(row) for row in zip(*cells.values(), strict=True)]
    expected = as_frame(pandas.DataFrame(cells)).table
    assert mixed_frame(rows, list(cells)).table.equals(expected.cast({"a": pl.Float64}))


def test_names_must_differ():
    with pytest.raises(DataError, match="X_val must name each column once"):
        as_frame(pandas.DataFrame([[1, 2]], columns=["a", "a"]), "X_val")
