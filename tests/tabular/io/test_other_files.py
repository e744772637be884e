"""JSON lines, zip archives, Excel workbooks and Arrow files, and what other formats are called."""

import gzip
import io
import json
import pickle
import sqlite3
import sys
import zipfile
from datetime import datetime

import numpy as np
import polars as pl
import pytest

from selfcal.errors import ConfigError, DataError
from selfcal.tabular.io import archives, read_batches, read_table, source

CSV = b"x,y\n1,a\n2.50,b\n"
ROWS = [("1", "a"), ("2.50", "b")]


def zipped(*members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def workbook(**sheets):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def test_json_lines():
    data = b'{"x": 1, "y": "a"}\n\n{"y": null, "x": 2.50}\r\n{"x": true}\n{"x": 1e400, "y": "b"}'
    table = read_table(data)
    assert table.rows() == [("1", "a"), ("2.50", None), ("true", None), ("1e400", "b")]
    for packed in (gzip.compress(data), zipped(("t.jsonl", data)), data.decode().encode("utf-16")):
        assert read_table(packed).equals(table)


def test_json_lines_in_pieces(monkeypatch):
    monkeypatch.setattr(source, "CHUNK", 50)
    lines = [json.dumps({"x": i, "y": 'é"\n'}) for i in range(500)]
    parts = list(read_batches("\n".join(lines).encode(), batch_rows=64))
    table = pl.concat(parts)
    assert table["x"].to_list() == [str(i) for i in range(500)]
    assert set(table["y"]) == {'é"\n'}
    late = [*lines, '{"x": 1, "z": 2}']
    with pytest.raises(DataError, match=r"same keys in all lines; 'z' first occurs in or after line"):
        read_table("\n".join(late).encode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"x": 1}\n{"x": [1, 2]}\n', "column 'x' holds a list. Turn it into simple columns"),
        (b'{"x": {"y": 1}}\n', "column 'x' holds an object"),
        (b'{"x": 1}\n{"x": \n', "one object in each line; line 2 cannot be read"),
        (b'{"x": 1}\n5\n', "line 2 is '5'"),
        (b'{"x": 1, "x": 2}\n', "line 1 has 'x' twice"),
        (b'{\n "x": 1\n}\n', "line 1 cannot be read .*jq"),
        (b'{"x": "\xff"}\n', "line 1 cannot be read"),
        (b"{" * 100_000, "line 1 cannot be read"),
    ],
)
def test_faulty_json_lines(data, message):
    with pytest.raises(DataError, match=message):
        read_table(data)


def test_a_zip_archive_with_one_table(tmp_path, monkeypatch):
    path = tmp_path / "t.csv"
    data = zipped(("folder/t.csv", CSV), ("__MACOSX/._t.csv", b"clutter"))
    path.write_bytes(data)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    for way in (path, data, "-", zipped(("t.csv.gz", gzip.compress(CSV)))):
        assert read_table(way).rows() == ROWS
    assert [one.name for one in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (zipped(("a.csv", CSV), ("b.csv", CSV)), "must hold one file, the table; it has 2: 'a.csv', 'b.csv'"),
        (zipped(), "it has none"),
        (zipped(("a.zip", zipped(("a.csv", CSV)))), "a zip archive inside another one"),
        (zipped(("content.xml", "")), "an OpenDocument file"),
        (gzip.compress(zipped(("a.csv", CSV))), "a zip archive inside a gzip file"),
        (zipped(("a.csv", CSV * 1000))[:-30], "a damaged or unusual zip archive"),
    ],
    ids=[
        "two files",
        "empty",
        "zip in zip",
        "OpenDocument",
        "zip in gzip",
        "cut off",
    ],  # the bytes have a date
)
def test_other_archives(data, message):
    with pytest.raises(DataError, match=message):
        read_table(data)


def test_a_damaged_member():
    data = bytearray(zipped(("a.csv", CSV * 1000)))
    data[60] ^= 255
    with pytest.raises(DataError, match="a damaged or unusual zip archive"):
        read_table(bytes(data))


def test_a_zip_bomb_is_refused_before_it_is_unpacked(monkeypatch):
    monkeypatch.setattr(archives, "MAX_UNPACKED", 100_000)
    bomb = zipped(("a.csv", b"x,y\n" + b"0,0\n" * 100_000))
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    with pytest.raises(DataError, match="must not unpack to more than 100 times its size"):
        read_table(bomb)


def test_excel():
    rows = [
        ["n", "text", "flag", "when", None],
        [1, " a", True, datetime(2024, 12, 31, 10)],
        [2.0],
        [None, None],
        [0.125, "0123", False, datetime(2024, 1, 1)],
    ]
    table = read_table(workbook(Data=rows, Empty=[]))
    assert table.rows() == [
        ("1", " a", "true", "2024-12-31 10:00:00"),
        ("2", None, None, None),
        ("0.125", "0123", "false", "2024-01-01 00:00:00"),
    ]
    assert table.columns == ["n", "text", "flag", "when"]


def test_sheets(tmp_path):
    data = workbook(First=[["x"], [1]], Second=[["x"], [2]])
    assert read_table(data, sheet="Second").rows() == [("2",)]
    with pytest.raises(
        DataError, match=r"has 2 sheets: 'First', 'Second'. Name the one to read with --sheet"
    ):
        read_table(data)
    with pytest.raises(ConfigError, match=r"sheet must be one of .*got 'Secnd'. Did you mean 'Second'\?"):
        read_table(data, sheet="Secnd")
    with pytest.raises(ConfigError, match="sheet is for Excel workbooks"):
        read_table(CSV, sheet="First")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "the sheet is empty"),
        ([["x"]], "must hold at least one row"),
        ([["x", "x"], [1, 2]], "must name each column once; 'x'"),
        ([["x"], [1], [1, 2]], "row 3 has cells beyond the 1 columns that row 1 names"),
    ],
)
def test_faulty_sheets(rows, message):
    with pytest.raises(DataError, match=message):
        read_table(workbook(Data=rows))


def test_excel_without_the_extra(monkeypatch):
    data = workbook(Data=[["x"], [1]])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ConfigError, match=r"pip install 'selfcal\[excel\]'"):
        read_table(data)


@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
def test_arrow(tmp_path, compression):
    table = pl.DataFrame({"x": [1, 2], "y": ["a", None], "z": [1.5, 2.5]})
    path = tmp_path / "t.feather"
    table.write_ipc(path, compression=compression)
    assert read_table(path).equals(table)
    assert read_table(path.read_bytes()).equals(table)
    with pytest.raises(DataError, match="cannot be read"):
        read_table(path.read_bytes()[:-40])


def other_files():
    array = io.BytesIO()
    np.save(array, np.eye(2))
    base = sqlite3.connect(":memory:")
    base.execute("create table t (x)")
    return {
        "a JSON array": b'[{"x": 1}, {"x": 2}]',
        "a JSON array ": b"[\n [1, 2]]",
        "a pickle": pickle.dumps({"x": [1]}),
        "a NumPy array": array.getvalue(),
        "an HTML page": b"\n<!DOCTYPE html><table>",
        "an HTML page ": b"<html><body>",
        "an XML document": b"<?xml version='1.0'?>",
        "a PDF document": b"%PDF-1.7",
        "an SQLite database": base.serialize(),
        "an old .* Excel workbook": b"\xd0\xcf\x11\xe0\xa1\xb1",
        "a bzip2 file": b"BZh91AY rest",
        "an xz file": b"\xfd7zXZ\x00 rest",
        "an HDF5 file": b"\x89HDF\r\n\x1a\n",
    }


@pytest.mark.parametrize("what", other_files())
def test_other_formats_are_named(what):
    with pytest.raises(DataError, match=f"must be CSV, TSV, JSON lines, .*; it is {what.strip()}"):
        read_table(other_files()[what])


def test_a_header_in_brackets_is_no_json():
    assert read_table(b"[id],[name]\n1,a\n").columns == ["[id]", "[name]"]
