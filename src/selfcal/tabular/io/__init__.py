"""Tables from files: CSV, JSON lines, Excel, Parquet and Arrow, packed or not, under one policy for bad data."""

from selfcal.tabular.io.reading import read_batches, read_table
from selfcal.tabular.io.source import Source, check_source
from selfcal.tabular.io.writing import write_batches

__all__ = ["Source", "check_source", "read_batches", "read_table", "write_batches"]
