"""Bad data, case by case: the right answer, a note, or one error that says what to do."""

import datetime
import gzip
import io
import json
import sys
import unicodedata

import numpy as np
import polars as pl
import pytest
import skops.io

from selfcal.errors import DataError
from selfcal.tabular.copies import find_copies
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.io import read_batches, read_table
from selfcal.tabular.leakage import leaks
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.tabular.schema import column_values
from selfcal.tabular.target import read_target
from tests.faults import case


def parquet(table, **options):
    file = io.BytesIO()
    table.write_parquet(file, **options)
    return file.getvalue()


def bad(name, data, *message, **options):
    return case(name, data, message, options)


@pytest.mark.parametrize(
    ("data", "message", "options"),
    [
        bad("D1", b"", "must hold a table", "the file is empty", "Check the path"),
        bad("D1-blank", b"\n\r\n\n", "the file is empty"),
        bad("D1-mark", b"\xef\xbb\xbf", "the file is empty"),
        bad("D1-gzip", gzip.compress(b""), "the file is empty"),
        bad("D2", b"x,y\n", "must hold at least one row", "2 columns and no rows"),
        bad("D2-parquet", parquet(pl.DataFrame({"x": []})), "1 column and no rows"),
        bad(
            "D3",
            "x,town\n1,Köln\n".encode("latin-1"),
            "UTF-8",
            "line 2, column 'town'",
            "0xF6",
            "--encoding cp1252",
        ),
        bad("D3-header", "x,straße\n1,2\n".encode("latin-1"), "line 1", "0xDF", "--encoding"),
        bad("D4-no-mark", "x,y\n1,2\n".encode("utf-16-le"), "NUL", "--encoding utf-16-le"),
        bad("D6", b"x,y,x,z,y\n1,2,3,4,5\n", "name each column once", "'x', 'y' occur more than once"),
        bad("D6-spaces", b"x, x\n1,2\n", "'x' occurs more than once"),
        bad("D7", b"x,y\n1,2\n3,4,5\n", "2 fields in every line", "line 3 has 3, too many", "--sep"),
        bad("D7-ragged", b"x,y\n1,2\n3,4,5\n", "line 3 has 3, too many", ragged=True),
        bad("D8", b"x,y\n1,2\n3\n", "2 fields in every line", "line 3 has 1, too few", "--ragged"),
        bad("D12", b"a;b,c\n1;2\n", "2 fields", "line 2 has 1", "--ragged", sep=","),
        bad("D13-quote", b'x,y\n1,"a\n2,b\n', "quote opened in line 2 is never closed", "double it"),
        bad("D13-nul", b"x,y\n1,a\0b\n", "must be text", "line 2, column 'y', holds a NUL byte"),
        bad(
            "D13-cut", gzip.compress(b"x,y\n" + b"1,2\n" * 1000)[:-10], "gzip file that was cut off", "again"
        ),
        bad("D13-bad", gzip.compress(b"x,y\n1,2\n")[:-6] + b"123456", "damaged gzip file"),
        bad("D25-cut", parquet(pl.DataFrame({"x": [1, 2]}))[:-9], "cannot be read", "damaged"),
        bad(
            "D25-list",
            parquet(pl.DataFrame({"x": [[1], [2]]})),
            "column 'x' is List(Int64)",
            "simple columns",
        ),
        bad("D25-struct", parquet(pl.DataFrame({"x": [{"a": 1}]})), "column 'x' is Struct"),
        bad("D25-bytes", parquet(pl.DataFrame({"x": [b"1"]})), "column 'x' is Binary"),
        bad("D25-duration", parquet(pl.DataFrame({"x": [datetime.timedelta(1)]})), "column 'x' is Duration"),
        bad(
            "D25-gzip",
            gzip.compress(parquet(pl.DataFrame({"x": [1]}))),
            "Parquet file inside a gzip file",
            "Unpack",
        ),
    ],
)
def test_refused(data, message, options):
    with pytest.raises(DataError) as error:
        read_table(data, **options)
    for part in message:
        assert part in str(error.value)
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("data", "expected", "options"),
    [
        case("D3", "x,town\n1,Köln\n".encode("latin-1"), ("1", "Köln"), {"encoding": "latin-1"}),
        case("D4", "x,town\n1,Köln\n".encode("utf-16"), ("1", "Köln"), {}),
        case("D5", "x,town\n1,Köln\n".encode("utf-8-sig"), ("1", "Köln"), {}),
        case("D8", b"x,town\n1\n", ("1", None), {"ragged": True}),
        case("D12", b"x;town\n1,5;a\n", ("1,5", "a"), {}),
        case("D13-gzip", gzip.compress(b"x,town\n1,a\n"), ("1", "a"), {}),
    ],
)
def test_read(data, expected, options, tmp_path):
    path = tmp_path / "named.csv"
    path.write_bytes(data)
    table = read_table(path, **options)
    assert table.columns == ["x", "town"]
    assert table.row(0) == expected


@pytest.mark.fault("D9")
def test_classes_named_like_missing_values():
    labels = ["NA", "None", "nan", "null", "", "?", "NaN"]
    table = read_table(b"y,x\n" + b"".join(b'"%s",1\n' % label.encode() for label in labels))
    assert read_target(table, "y").labels.tolist() == labels


@pytest.mark.fault("D10")
@pytest.mark.parametrize("nonfinite", ["error", "impute"])
def test_infinite_numbers(nonfinite):
    table = read_table(b"a,b,c\n1,inf,x\n2,1,y\n3,-Infinity,x\n1e400,2,y\n")
    if nonfinite == "impute":
        schema = infer_schema(table, nonfinite=nonfinite)
        assert np.isfinite(Preprocessor().fit(table, schema).transform(table)).all()
    else:
        with pytest.raises(
            DataError, match=r"'a' has 1 \(first in row 4\), 'b' has 2 \(first in row 1\).*--nonfinite impute"
        ):
            infer_schema(table)


@pytest.mark.fault("D11")
def test_text_in_a_column_of_numbers():
    table = pl.DataFrame({"x": [str(i % 7) for i in range(3000)] + ["oops"] + ["5"] * 100})
    with pytest.raises(
        DataError, match=r"Column 'x' must hold numbers.*row 3001 is 'oops' \(1 such cell.*--kind x=category"
    ):
        infer_schema(table)
    assert infer_schema(table, kinds={"x": "category"}).columns[0].kind == "category"


@pytest.mark.fault("D14")
@pytest.mark.parametrize("source", ["csv", "parquet"])
def test_integers_beyond_64_bits_are_never_floats(source):
    numbers = [2**70, 2**70 + 1, 2**70] * 10
    if source == "csv":
        table = pl.DataFrame({"x": [str(n) for n in numbers]})
    else:
        table = read_table(parquet(pl.DataFrame({"x": pl.Series(numbers, dtype=pl.Int128)})))
    schema = infer_schema(table)
    assert schema.columns[0].kind == "category"
    assert "beyond 64 bits" in schema.notes[0]
    assert Preprocessor().fit(table, schema).feature_names == [f"x={2**70}", f"x={2**70 + 1}"]


@pytest.mark.fault("D15")
def test_a_single_class():
    with pytest.raises(DataError, match=r"at least two classes; every labelled row is 'a'. Check"):
        read_target(pl.DataFrame({"y": ["a", "a"]}), "y")


@pytest.mark.fault("D17")
def test_unlabelled_rows_are_counted_and_left_out_only_when_asked():
    table = read_table(b"x,y\n1,a\n2,\n3,b\n4,\n")
    with pytest.raises(DataError, match=r"2 of 4 have none, first row 2.*--drop-unlabelled"):
        read_target(table, "y")
    target = read_target(table, "y", drop_unlabelled=True)
    assert target.rows.tolist() == [0, 2]
    assert "2 of 4 rows" in target.notes[0]


@pytest.mark.fault("D17")
def test_spellings_of_one_number():
    target = read_target(read_table(b'y,x\n1,a\n1.0,b\n"1",c\n2,d\n1.00,e\n'), "y")
    assert target.classes == ("1", "2")
    assert target.codes.tolist() == [0, 0, 0, 1, 0]
    assert "'1.0' is taken as '1', '1.00' is taken as '1'" in target.notes[0]


@pytest.mark.fault("D19")
def test_columns_that_say_nothing_or_too_much():
    n = 100
    table = pl.DataFrame(
        {
            "same": ["7"] * n,
            "gone": [None] * n,
            "id": [f"u{i}" for i in range(n)],
            "row": [str(i) for i in range(n)],
            "copy": ["yes" if i % 3 else "no" for i in range(n)],
            "x": [str(i % 10) for i in range(n)],
            "y": [str(int(i % 3 > 0)) for i in range(n)],
        },
        schema_overrides={"gone": pl.String},
    )
    schema = infer_schema(table, target="y")
    assert {c.name for c in schema.columns if c.kind == "drop"} == {"same", "gone", "id", "row"}
    assert len(schema.notes) == 4
    (warning,) = leaks(column_values(table, schema), schema, read_target(table, "y"), np.arange(n))
    assert "'copy' predicts the target 'y' in 100% of the held-out rows" in warning


@pytest.mark.fault("D19")
def test_free_text_is_refused_with_a_hint():
    table = pl.DataFrame({"review": [f"it took {i} days to come and was late" for i in range(50)]})
    with pytest.raises(DataError, match=r"looks like free text, such as 'it took 0 days.*--kind review=drop"):
        infer_schema(table)


@pytest.mark.fault("D20")
def test_duplicate_rows_share_a_number():
    table = read_table(b"x,c,y\n1,a,0\n2,b,1\n1,a,1\n2,b,0\n1,b,0\n")
    values = column_values(table, infer_schema(table, target="y"))
    assert find_copies(values).groups.tolist() == [0, 1, 0, 1, 2]


@pytest.mark.fault("D21")
def test_memory_does_not_grow_with_the_file():
    """An endless stream is read batch by batch; the whole of it never exists."""

    class Endless(io.RawIOBase):
        def read(self, size=-1):
            return b"x,y\n" if not self.tell_count() else b"1,2\n" * 250_000

        def tell_count(self):
            self.count = getattr(self, "count", -1) + 1
            return self.count

    rows = 0
    for part in read_batches(Endless(), batch_rows=100_000):
        assert part.height <= 100_000
        rows += part.height
        if rows >= 1_000_000:
            break
    with pytest.raises(DataError, match=r"must fit into 0.1 GB"):
        read_table(Endless(), budget=10**8)


@pytest.mark.fault("D22")
def test_many_columns_many_classes_many_categories():
    wide = pl.DataFrame({f"c{i}": [str(i), "2", "x" if i == 0 else "3.5"] for i in range(2000)})
    table = read_table(wide.write_csv().encode())
    preprocessor = Preprocessor().fit(table, infer_schema(table))
    assert preprocessor.transform(table).shape[1] == 2000 + 2  # the first column is of categories
    levels = pl.DataFrame({"x": [f"level {i}" for i in range(200_000)] * 2})
    schema = infer_schema(levels)
    assert len(Preprocessor(max_levels=50).fit(levels, schema).feature_names) == 50
    with pytest.raises(DataError, match=r"400,000 rows of 200,000 numbers need about 2384.2 GB"):
        Preprocessor(max_levels=10**6).fit(levels, schema)


@pytest.fixture(scope="module")
def trained():
    table = read_table(b"size,colour,extra,y\n1,red,a,0\n2,blue,b,1\n3,red,a,0\n")
    schema = infer_schema(table, target="y")
    return table, Preprocessor().fit(table, schema)


@pytest.mark.fault("D23")
class TestColumnsAtPrediction:
    def test_missing(self, trained):
        table, preprocessor = trained
        with pytest.raises(
            DataError, match="every column the model was trained on; missing 2: 'size', 'colour'"
        ):
            preprocessor.encode(table.rename({"size": "Size"}).drop("colour"))

    def test_reordered_and_without_the_target(self, trained):
        table, preprocessor = trained
        encoded = preprocessor.encode(table.select("extra", "colour", "size"))
        np.testing.assert_array_equal(encoded.values, preprocessor.transform(table))
        assert encoded.notes == ()

    def test_extra(self, trained):
        table, preprocessor = trained
        encoded = preprocessor.encode(table.with_columns(new=pl.lit(1)))
        np.testing.assert_array_equal(encoded.values, preprocessor.transform(table))
        assert encoded.notes == ("Columns that were not in the training table are ignored: 'new'.",)

    def test_other_type(self, trained):
        table, preprocessor = trained
        typed = table.with_columns(pl.col("size").cast(pl.Int8))
        np.testing.assert_array_equal(preprocessor.transform(typed), preprocessor.transform(table))
        with pytest.raises(DataError, match="Column 'size' must hold numbers, as at fit; row 1 is 'large'"):
            preprocessor.encode(table.with_columns(size=pl.lit("large")))

    def test_unseen(self, trained):
        table, preprocessor = trained
        encoded = preprocessor.encode(table.with_columns(colour=pl.lit("green")))
        assert encoded.unseen == {"colour": 3}
        assert "'colour' has 3 cells" in encoded.notes[0]

    def test_no_rows(self, trained):
        _, preprocessor = trained
        table = read_table(b"size,colour,extra\n", allow_empty=True)
        assert preprocessor.transform(table).shape == (0, len(preprocessor.feature_names))


NAMES = [
    "ünï",
    "שלום",
    "👩‍👩‍👧",
    "x" * 10_000,
    "two\nlines",
    "cr\r\nlf",
    "",
    " space ",
    "a,b",
    'q"q',
    "é",
    "e\u0301",
    "\ufeff",
]


@pytest.mark.fault("D24")
def test_names_of_classes_survive_every_trip():
    table = pl.DataFrame({"y": NAMES, "x": list(map(str, range(len(NAMES))))})
    again = read_table(table.write_csv().encode())
    target = read_target(again, "y")
    assert target.labels.tolist() == NAMES
    assert read_target(read_table(parquet(table)), "y").classes == target.classes
    assert tuple(json.loads(json.dumps(target.classes))) == target.classes
    alike = [n for n in target.notes if "look alike" in n]
    assert any("'\\xe9'" in n and "'e\\u0301'" in n for n in alike)
    assert unicodedata.normalize("NFC", NAMES[-2]) == NAMES[-3]


@pytest.mark.fault("D24")
def test_names_of_categories_survive_the_store():
    table = pl.DataFrame({"x": [n for n in NAMES if n.strip()] * 2})
    preprocessor = Preprocessor().fit(table, infer_schema(table))
    data = skops.io.dumps(preprocessor.state())
    again = Preprocessor.from_state(skops.io.loads(data, trusted=[]))
    assert again.encode(table).unseen == {}
    np.testing.assert_array_equal(again.transform(table), preprocessor.transform(table))


@pytest.mark.fault("D25")
def test_types_of_parquet():
    noon = datetime.datetime(2020, 1, 1, 12)
    table = pl.DataFrame(
        {
            "dictionary": pl.Series(["a", "b"], dtype=pl.Categorical),
            "enum": pl.Series(["a", "b"], dtype=pl.Enum(["b", "a"])),
            "decimal": pl.Series(["1.25", "2.50"]).cast(pl.Decimal(10, 2)),
            "zone": pl.Series([noon, None]).dt.replace_time_zone("Europe/Paris"),
            "nanoseconds": pl.Series([noon, None]).cast(pl.Datetime("ns")),
            "nothing": pl.Series([None, None]),
            "small": pl.Series([1, 2], dtype=pl.Int8),
        }
    )
    read = read_table(parquet(table))
    assert read.row(0) == ("a", "a", 1.25, noon - datetime.timedelta(hours=1), noon, None, 1)
    assert [c.kind for c in infer_schema(read).columns] == [
        "category", "category", "number", "date", "date", "drop", "number",
    ]  # fmt: skip


@pytest.mark.fault("D25")
def test_no_row_groups():
    data = parquet(pl.DataFrame(schema={"x": pl.Int64}))
    assert read_table(data, allow_empty=True).shape == (0, 1)


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x,y\n1,2,3\n")))
    with pytest.raises(DataError, match="standard input must have 2 fields"):
        read_table("-")


@pytest.mark.fault("D34")
def test_amounts_of_money_are_numbers_and_that_is_said():
    """More notations in tests/tabular/test_written_cells.py."""
    table = read_table(b'price,kind\n"$1,234.50",a\n$3,b\n"($1,000)",a\n')
    schema = infer_schema(table, target="kind")
    assert [column.kind for column in schema.columns] == ["number"]
    assert "is read as numbers in $, with commas between thousands" in schema.notes[0]
    assert column_values(table, schema)[:, 0].tolist() == [1234.5, 3, -1000]


@pytest.mark.fault("D36")
def test_json_lines_are_read_and_a_json_array_is_named():
    """More formats in tests/tabular/io/test_other_files.py."""
    assert read_table(b'{"x": 1}\n{"x": 2}\n').rows() == [("1",), ("2",)]
    with pytest.raises(DataError, match=r"it is a JSON array. Write one object in each line"):
        read_table(b'[{"x": 1}, {"x": 2}]')
