from datetime import date, datetime

import polars as pl
import pytest

from selfcal.tabular.cells import (
    MISSING,
    as_text,
    read_booleans,
    read_dates,
    read_levels,
    read_numbers,
    refuse,
    text_cells,
)


@pytest.mark.parametrize("word", ["", "  ", *MISSING, *map(str.upper, MISSING), None])
def test_missing_in_numbers_booleans_and_dates_but_not_in_levels(word):
    cells = pl.Series("x", [word], dtype=pl.String)
    values, unreadable = read_numbers(cells.to_frame())
    assert values["x"].to_list() == [None]
    assert not unreadable
    for values, unreadable in (read_booleans(cells), read_dates(cells, "%Y-%m-%d")):
        assert values.to_list() == [None]
        assert not unreadable.any()
    assert read_levels(cells).to_list() == [(word or "").strip() or None]


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1.0), (" -2.5 ", -2.5), ("+1e3", 1000.0), (".5", 0.5), ("1e400", float("inf"))]
)
def test_numbers(text, value):
    values, unreadable = read_numbers(pl.DataFrame({"x": [text]}))
    assert values["x"].to_list() == [value]
    assert not unreadable


@pytest.mark.parametrize("text", ["1,5", "0x10", "1_000", "1 2", "$5", "12%", "١"])
def test_unreadable_numbers_are_masked(text):
    values, unreadable = read_numbers(pl.DataFrame({"x": ["1", text]}))
    assert values["x"].to_list() == [1.0, None]
    assert unreadable["x"].to_list() == [False, True]


def test_typed_columns_as_numbers():
    table = pl.DataFrame(
        {"i": [1, None], "f": [float("nan"), 2.5], "b": [True, None], "d": [date(2020, 1, 1), None]}
    )
    values, unreadable = read_numbers(table)
    assert values.rows() == [(1.0, None, 1.0, None), (None, 2.5, None, None)]
    assert {name: mask.to_list() for name, mask in unreadable.items()} == {"d": [True, False]}
    assert read_numbers(pl.DataFrame())[0].shape == (0, 0)


def test_more_columns_than_are_read_at_a_time():
    table = pl.DataFrame({f"c{i}": [str(i), "x"] for i in range(600)})
    values, unreadable = read_numbers(table)
    assert values.columns == table.columns == list(unreadable)
    assert values.row(0) == tuple(map(float, range(600)))


def test_booleans_however_they_are_spelt():
    values, unreadable = read_booleans(pl.Series(["True", "FALSE", "1", "0.0", "Yes", "n", "maybe"]))
    assert values.to_list() == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, None]
    assert unreadable.to_list() == [False] * 6 + [True]
    assert read_booleans(pl.Series([True, None]))[0].to_list() == [1.0, None]
    assert read_booleans(pl.Series([1, 0]))[0].to_list() == [1.0, 0.0]
    assert read_booleans(pl.Series([1.0, 0.0]))[0].to_list() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("text", "form", "when"),
    [
        ("2020-02-29", "%Y-%m-%d", datetime(2020, 2, 29)),
        ("3.4.2021", "%d.%m.%Y", datetime(2021, 4, 3)),
        ("2020-01-02 03:04:05.5", "%Y-%m-%d %H:%M:%S%.f", datetime(2020, 1, 2, 3, 4, 5, 500_000)),
        ("2020-01-02T03:04:05", "%Y-%m-%dT%H:%M:%S%.f", datetime(2020, 1, 2, 3, 4, 5)),
        ("2020-01-02T03:04:05+02:00", "%Y-%m-%dT%H:%M:%S%.f%#z", datetime(2020, 1, 2, 1, 4, 5)),
        ("2020-01-02T03:04:05Z", "%Y-%m-%dT%H:%M:%S%.f%#z", datetime(2020, 1, 2, 3, 4, 5)),
        ("2020-01-02", None, datetime(2020, 1, 2)),
        ("2020-01-02T03:04:05.25", None, datetime(2020, 1, 2, 3, 4, 5, 250_000)),
        ("2020-01-02T03:04:05+02:00", None, datetime(2020, 1, 2, 1, 4, 5)),
        ("2020-01-02", "%d.%m.%Y", datetime(2020, 1, 2)),
    ],
)
def test_dates(text, form, when):
    values, unreadable = read_dates(pl.Series([text, "soon"]), form)
    assert values.to_list() == [when, None]
    assert unreadable.to_list() == [False, True]


def test_typed_dates():
    values, unreadable = read_dates(pl.Series([date(2020, 1, 2), None]), "%d.%m.%Y")
    assert values.to_list() == [datetime(2020, 1, 2), None]
    assert not unreadable.any()


def test_typed_columns_are_spelt_as_in_a_csv_file():
    assert as_text(pl.Series([1.0, 2.5, float("nan"), None, -0.0, 1e300])).to_list() == [
        "1",
        "2.5",
        None,
        None,
        "0",
        "1e+300",
    ]
    assert as_text(pl.Series([True, False])).to_list() == ["true", "false"]
    assert as_text(pl.Series([2**62])).to_list() == [str(2**62)]


def test_further_spellings_of_missing():
    assert text_cells(pl.Series(["unknown", "NA", "1"]), ("unknown",)).to_list() == [None, "NA", "1"]


def test_the_error_names_row_cell_count_and_remedy():
    error = refuse("x", "numbers", pl.Series(["1", "two" * 40, "3"]), pl.Series([False, True, True]))
    for part in (
        "Column 'x' must hold numbers",
        "row 2 is 'twotwo",
        "...'",
        "2 such cells",
        "--kind x=category",
    ):
        assert part in str(error)
