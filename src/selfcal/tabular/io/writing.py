"""Writing tables as CSV, TSV or Parquet, batch by batch and atomically."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import polars as pl

from selfcal._support.files import write_error
from selfcal.errors import ConfigError, SelfcalError

SUFFIXES = {".csv": ",", ".tsv": "\t", ".parquet": "", ".pq": ""}
"""Allowed suffixes (`.csv` and `.tsv` also with `.gz`), and the separator of each."""

_FORMULA = r"^[=+\-@\t\r]"


def write_batches(
    parts: Iterable[pl.DataFrame], out: str | os.PathLike[str], *, excel_safe: bool = False
) -> int:
    r"""Write the batches of a table one after the other, in memory that does not grow with them.

    If reading or writing fails, an existing file is left unchanged.

    Args:
        parts: At least one, all with the same columns.
        out: A path that ends in .csv, .tsv, .csv.gz, .tsv.gz or .parquet; `-` is CSV to standard output.
        excel_safe: Put an apostrophe before text that a spreadsheet would evaluate as a formula.

    Returns:
        The number of rows written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     rows = write_batches([pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [2]})], f"{folder}/a.tsv")
        ...     rows, Path(f"{folder}/a.tsv").read_text()
        (2, 'a\n1\n2\n')
    """
    sep = separator_of(out)
    remaining = iter(map(_harmless, parts) if excel_safe else parts)
    first = next(remaining)
    count = [0]
    counted = _counting(chain([first], remaining), count)
    with _whole_file(out) as path:
        if path is None:
            _write_text(counted, sys.stdout.buffer, sep)
            sys.stdout.buffer.flush()
        elif not sep:
            _write_parquet(counted, first.schema, path)
        elif str(out).lower().endswith(".gz"):
            with open(path, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                _write_text(counted, packed, sep)
        else:
            with open(path, "wb") as file:
                _write_text(counted, file, sep)
    return count[0]


def separator_of(out: str | os.PathLike[str]) -> str:
    """Return the separator for the suffix of a file name, empty for Parquet; other suffixes are an error."""
    name = os.fspath(out).lower()
    if name == "-":
        return ","
    packed = name.endswith(".gz")
    suffix = Path(name.removesuffix(".gz")).suffix
    if suffix not in SUFFIXES or (packed and not SUFFIXES[suffix]):
        raise ConfigError(
            f"The output must be named .csv, .tsv, .csv.gz, .tsv.gz or .parquet, or be - for standard output; got "
            f"{os.fspath(out)!r}."
        )
    return SUFFIXES[suffix]


def _harmless(part: pl.DataFrame) -> pl.DataFrame:
    text = pl.col(pl.String)
    part = part.with_columns(
        pl.when(text.str.contains(_FORMULA)).then("'" + text).otherwise(text).name.keep()
    )
    return part.rename(lambda name: f"'{name}" if name[:1] in tuple("=+-@\t\r") else name)


def _counting(parts: Iterable[pl.DataFrame], count: list[int]) -> Iterator[pl.DataFrame]:
    for part in parts:
        count[0] += part.height
        yield part


def _write_text(parts: Iterable[pl.DataFrame], file: BinaryIO | gzip.GzipFile, sep: str) -> None:
    for number, part in enumerate(parts):
        file.write(part.write_csv(separator=sep, include_header=number == 0).encode())


def _write_parquet(parts: Iterator[pl.DataFrame], schema: pl.Schema, path: Path) -> None:
    from polars.io.plugins import register_io_source

    register_io_source(io_source=lambda *_: parts, schema=schema).sink_parquet(path)


@contextmanager
def _whole_file(out: str | os.PathLike[str]) -> Iterator[Path | None]:
    """Yield a temporary file next to `out`, which replaces it at the end; None for standard output."""
    if os.fspath(out) == "-":
        yield None
        return
    target = Path(out)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        size = 0
        with suppress(OSError):
            size = temporary.stat().st_size
            temporary.unlink()
        if isinstance(error, SelfcalError) or not isinstance(error, (OSError, pl.exceptions.PolarsError)):
            raise
        raise write_error(target, f"stopped after {size:,} bytes", error) from error
