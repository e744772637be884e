import polars as pl
import pytest

from selfcal.errors import ConfigError, DataError
from selfcal.tabular.inference import infer_schema


def kind(cells, **options):
    """The kind of one column, beside one that keeps the table from being empty."""
    table = pl.DataFrame(
        {"x": cells, "other": pl.Series(["a", "b"] * len(cells))[: len(cells)]}, strict=False
    )
    return infer_schema(table, **options).columns[0]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "2.5", "NA", ""], "number"),
        (["1", "2", "3", "4"], "number"),
        (["0", "1", "0", "1"], "number"),
        (["0.5", "0", "00"], "category"),
        (["02134", "10115", "02134"], "category"),
        (["red", "blue", "red"], "category"),
        (["1", "2", "A", "B"], "category"),
        (["True", "false", None], "boolean"),
        (["yes", "no"], "boolean"),
        (["yes", "no", "maybe"], "category"),
        (["2020-01-31", "2021-02-28", "NA"], "date"),
        (["31.01.2020", "28.02.2021"], "date"),
        (["2020-01-31T10:00:00Z", "2021-02-28T11:30:00.5Z"], "date"),
        (["1.2.3", "2.0.1"], "category"),
        (["5", "5", "5"], "drop"),
        (["a", "a", "a"], "drop"),
        (["5", "5", None], "number"),
        (["NA", "", None], "drop"),
        ([1, 2, 2], "number"),
        ([1.5, None, 2.5], "number"),
        ([True, False, None], "boolean"),
    ],
    ids=str,
)
def test_kinds(cells, expected):
    assert kind(cells).kind == expected


def test_typed_dates():
    cells = pl.Series(["2020-01-01", "2020-01-02"]).str.to_date()
    assert kind(cells).kind == "date"
    assert kind(cells.cast(pl.Datetime("us"))).kind == "date"


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([str(i) for i in range(100, 150)], "it numbers the rows"),
        ([str(i) for i in range(50, 0, -1)], "it numbers the rows"),
        ([f"user-{i}" for i in range(50)], "nearly all values are distinct"),
        ([f"0{i}" for i in range(50)], "codes that look like an identifier"),
        ([str(2**70 + i) for i in range(50)], "integers beyond 64 bits"),
    ],
    ids=["rising", "falling", "text", "codes", "long"],
)
def test_identifiers_are_dropped_unless_the_table_is_small(cells, why):
    assert kind(cells).kind == "drop"
    assert why in kind(cells).note
    assert kind(cells[:10]).kind in ("number", "category")
    assert kind(cells, kinds={"x": "category"}).kind == "category"


def test_distinct_measurements_are_not_an_identifier():
    assert kind([str(i * 1.5) for i in range(50)]).kind == "number"
    assert kind([str(i * 3) for i in range(50)]).kind == "number"


@pytest.mark.parametrize(
    ("kind_given", "cells", "form"),
    [
        ("category", ["1", "2", "1"], None),
        ("number", ["5", "5", "5"], None),
        ("boolean", ["1", "0", "1"], None),
        ("date", ["2020-01-31", "2020-01-31"], "%Y-%m-%d"),
        ("date:%Y%m%d", ["20200131", "20200201"], "%Y%m%d"),
        ("date:%d/%m/%Y", ["01/02/2020", "03/04/2020"], "%d/%m/%Y"),
        ("drop", ["a", "b", "a"], None),
    ],
)
def test_kinds_can_be_declared(kind_given, cells, form):
    column = kind(cells, kinds={"x": kind_given})
    assert column.kind == kind_given.partition(":")[0]
    assert column.form == form
    assert column.note == ""


@pytest.mark.parametrize(
    ("kind_given", "message"),
    [
        ("number", "must hold numbers, as declared; row 2 is 'b'"),
        ("boolean", "must hold true or false, as declared; row 2 is 'b'"),
        ("date:%Y", "must hold dates, as declared; row 1 is '1'"),
    ],
)
def test_wrong_declarations(kind_given, message):
    with pytest.raises(DataError, match=message):
        kind(["1", "b", "1"], kinds={"x": kind_given})


@pytest.mark.parametrize(
    ("kinds", "error", "message"),
    [
        ({"x": "numbr"}, ConfigError, "Did you mean 'number'"),
        ({"y": "number"}, DataError, "must have a column 'y'"),
        ({"x": "number:%d"}, ConfigError, "format for a date only"),
        ({"x": "date:"}, ConfigError, "format for a date only"),
    ],
)
def test_declarations_are_checked(kinds, error, message):
    with pytest.raises(error, match=message):
        kind(["1", "2"], kinds=kinds)


def test_a_date_with_two_readings_is_not_guessed():
    with pytest.raises(DataError, match=r"fit 2. Pass --kind x=date:%d/%m/%Y or --kind x=date:%m/%d/%Y"):
        kind(["01/02/2020", "03/04/2020"])
    assert kind(["01/02/2020", "13/04/2020"]).form == "%d/%m/%Y"
    assert kind(["01/02/2020", "04/13/2020"]).form == "%m/%d/%Y"


def test_one_cell_that_is_not_a_date():
    with pytest.raises(DataError, match="must hold dates, as most of its cells do; row 31 is 'soon'"):
        kind(["2020-01-31"] * 30 + ["soon"])


def test_further_spellings_of_missing():
    cells = ["1", "2"] * 20 + ["unknown"]
    with pytest.raises(DataError, match=r"row 41 is 'unknown'.*--missing 'unknown'"):
        kind(cells)
    column = kind(cells, missing=["unknown"])
    assert (column.kind, column.missing) == ("number", 1)


def test_no_feature_column():
    with pytest.raises(DataError, match="must have a feature column"):
        infer_schema(pl.DataFrame({"x": ["1", "1"], "y": ["a", "b"]}), target="y")


def test_the_target_is_stored_but_not_a_feature():
    schema = infer_schema(pl.DataFrame({"x": ["1", "2"], "y": ["a", "b"]}), target="y")
    assert [c.name for c in schema.columns] == ["x"]
    assert schema.target == "y"


def test_decimal_commas_are_not_taken_for_categories():
    cells = ["4,5", "3", "NA", "-0,25"]
    assert kind(cells).note == "is read as numbers with a decimal comma: '-0,25' is -0.25"
    assert kind(cells, kinds={"x": "category"}).kind == "category"
    for column in (kind(cells), kind(cells, decimal=",")):
        assert (column.kind, column.missing, column.distinct) == ("number", 1, 3)
    assert kind(["1,234,567", "2,000,000"], decimal=",").kind == "category"
