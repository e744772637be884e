"""Tables from files: CSV, TSV and Parquet, plain or gzipped, under one policy for bad data."""

from selfcal.tables.reading import read_batches, read_table
from selfcal.tables.source import Source
from selfcal.tables.writing import write_batches

__all__ = ["Source", "read_batches", "read_table", "write_batches"]
