import codecs
import csv
import gzip
import io
import sys

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from selfcal.errors import ConfigError, DataError
from selfcal.tabular.io import pages, read_batches, read_table, records, source

# any text a cell can hold, save NUL and lone surrogates, which are no text
cells = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6
) | st.sampled_from(
    [
        "",
        '"',
        '""',
        ",",
        "\n",
        "\r",
        "\r\n",
        " ",
        "a\nb",
        'say "hi"',
        "\ufeff",
        "#",
        "'",
        "é",
        "e\u0301",
        "\u2028",
        "😀",
    ]
)


@st.composite
def tables(draw):
    width = draw(st.integers(2, 4))
    return draw(st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=8))


def written(rows, sep=",", end="\n", quoting=csv.QUOTE_ALL):
    file = io.StringIO(newline="")
    header = [f"c{i}" for i in range(len(rows[0]))]
    csv.writer(file, delimiter=sep, lineterminator=end, quoting=quoting).writerows([header, *rows])
    return file.getvalue().encode()


@given(
    rows=tables(),
    sep=st.sampled_from(",;\t|"),
    end=st.sampled_from(["\n", "\r\n"]),
    size=st.sampled_from([7, 64, 4096]),
)
@settings(max_examples=150, deadline=None)
def test_reads_what_pythons_csv_module_writes_however_it_is_cut(rows, sep, end, size):
    """A differential test; the chunks are tiny, so that records, quotes and characters straddle them."""
    data = written(rows, sep, end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "CHUNK", size)
        table = read_table(data, sep=sep)
    assert [list(row) for row in table.rows()] == rows


@given(rows=tables())
@settings(max_examples=60, deadline=None)
def test_round_trip_distinguishes_missing_and_empty_cells(rows):
    table = pl.DataFrame([[None if cell == "'" else cell for cell in row] for row in rows], orient="row")
    table = table.cast(pl.String)
    assert_frame_equal(read_table(table.write_csv().encode(), sep=","), table)


def test_every_source_gives_the_same_table(tmp_path, monkeypatch):
    data = b"x,y\n1,a\n2,b\n"
    path = tmp_path / "table.csv"
    path.write_bytes(data)
    expected = {"x": ["1", "2"], "y": ["a", "b"]}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    for way in (path, str(path), data, io.BytesIO(data), "-"):
        assert read_table(way).to_dict(as_series=False) == expected


def test_gzip_is_detected_by_its_bytes_members_and_padding_included(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(gzip.compress(b"x,y\n1,a\n") + gzip.compress(b"2,b\n") + b"\0" * 100)
    assert read_table(path).rows() == [("1", "a"), ("2", "b")]


def test_a_gzip_bomb_is_read_in_bounded_pieces(monkeypatch):
    """A chunk of gzip that unpacks to much more than a chunk is handed on piece by piece."""
    monkeypatch.setattr(source, "CHUNK", 1000)
    opened = source.open_source(gzip.compress(b"0" * 100_000))
    assert max(map(len, opened.chunks)) <= 1000
    assert sum(map(len, source.open_source(gzip.compress(b"0" * 100_000)).chunks)) == 100_000


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-le", "utf-16-be", "cp1252"])
def test_encodings(encoding):
    data = "naïve,y\n1,é\n".encode(encoding)
    marked = encoding in ("utf-8-sig", "utf-16", "utf-32")
    table = read_table(data, encoding=None if marked else encoding)
    assert table.to_dict(as_series=False) == {"naïve": ["1"], "y": ["é"]}


def test_a_byte_order_mark_before_a_named_encoding_is_not_part_of_the_name():
    assert read_table(
        codecs.BOM_UTF16_LE + "x,y\n1,2\n".encode("utf-16-le"), encoding="utf-16-le"
    ).columns == ["x", "y"]


def test_wrong_encoding_names_the_line():
    with pytest.raises(DataError, match=r"must be utf-16 text; it is invalid in or near line 3.*--encoding"):
        read_table(codecs.BOM_UTF16_LE + "x,y\n1,2\n".encode("utf-16-le") + b"\x00\xd8\n\x00")


@pytest.mark.parametrize("encoding", ["nonsense", "zip", "hex", "a\0b"])
def test_unknown_encodings_are_refused(encoding):
    with pytest.raises(ConfigError, match="encoding must be a text encoding"):
        read_table(b"x\n1\n", encoding=encoding)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_line_ends(end, last):
    data = end.join(["x,y", "1,a", "2,b"]) + (end if last else "")
    assert read_table(data.encode()).rows() == [("1", "a"), ("2", "b")]


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
def test_the_separator_is_detected(sep):
    assert read_table(f"x{sep}y\n1{sep}a b\n".encode()).rows() == [("1", "a b")]


def test_decimal_commas_do_not_hide_the_semicolon_nor_quotes_the_comma():
    assert read_table(b"x;y\n1,5;2,5\n").columns == ["x", "y"]
    assert read_table(b'x,"a;b"\n1,"c;d"\n').columns == ["x", "a;b"]


def test_ambiguous_separators_are_refused():
    with pytest.raises(DataError, match=r"several are possible. Pass --sep ',' .2 columns. or --sep ';'"):
        read_table(b"a,b;c\n1,2;3\n")
    assert read_table(b"a,b;c\n1,2;3\n", sep=";").columns == ["a,b", "c"]


@pytest.mark.parametrize("sep", ["", "ab", '"', "\n", "é"])
def test_bad_separators(sep):
    with pytest.raises(ConfigError, match="sep must be one character"):
        read_table(b"x\n1\n", sep=sep)


def test_tab_by_name():
    assert read_table(b"x\ty\n1\t2\n", sep="tab").columns == ["x", "y"]


def test_names_are_stripped_and_missing_ones_are_numbered():
    assert read_table(b', b ,"c\nd"\n1,2,3\n').columns == ["column_1", "b", "c\nd"]


def test_a_first_line_of_numbers_is_not_a_header():
    with pytest.raises(
        DataError, match=r"must name its columns in the first line; it looks like data \(5.1, 3.5"
    ):
        read_table(b"5.1,3.5,a\n4.9,3.1,b\n")
    assert read_table(b"0,1,2\n5,6,7\n").columns == ["0", "1", "2"]  # as pandas names them


def test_blank_lines_are_not_rows_except_in_a_single_column():
    assert read_table(b"\n\r\nx,y\n\n1,2\n\r\n3,4\n\n").rows() == [("1", "2"), ("3", "4")]
    assert read_table(b"x\n1\n\n2\n").rows() == [("1",), (None,), ("2",)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'x,y\n1,5" pipe\n2,b\n3,"c"\n', "line 2, column 'y', holds a quote inside a field"),
        (b'x,y\n1,"a"b\n', "field that starts in line 2 ends in line 2, but text follows"),
        (b'x,y\n1,"a\n2,b\n3,"c"\n', "field that starts in line 2 ends in line 4, but text follows"),
        (b'x,y\n1,a\n2,"b\n3,c\n', "quote opened in line 3 is never closed"),
        (b"x,y\n1\r2,a\n", "line 2, column 'x', holds a carriage return inside a line"),
    ],
)
def test_stray_quotes_and_carriage_returns(data, message):
    with pytest.raises(DataError, match=message):
        read_table(data)


def test_an_open_quote_is_noticed_long_before_the_end(monkeypatch):
    monkeypatch.setattr(source, "CHUNK", 100)
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 1000)
    stream = io.BytesIO(b'x,y\n1,"' + b"2,b\n" * 10_000)
    with pytest.raises(DataError, match="quote opened in line 2 is never closed"):
        read_table(stream)
    assert stream.tell() < 2000


def test_a_line_that_never_ends(monkeypatch):
    monkeypatch.setattr(source, "CHUNK", 100)
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", 1000)
    with pytest.raises(DataError, match=r"line 1 is longer than 1,000 bytes. Is it a table"):
        read_table(b"x" * 5000)


def test_the_line_of_a_fault_far_into_the_file(monkeypatch):
    """Line numbers are those of the file, over chunks, blank lines and line breaks in quotes."""
    monkeypatch.setattr(source, "CHUNK", 50)
    data = b'x,y\n\n"a\nb",1\n' + b"2,3\n" * 100 + b"4,5,6\n"
    with pytest.raises(DataError, match="line 105 has 3, too many"):
        read_table(data)


def test_a_missing_file_and_a_near_name(tmp_path):
    (tmp_path / "train.csv").write_bytes(b"x\n1\n")
    with pytest.raises(DataError, match=r"No such file or directory. Did you mean 'train.csv'\?"):
        read_table(tmp_path / "trian.csv")
    with pytest.raises(DataError, match="Is a directory"):
        read_table(tmp_path)
    with pytest.raises(DataError, match="cannot be opened"):
        read_table("nul\0byte")


def test_batches_are_the_table_in_order_and_no_longer_than_asked(monkeypatch):
    monkeypatch.setattr(source, "CHUNK", 64)
    data = b"x\n" + b"".join(b"%d\n" % i for i in range(1000))
    parts = list(read_batches(data, batch_rows=7))
    assert max(p.height for p in parts) <= 7
    assert pl.concat(parts)["x"].to_list() == [str(i) for i in range(1000)]


def test_batches_fail_where_the_fault_is_and_not_before(monkeypatch):
    monkeypatch.setattr(source, "CHUNK", 64)
    batches = read_batches(b"x,y\n" + b"1,2\n" * 100 + b"3\n")
    assert next(batches).rows()[0] == ("1", "2")
    with pytest.raises(DataError, match="line 102 has 1, too few"):
        list(batches)


def test_parquet_batches(tmp_path):
    path = tmp_path / "t.parquet"
    table = pl.DataFrame({"x": range(1000), "y": ["a", "b"] * 500})
    table.write_parquet(path, row_group_size=100)
    parts = list(read_batches(path, batch_rows=64))
    assert max(p.height for p in parts) <= 64
    assert_frame_equal(pl.concat(parts), table)
    assert_frame_equal(read_table(path.read_bytes()), table)


@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "snappy", "lz4"])
@pytest.mark.parametrize("size", [200, None])
def test_whole_parquet_files_pass_the_check_of_their_pages(compression, size):
    """Many pages, dictionaries, row groups, nulls and none: nothing that is sound is called damaged."""
    table = pl.DataFrame(
        {"x": range(3000), "y": ["a", "bb", None] * 1000, "z": [None, 1.5] * 1500, "w": [True] * 3000}
    )
    file = io.BytesIO()
    table.write_parquet(file, compression=compression, data_page_size=size, row_group_size=700)
    pages.check_pages(file.getvalue())
    assert_frame_equal(read_table(file.getvalue()), table)


def test_a_negative_count_in_a_page_is_found_before_polars_acts_on_it():
    file = io.BytesIO()
    pl.DataFrame({"x": [1, 2, 3, 4]}).write_parquet(file, compression="uncompressed", statistics=False)
    data = file.getvalue()
    count = data.index(b"\x15\x08", 4)  # the first field of a page: four values, in zigzag
    with pytest.raises(pages.DamagedError, match="a page has a negative size"):
        pages.check_pages(data[: count + 1] + b"\x07" + data[count + 2 :])
    with pytest.raises(DataError, match=r"is a damaged Parquet file: .* Write it again"):
        read_table(data[: count + 1] + b"\x07" + data[count + 2 :])


def test_the_budget_is_judged_by_the_first_part_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "CHUNK", 4096)
    path = tmp_path / "t.csv"
    path.write_bytes(b"x,y\n" + b"12345,67890\n" * 50_000)
    with pytest.raises(DataError, match=r"must fit into 0.0 GB .*about (49|50),\d{3} rows") as error:
        read_table(path, budget=500_000)
    assert "raise the budget" in str(error.value)
    assert read_table(path).height == 50_000


def test_a_file_that_cannot_be_read_to_the_end():
    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    with pytest.raises(DataError, match="the stream cannot be read: Input/output error"):
        read_table(Broken())
