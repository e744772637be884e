"""Random and mutated files: a table or one of our errors comes out, nothing else."""

import gzip
import io
from contextlib import suppress
from datetime import date

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selfcal.errors import SelfcalError
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.io import read_table
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.tabular.target import read_target

TABLE = pl.DataFrame(
    {
        "n": ["1", "2.5", None, "-3e4"],
        "c": ["red", 'q"q', "a\nb", "é,"],
        "d": ["2020-01-01", "2020-01-02", None, "1999-12-31"],
        "y": ["a", "b", "a", "1.0"],
    }
)
CSV = TABLE.write_csv().encode()
TYPED = TABLE.with_columns(
    pl.col("n").cast(pl.Float64), pl.col("c").cast(pl.Categorical), d=pl.Series([date(2020, 1, 1), None] * 2)
)


def parquet(compression):
    file = io.BytesIO()
    TYPED.write_parquet(file, compression=compression)
    return file.getvalue()


PARQUET = [parquet(c) for c in ("uncompressed", "zstd", "snappy", "gzip")]
TEXTS = [CSV, CSV.replace(b",", b";"), gzip.compress(CSV, mtime=0), CSV.decode().encode("utf-16")]
LIMITS = settings(database=None, suppress_health_check=list(HealthCheck))


@st.composite
def mutated(draw, originals):
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["set", "cut", "insert", "remove"]))
        if change == "cut":
            del data[place:]
        elif change == "remove":
            del data[place : place + draw(st.integers(1, 20))]
        elif change == "insert":
            data[place:place] = draw(
                st.sampled_from([b'"', b"\n", b"\r", b",", b"\0", b"\xff", b"1e999", b"\xef\xbb\xbf"])
            )
        elif place < len(data):
            data[place] = draw(st.integers(0, 255))
    return bytes(data)


def use(data):
    """Read a table and go on with it as far as it goes."""
    with suppress(SelfcalError):
        table = read_table(data)
        target = table.columns[-1]
        read_target(table, target, drop_unlabelled=True)
        schema = infer_schema(table, target=target, nonfinite="impute")
        Preprocessor().fit(table, schema).transform(table)


@given(st.binary(max_size=200) | st.text(st.sampled_from('ab1.,;\t"\n\r é\0'), max_size=60).map(str.encode))
@LIMITS
def test_random_bytes_as_text(data):
    use(data)


@given(mutated(TEXTS))
@LIMITS
def test_mutated_text(data):
    use(data)


@given(st.binary(max_size=200).map(lambda middle: b"PAR1" + middle + b"PAR1"))
@LIMITS
def test_random_bytes_as_parquet(data):
    use(data)


@given(mutated(PARQUET))
@LIMITS
def test_mutated_parquet(data):
    use(data)


def test_every_byte_of_a_parquet_file_damaged_in_turn():
    """0x25 is a negative count where a page says how many values it holds: polars alone would abort the process."""
    for place in range(4, len(PARQUET[0])):
        with suppress(SelfcalError):
            read_table(PARQUET[0][:place] + b"\x25" + PARQUET[0][place + 1 :])


@pytest.mark.parametrize("data", [*TEXTS, *PARQUET], ids=range(len(TEXTS + PARQUET)))
def test_the_originals_go_all_the_way(data):
    table = read_table(data)
    assert Preprocessor().fit(table, infer_schema(table, target="y")).transform(table).shape[0] == 4
