"""Splitting a table into training, validation and held-out rows, with copies and groups on one side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from selfcal._support.checks import Float, Int, listed
from selfcal._support.splits import split_groups
from selfcal.errors import ConfigError, DataError
from selfcal.tabular.cells import read_numbers, text_cells
from selfcal.tabular.copies import Copies, find_copies, numbered
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.schema import Schema, column_named, column_values
from selfcal.tabular.target import Target, read_target

MIN_LABELLED_ROWS = 20


@dataclass(frozen=True)
class Parts:
    """The training, validation and held-out rows."""

    train: Int
    validation: Int
    held_out: Int

    @classmethod
    def of(cls, codes: Int, groups: Int, held_out: float, validation: float, seed: int) -> Parts:
        """Split stratified by class, whole groups at a time; every class is in the training rows.

        With a `held_out` of 0, no rows are held out.
        """
        rest, evaluated = np.arange(len(codes)), np.arange(0)
        if held_out:
            rest, evaluated = split_groups(codes, groups, (1 - held_out, held_out), seed=seed)
        train, selected = split_groups(codes[rest], groups[rest], (1 - validation, validation), seed=seed + 1)
        if (held_out and not len(evaluated)) or len(selected) < 2:
            raise DataError(
                "The table must have enough rows to hold some out; nearly all classes have a single row, or all rows "
                "are copies of each other. Provide more rows, or check that the target is the right column."
            )
        return cls(rest[train], rest[selected], evaluated)


@dataclass(frozen=True)
class Division:
    """The labelled rows of a table and their split.

    Attributes:
        table: The labelled rows.
        schema: Its columns.
        labels: Their labels.
        values: Their values, as `column_values` gives them.
        groups: The number of the group of each row.
        parts: The rows of each part.
        notes: Notes for the user about groups and parts.
    """

    table: pl.DataFrame
    schema: Schema
    labels: Target
    values: Float
    groups: Int
    parts: Parts
    notes: tuple[str, ...]


def divide(
    table: pl.DataFrame,
    target: str,
    *,
    held_out: float,
    validation: float,
    seed: int,
    drop_unlabelled: bool = False,
    classes_anyway: bool = False,
    group: str | None = None,
    **reading: Any,
) -> Division:
    """Infer the schema of a table and split its rows.

    Copies of a row are on one side of every split. With a `group` column its values define the groups instead; a row
    without a value in it is a separate group.

    Args:
        table: The table, as `read_table` returns it.
        target: The column with the labels.
        held_out: The fraction of rows to hold out for evaluation.
        validation: The fraction of the other rows for validation.
        seed: Seed of the split.
        drop_unlabelled: Leave rows without a label out, instead of an error.
        classes_anyway: Accept a target that looks continuous.
        group: A column whose equal values belong together; it is not used as a feature.
        **reading: Further arguments of `infer_schema`.
    """
    if group is not None:
        reading["kinds"] = _without_group(table, group, target, reading.get("kinds") or {})
    labels = read_target(
        table,
        target,
        drop_unlabelled=drop_unlabelled,
        classes_anyway=classes_anyway,
        decimal=reading.get("decimal"),
    )
    if len(labels.rows) < table.height:
        table = table[labels.rows]
        labels = replace(labels, rows=np.arange(table.height))
    if table.height < MIN_LABELLED_ROWS:
        raise DataError(
            f"The table must have at least {MIN_LABELLED_ROWS} labelled rows for training and evaluation; it has "
            f"{table.height}. Provide more rows."
        )
    schema = infer_schema(table, target=target, **reading)
    values = column_values(table, schema)
    used = schema.used
    copies = find_copies(values, kinds=[c.kind for c in used], names=[c.name for c in used])
    if group is not None:
        copies = _grouped(table[group], schema, copies)
    parts = Parts.of(labels.codes, copies.groups, held_out, validation, seed)
    notes = (*copies.notes, *_absent_classes(labels, parts))
    return Division(table, schema, labels, values, copies.groups, parts, notes)


def _without_group(table: pl.DataFrame, group: str, target: str, kinds: Mapping[str, str]) -> dict[str, str]:
    if column_named(table, group) == target:
        raise ConfigError(
            f"The column that groups the rows must not be the target; got {group!r} for both. Name another one with "
            "--group."
        )
    return {**kinds, group: "drop"}


def _grouped(cells: pl.Series, schema: Schema, copies: Copies) -> Copies:
    """Rows with the same value are a group; a note counts copies in different groups."""
    values, unreadable = read_numbers(cells.to_frame(), schema.missing, decimal=schema.decimal)
    present = text_cells(cells, schema.missing) if unreadable else values[cells.name]
    row = pl.Series(range(len(cells)), dtype=pl.Int64)
    missing = present.is_null()
    groups = numbered(present.rank("dense").cast(pl.Int64).zip_with(~missing, -1 - row).to_numpy())
    notes = [
        f"Column {cells.name!r} is not used as a feature; rows with the same of its "
        f"{present.drop_nulls().n_unique():,} values are kept in the same part."
    ]
    if missing.any():
        has = "has" if missing.sum() == 1 else "have"
        notes.append(
            f"{missing.sum():,} of {len(cells):,} rows {has} no value in it; each is a separate group."
        )
    pairs = numbered(copies.groups * (int(groups.max()) + 1) + groups)
    apart = int(pairs.max()) - int(copies.groups.max())
    if apart:
        notes.append(
            f"{apart:,} of {len(cells):,} rows repeat{'s' * (apart == 1)} a row of another group, exactly or "
            "nearly; such copies may be in different parts."
        )
    return Copies(groups, tuple(notes))


def _absent_classes(labels: Target, parts: Parts) -> list[str]:
    counts = np.bincount(labels.codes[parts.held_out], minlength=len(labels.classes))
    absent = [labels.classes[code] for code in np.flatnonzero(counts == 0)]
    if not absent:
        return []
    return [
        f"Classes with too few rows for evaluation; their calibration is not estimable: {listed(absent)}."
    ]
