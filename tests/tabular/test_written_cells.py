"""Cells as people write them: what is understood of them, or asked, from the file to the input of a network."""

import csv
import io
import json
from datetime import datetime

import numpy as np
import polars as pl
import pytest

from selfcal.errors import DataError
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.io import read_table
from selfcal.tabular.notation import Notation
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.tabular.schema import Schema, column_values

NUMBERS = [
    (["$1,234.50", "$3"], [1234.5, 3]),
    (["-$5.00", "$-3.00", "($4.00)", "$1"], [-5, -3, -4, 1]),
    (["US$ 12", "US$ 1,000"], [12, 1000]),
    (["USD 5", "USD 1,000.25"], [5, 1000.25]),
    (["1.234,50 €", "12,5 €"], [1234.5, 12.5]),
    (["€ 1.234.567,8", "€ 2"], [1234567.8, 2]),
    (["£3.20", "4"], [3.2, 4]),
    (["45.3%", "7 %", "-1%"], [45.3, 7, -1]),
    (["45,3 %", "7,25 %"], [45.3, 7.25]),
    (["1 234,50", "3,2"], [1234.5, 3.2]),
    (["1\u00a0234,50", "3,2"], [1234.5, 3.2]),
    (["1\u2009234\u2009567", "2"], [1234567, 2]),
    (["1\u202f234,5", "2"], [1234.5, 2]),
    (["1,984,845", "12,000"], [1984845, 12000]),
    (["1,234", "56"], [1234, 56]),
    (["1,234", "1,5"], [1.234, 1.5]),
    (["0,123", "1,234"], [0.123, 1.234]),
    (["1,234.5", "1234.5", "7"], [1234.5, 1234.5, 7]),
    (["12,34,567", "1,000"], [1234567, 1000]),
    (["1'234.5", "2"], [1234.5, 2]),
    (["1’234’567", "2"], [1234567, 2]),
    (["(1,234)", "56", "(7)"], [-1234, 56, -7]),
    (["12 kg", "7kg", "0.5 kg"], [12, 7, 0.5]),
    (["180cm", "170cm"], [180, 170]),
    (["5 m²", "12,5 m²"], [5, 12.5]),
    (["3 km/h", "10.5 km/h"], [3, 10.5]),
    (["-4 °C", "21 °C"], [-4, 21]),
    (["36 months", "60 months"], [36, 60]),
    (["+3", "-2"], [3, -2]),
    (["1e3", "2.5E-1"], [1000, 0.25]),
    (["−5", "4"], [-5, 4]),
    (["1.459", "2.333"], [1.459, 2.333]),
    (["1700000000", "1700000123"], [1700000000, 1700000123]),
    (["4,5", "n/a", "3", "?", "-"], [4.5, None, 3, None, None]),
    (["$5", "NULL", "$6", ".", ""], [5, None, 6, None, None]),
]
DATES = [
    (["2024-12-31", "2023-01-02"], datetime(2024, 12, 31)),
    (["2024-12-31T10:00:00Z", "2023-01-02T10:00:00+02:00"], datetime(2024, 12, 31, 10)),
    (["2024-12-31 10:00", "2023-01-02 11:30"], datetime(2024, 12, 31, 10)),
    (["31.12.2024", "1.2.2023"], datetime(2024, 12, 31)),
    (["31.12.24", "1.2.23"], datetime(2024, 12, 31)),
    (["12/31/2024", "01/02/2023"], datetime(2024, 12, 31)),
    (["31/12/2024", "01/02/2023"], datetime(2024, 12, 31)),
    (["12/31/2024 1:05 PM", "01/02/2023 2:00 AM"], datetime(2024, 12, 31, 13, 5)),
    (["Dec 31, 2024", "March 1, 2023"], datetime(2024, 12, 31)),
    (["31 Dec 2024", "1 March 2023"], datetime(2024, 12, 31)),
    (["31-Dec-2024", "01-Mar-2023"], datetime(2024, 12, 31)),
]
BOOLEANS = [["yes", "no"], ["Y", "N"], ["TRUE", "false"], ["Yes", "No", "NA"], ["true", "n"]]
CATEGORIES = [
    (["$5", "€6", "$7"], r"is taken as categories: it mixes the units '\$', '€'; convert them"),
    (["5 kg", "11 lbs", "7 kg"], "mixes the units 'kg', 'lbs'"),
    (["1st", "2nd", "3rd"], "^$"),
    (["12A", "3B", "4A"], "^$"),
    (["007 kg", "012 kg"], "^$"),
    (["10-20", "20-30"], "^$"),
    (["<0.01", "5", "<0.01"], "^$"),
    (["1.2.3", "2.0.1"], "^$"),
    (["(1)", "(2)"], "^$"),
    (["12:30", "13:45"], "^$"),
]
ASKED = [
    (
        ["1,234", "12345"],
        "can be read in one way; cells such as '1,234'.*x=number:.* decimal point.*x=number:,",
    ),
    (["1.234 €", "12 €"], "cells such as '1.234'"),
    (["01/02/2020", "03/04/2020"], "fit 2. Pass --kind x=date:%d/%m/%Y or --kind x=date:%m/%d/%Y"),
    (["$5", "$7"] * 15 + ["12 kg"], r"must hold numbers in \$, as most of its cells do; row 31 is '12 kg'"),
    (
        ["$5"] * 30 + ["free"],
        r"must hold numbers in \$, as most of its cells do; row 31 is 'free'.*--kind x=",
    ),
]


def read(cells, column="x"):
    """A table through the reader, with a column beside this one that keeps it from being empty."""
    file = io.StringIO()
    csv.writer(file).writerows([[column, "other"], *([cell, "ab"[i % 2]] for i, cell in enumerate(cells))])
    return read_table(file.getvalue().encode(), sep=",")


def ids(cases):
    return [" ".join((case[0] if isinstance(case, tuple) else case)[:2]) for case in cases]


@pytest.mark.parametrize(("cells", "values"), NUMBERS, ids=ids(NUMBERS))
def test_numbers(cells, values):
    table = read(cells)
    schema = Schema.from_dict(json.loads(json.dumps(infer_schema(table).to_dict())))
    assert schema.columns[0].kind == "number"
    read_values = column_values(table, schema)[:, 0]
    np.testing.assert_allclose(read_values, np.array(values, dtype=float))
    encoded = Preprocessor().fit(table, schema).transform(table)[:, 0]
    present = ~np.isnan(read_values)
    scaled = (read_values - np.nanmean(read_values)) / np.nanstd(read_values)
    np.testing.assert_allclose(encoded[present], scaled[present], atol=1e-9)
    plain = all(cell.isascii() and not set(cell) - set("0123456789.+-eE") for cell in cells)
    assert (schema.columns[0].note == "") == plain
    assert len(schema.notes) == (not plain)


@pytest.mark.parametrize(("cells", "first"), DATES, ids=ids(DATES))
def test_dates(cells, first):
    schema = infer_schema(read(cells))
    assert schema.columns[0].kind == "date"
    when = column_values(read(cells), schema)[0, 0] / 1e6
    assert when == (first - datetime(1970, 1, 1)).total_seconds()
    iso = [first.isoformat(), "2020-01-01"]
    assert column_values(read(iso), schema)[0, 0] / 1e6 == when


@pytest.mark.parametrize("cells", BOOLEANS, ids=ids(BOOLEANS))
def test_booleans(cells):
    schema = infer_schema(read(cells))
    assert schema.columns[0].kind == "boolean"
    assert column_values(read(cells), schema)[:2, 0].tolist() == [1, 0]


@pytest.mark.parametrize(("cells", "note"), CATEGORIES, ids=ids(CATEGORIES))
def test_categories(cells, note):
    column = infer_schema(read(cells)).columns[0]
    assert column.kind == "category"
    assert pl.Series([column.note]).str.contains(note).all()


@pytest.mark.parametrize(("cells", "question"), ASKED, ids=ids(ASKED))
def test_what_cannot_be_decided_is_asked(cells, question):
    with pytest.raises(DataError, match=question):
        infer_schema(read(cells))


@pytest.mark.parametrize(("declared", "value"), [("number:.", 1234), ("number:,", 1.234)])
def test_the_answer_to_the_question(declared, value):
    table = read(["1,234", "12345"])
    assert column_values(table, infer_schema(table, kinds={"x": declared}))[0, 0] == value


def test_a_declared_number_is_one_even_if_it_would_be_dropped_or_a_category():
    ids = [str(i) for i in range(50)]
    assert infer_schema(read(ids), kinds={"x": "number"}).columns[0].kind == "number"
    codes = read(["007 kg", "012 kg"])
    assert infer_schema(codes, kinds={"x": "number"}).columns[0].notation == Notation(unit="kg")
    with pytest.raises(DataError, match=r"must hold numbers in \$, as declared; row 3 is '€6'.*--missing"):
        infer_schema(read(["$5", "$6", "€6"]), kinds={"x": "number"})
    with pytest.raises(DataError, match=r"must hold numbers.*as declared; row 2 is 'red'"):
        infer_schema(read(["5", "red", "blue"]), kinds={"x": "number"})


@pytest.mark.parametrize(
    ("trained", "new", "values"),
    [
        (["$1,234.50", "$3"], ["1234.5", "3"], [1234.5, 3]),
        (["1.234,50 €", "12,5 €"], ["1234.5", "1.234"], [1234.5, 1.234]),
        (["1.234,50 €", "12,5 €"], ["1.234", "5"], [1234, 5]),
        (["12 kg", "7 kg"], ["12", "7.5"], [12, 7.5]),
        (["45.3%", "7%"], ["45.3", "0"], [45.3, 0]),
        (["$1.50", "$3"], ["$1,234.50", "2"], [1234.5, 2]),
    ],
    ids=["thousands", "plain", "as in training", "unit", "percent", "larger"],
)
def test_new_files_are_read_as_in_training_or_in_plain_notation(trained, new, values):
    schema = infer_schema(read(trained))
    np.testing.assert_allclose(column_values(read(new), schema)[:, 0], values)


@pytest.mark.parametrize(
    ("trained", "new", "message"),
    [
        (["45.3%", "7%"], ["0.453"], "numbers in %, .*as at fit; row 1 is '0.453'"),
        (["12 kg", "7 kg"], ["12 lbs"], "numbers in kg, as at fit; row 1 is '12 lbs'"),
        (["10k", "7k"], ["10000"], "numbers in k, as at fit; row 1 is '10000'"),
        (["1.234,50", "7"], ["1234.5", "1.234,5"], "decimal comma, as at fit; row 1 is '1234.5'"),
    ],
    ids=["fraction", "unit", "multiple", "both"],
)
def test_new_cells_that_could_mean_something_else_are_refused(trained, new, message):
    table = read(trained)
    preprocessor = Preprocessor().fit(table, infer_schema(table))
    with pytest.raises(DataError, match=message):
        preprocessor.encode(read(new))


def test_schemas_of_older_models_have_no_notation():
    state = infer_schema(read(["1", "2.5"])).to_dict()
    for column in state["columns"]:
        del column["notation"]
    assert Schema.from_dict(state).columns[0].notation is None
