"""Preprocessing of a table into the numerical input of a network, the same in `fit` and in `predict`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Self

import numpy as np
import polars as pl
from sklearn.compose import ColumnTransformer
from sklearn.impute import MissingIndicator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

from selfcal._support.checks import Float, closest, listed, positive_int
from selfcal.errors import DataError
from selfcal.tabular.cells import read_booleans, read_dates, read_levels, refuse
from selfcal.tabular.features import FeatureGroups
from selfcal.tabular.io.reading import MEMORY_BUDGET, memory_of
from selfcal.tabular.schema import Column, Schema, infinite_cells

_REMEDY = (
    "Correct the cells, or fit again with their spelling as a missing value (--missing) or with the column declared "
    "(--kind)."
)
_DATE_PARTS = ("year", "day of year", "weekday", "hour")


@dataclass(frozen=True)
class Encoded:
    """Encoded rows, and what was unusual about them.

    Attributes:
        values: One row of numbers for each row of the table.
        unseen: By column, the number of cells with a category that was not seen in `fit`, or too rare to be kept.
        extra: Columns of the table that the model does not use.
    """

    values: Float
    unseen: Mapping[str, int] = field(default_factory=dict)
    extra: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user."""
        notes = [
            f"Column {name!r} has {count:,} cell{'' if count == 1 else 's'} with a category that was not seen in "
            "training, treated as unknown."
            for name, count in self.unseen.items()
        ]
        if self.extra:
            notes.append(f"Columns that were not in the training table are ignored: {listed(self.extra)}.")
        return tuple(notes)


class Preprocessor:
    """Encodes a table as numbers: scaled, imputed, one-hot encoded.

    Missing numbers are replaced by the mean, with an indicator column. Dates become a year with its fraction, the
    day of the year, the weekday and the hour. Of a column with very many categories the most frequent are kept; the
    others form one category, which also takes those that first occur in `predict`. If there was no such category in
    `fit`, an unknown category is encoded as zeros.

    Args:
        max_levels: Maximum number of categories per column.
        budget: Maximum memory of the table and its encoding, in bytes.

    Example:
        >>> from selfcal.tabular.inference import infer_schema
        >>> table = pl.DataFrame({"size": ["1", "3", None], "colour": ["red", "blue", "red"]})
        >>> preprocessor = Preprocessor().fit(table, infer_schema(table))
        >>> preprocessor.feature_names
        ['size', 'size is missing', 'colour=blue', 'colour=red']
        >>> preprocessor.encode(pl.DataFrame({"colour": ["green"], "size": ["2"]})).unseen
        {'colour': 1}
    """

    def __init__(self, *, max_levels: int = 100, budget: int = MEMORY_BUDGET) -> None:
        self.max_levels = positive_int("max_levels", max_levels, low=2)
        self.budget = budget

    def fit(self, table: pl.DataFrame, schema: Schema) -> Self:
        """Learn means, scales and categories from a table with the given schema."""
        self.schema = schema
        self.levels = {c.name: _Levels.of(table[c.name], self.max_levels) for c in self._of("category")}
        n_numbers = len(self._number_names())
        n_marks = sum(c.missing > 0 for c in self._of("number", "boolean", "date"))
        self._check_budget(table, n_numbers + n_marks + sum(map(len, self.levels.values())))
        steps: list[tuple[str, Any, slice]] = []
        if n_numbers:
            # scaled by the largest value first, since squares of very large numbers overflow
            scale = Pipeline([("scale", MaxAbsScaler()), ("standardize", StandardScaler())])
            steps.append(("numbers", scale, slice(0, n_numbers)))
            steps.append(("missing", MissingIndicator(error_on_new=False), slice(0, n_numbers)))
        if self.levels:
            codes = [np.arange(len(levels), dtype=np.float64) for levels in self.levels.values()]
            one_hot = OneHotEncoder(categories=codes, handle_unknown="ignore", sparse_output=False)
            steps.append(("categories", one_hot, slice(n_numbers, n_numbers + len(codes))))
        self.transformer = ColumnTransformer(steps)
        raw, _ = self._raw(table)
        raw[:, np.isnan(raw).all(axis=0)] = 0.0  # scikit-learn warns about columns without any value
        with _overflow_allowed():
            self.transformer.fit(raw)
        return self

    def transform(self, table: pl.DataFrame) -> Float:
        """Return the encoded values of a table; see `encode` for the notes."""
        return self.encode(table).values

    def encode(self, table: pl.DataFrame) -> Encoded:
        """Return the encoded table, whatever the order of its columns, with notes for the user."""
        known, given = {c.name for c in self.schema.columns} | {self.schema.target}, set(table.columns)
        missing = [c.name for c in self.schema.used if c.name not in given]
        extra = tuple(name for name in table.columns if name not in known)
        if missing:
            near = closest(missing[0], extra)
            such_as = "" if near is None else f", such as {near!r}"
            raise DataError(
                f"The table must have every column the model was trained on; missing {len(missing)}: "
                f"{listed(missing, 20)}. Look for a column that was renamed{such_as}, or a wrong separator (--sep)."
            )
        width = len(self.feature_names)
        if table.height == 0:
            return Encoded(np.empty((0, width)), {}, extra)
        self._check_budget(table, width)
        raw, unseen = self._raw(table)
        try:
            with _overflow_allowed():
                values: Float = self.transformer.transform(raw)
        except ValueError:
            raise self._too_large(raw) from None
        # imputes the mean, which is zero here; skops does not trust the dtype that scikit-learn's imputer holds
        values[np.isnan(values)] = 0.0
        if np.isinf(values).any():
            raise self._too_large(raw)
        return Encoded(values, unseen, extra)

    @property
    def feature_names(self) -> list[str]:
        """The name of each encoded feature."""
        names = self._number_names()
        if names:
            indicator = self.transformer.named_transformers_["missing"]
            names += [f"{names[i]} is missing" for i in indicator.features_]
        return names + [f"{name}={level}" for name, levels in self.levels.items() for level in levels.names]

    @property
    def n_numbers(self) -> int:
        """The number of encoded features that are numbers or parts of dates; they come first."""
        return len(self._number_names())

    @property
    def groups(self) -> FeatureGroups:
        """The encoded features that belong together, by their positions in `feature_names`."""
        start = self.n_numbers
        missing = []
        if start:
            marked = self.transformer.named_transformers_["missing"].features_.tolist()
            missing = [(number, start + place) for place, number in enumerate(marked)]
            start += len(marked)
        stops = list(accumulate(map(len, self.levels.values()), initial=start))
        return FeatureGroups(tuple(missing), tuple(pairwise(stops)))

    @property
    def columns(self) -> dict[str, list[int]]:
        """The encoded features that each column of the table becomes, by their positions in `feature_names`."""
        numbers = [c.name for kind in ("number", "boolean") for c in self._of(kind)]
        numbers += [c.name for c in self._of("date") for _ in _DATE_PARTS]
        found: dict[str, list[int]] = {name: [] for name in (*numbers, *self.levels)}
        for place, name in enumerate(numbers):
            found[name].append(place)
        for number, mark in self.groups.missing:
            found[numbers[number]].append(mark)
        for name, (start, stop) in zip(self.levels, self.groups.categories, strict=True):
            found[name].extend(range(start, stop))
        return found

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """The inputs before scaling: numbers, then categories, whose code is the position in the list."""
        categories = [{"name": name, "categories": levels.names} for name, levels in self.levels.items()]
        return [*({"name": name} for name in self._number_names()), *categories]

    def state(self) -> dict[str, Any]:
        """Return the fitted state as scikit-learn objects and JSON text, which skops loads as trusted types."""
        levels = {name: [list(v.kept), v.other, v.missing] for name, v in self.levels.items()}
        learned = {"schema": self.schema.to_dict(), "levels": levels, "max_levels": self.max_levels}
        return {"learned": json.dumps(learned), "transformer": self.transformer}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], *, budget: int = MEMORY_BUDGET) -> Self:
        """Return the preprocessor with this state."""
        learned = json.loads(state["learned"])
        self = cls(max_levels=learned["max_levels"], budget=budget)
        self.schema = Schema.from_dict(learned["schema"])
        self.levels = {
            name: _Levels(tuple(kept), *flags) for name, (kept, *flags) in learned["levels"].items()
        }
        self.transformer = state["transformer"]
        return self

    def _of(self, *kinds: str) -> list[Column]:
        return [c for c in self.schema.used if c.kind in kinds]

    def _number_names(self) -> list[str]:
        plain = [c.name for kind in ("number", "boolean") for c in self._of(kind)]
        return plain + [f"{c.name}: {part}" for c in self._of("date") for part in _DATE_PARTS]

    def _raw(self, table: pl.DataFrame) -> tuple[Float, dict[str, int]]:
        """Return numbers with NaN where missing, then category codes; and counts of unseen categories by column."""
        spellings = self.schema.missing
        blocks = [self._numbers(table)]
        for column in self._of("boolean"):
            values, unreadable = read_booleans(table[column.name], spellings)
            _refuse_any(column.name, "true or false", table, unreadable)
            blocks.append(_column_of(values))
        for column in self._of("date"):
            dates, unreadable = read_dates(table[column.name], column.form, spellings)
            _refuse_any(column.name, "dates, as at fit", table, unreadable)
            blocks.append(_date_numbers(dates))
        unseen = {}
        for name, levels in self.levels.items():
            codes, count = levels.codes(table[name])
            blocks.append(codes)
            if count:
                unseen[name] = count
        return np.hstack(blocks), unseen

    def _numbers(self, table: pl.DataFrame) -> Float:
        numeric = self._of("number")
        names = [c.name for c in numeric]
        values, unreadable = self.schema.numbers(table)
        written = {
            c.name: f" {c.notation.text}" for c in numeric if c.notation is not None and c.notation.text
        }
        for name, mask in unreadable.items():
            kind = f"numbers{written.get(name, '')}, as at fit"
            raise refuse(name, kind, table[name], mask, remedy=_REMEDY)
        numbers = values.to_numpy().astype(np.float64, copy=False).reshape(table.height, len(names))
        infinite = np.isinf(numbers)
        if infinite.any():
            if self.schema.nonfinite == "error":
                columns = np.flatnonzero(infinite.any(axis=0))
                raise infinite_cells({names[i]: pl.Series(infinite[:, i]) for i in columns})
            numbers = np.where(infinite, np.nan, numbers)
        return numbers

    def _too_large(self, raw: Float) -> DataError:
        """Return the error that names the number that is farthest outside the range seen in `fit`."""
        numbers = np.abs(raw[:, : len(self._number_names())])
        largest = self.transformer.named_transformers_["numbers"].named_steps["scale"].max_abs_
        with np.errstate(over="ignore", divide="ignore"):
            row, column = np.unravel_index(np.nanargmax(numbers / largest), numbers.shape)
        return DataError(
            f"Numbers must be of the magnitude the model was trained on; row {row + 1}, column "
            f"{self._number_names()[column]!r} is {raw[row, column]:g}, where {largest[column]:g} was the largest. "
            "Correct the cell."
        )

    def _check_budget(self, table: pl.DataFrame, width: int) -> None:
        # the table, its encoded part, and the numbers before, during and after scaling
        needed = 2 * memory_of(table) + 4 * 8 * table.height * width
        if needed > self.budget:
            raise DataError(
                f"The table and its encoding must fit into {self.budget / 2**30:.1f} GB of memory; "
                f"{table.height:,} rows of {width:,} numbers need about {needed / 2**30:.1f} GB. Use fewer rows, "
                "columns or categories (--max-levels of selfcal fit), or raise the budget (--memory of selfcal fit)."
            )


@dataclass(frozen=True)
class _Levels:
    """The categories of one column; `other` and `missing` are whether these have a separate code."""

    kept: tuple[str, ...]
    other: bool
    missing: bool

    @classmethod
    def of(cls, cells: pl.Series, most: int) -> _Levels:
        levels = read_levels(cells).alias("level")
        counts = levels.drop_nulls().value_counts().sort(["count", "level"], descending=[True, False])
        kept = counts["level"].head(most if counts.height <= most else most - 1)
        return cls(tuple(sorted(kept.to_list())), counts.height > most, levels.null_count() > 0)

    @property
    def names(self) -> list[str]:
        return [*self.kept, *["(other)"] * self.other, *["(missing)"] * self.missing]

    def __len__(self) -> int:
        return len(self.kept) + self.other + self.missing

    def codes(self, cells: pl.Series) -> tuple[Float, int]:
        """Return the code of each cell (-1 if it has none) and the number of cells with an unseen category."""
        levels = read_levels(cells)
        codes = levels.cast(pl.Enum(self.kept), strict=False).to_physical().cast(pl.Float64)
        unknown = codes.is_null() & levels.is_not_null()
        codes = codes.set(unknown, float(len(self.kept)) if self.other else -1.0)
        codes = codes.fill_null(float(len(self) - 1) if self.missing else -1.0)
        return _column_of(codes), int(unknown.sum())


def _overflow_allowed() -> np.errstate:
    """scikit-learn checks for infinity with a sum, which may overflow although all numbers are finite."""
    return np.errstate(over="ignore", invalid="ignore")


def _column_of(values: pl.Series) -> Float:
    """Return one column of float64, NaN where null."""
    return values.to_numpy().astype(np.float64, copy=False)[:, None]


def _date_numbers(dates: pl.Series) -> Float:
    """Return the parts of `_DATE_PARTS` of each date."""
    when = dates.dt
    hour = when.hour() + when.minute() / 60 + when.second() / 3600
    days = 365 + when.is_leap_year().cast(pl.Float64)
    year = when.year() + (when.ordinal_day() - 1 + hour / 24) / days
    return np.hstack([_column_of(part) for part in (year, when.ordinal_day(), when.weekday(), hour)])


def _refuse_any(name: str, kind: str, table: pl.DataFrame, unreadable: pl.Series) -> None:
    if unreadable.any():
        raise refuse(name, kind, table[name], unreadable, remedy=_REMEDY)
