"""Schema inference: the kind of each column of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import polars as pl
from polars.selectors import by_name

from selfcal._support.checks import listed, one_of, shorten
from selfcal.errors import ConfigError, DataError
from selfcal.tabular.cells import (
    COLUMN_GROUP,
    MISSING,
    read_booleans,
    read_dates,
    read_levels,
    read_numbers,
    refuse,
    text_cells,
)
from selfcal.tabular.dates import date_format
from selfcal.tabular.notation import MIN_READABLE, Notation, Understood, known_units, understand
from selfcal.tabular.schema import Column, Schema, column_named, infinite_cells

KINDS = ("number", "boolean", "category", "date", "drop")
MIN_ROWS = 20
"""Columns with fewer values than this are never taken for free text or an identifier."""

_INT64_LIMIT = 2.0**63


def infer_schema(
    table: pl.DataFrame,
    *,
    target: str | None = None,
    kinds: Mapping[str, str] | None = None,
    missing: Iterable[str] = (),
    nonfinite: str = "error",
    decimal: str | None = None,
) -> Schema:
    """Infer the kind of each column.

    A column holds numbers, booleans (true, false), dates or categories. Uninformative columns are dropped: constant
    ones, those with all values missing, and identifiers. Free text is an error, and so is a column of numbers with
    some cells that are not numbers.

    Args:
        table: The table, as `read_table` returns it.
        target: The column with the labels, which is left out.
        kinds: Kinds that override the inference, by column name: "number", "boolean", "category", "drop", "date".
            A date may have a format, as in "date:%d/%m/%Y", and a number its decimal separator, as in "number:,".
        missing: Further spellings of a missing value, besides those of `selfcal.tabular.cells.MISSING`.
        nonfinite: "error", or "impute" to treat infinite numbers as missing.
        decimal: The decimal separator of all numbers, "." or ","; None finds it out for each column.

    Returns:
        The schema; `print` it, and see its `notes`.

    Example:
        >>> colours = ["red", "blue", "red"]
        >>> table = pl.DataFrame({"size": ["4.5", "", "3"], "colour": colours, "label": ["a", "b", "a"]})
        >>> print(infer_schema(table, target="label"))
        column  kind      missing  distinct
        size    number          1         2
        colour  category        0         2
    """
    check_numbers(nonfinite, decimal)
    features = table if target is None else table.drop(by_name(column_named(table, target)))
    declared = checked_kinds(kinds or {})
    for name in declared:
        column_named(features, name)
    schema = Schema((), (*MISSING, *missing), nonfinite, target, decimal or ".")
    infinite: dict[str, pl.Series] = {}
    columns: list[Column] = []
    for start in range(0, features.width, COLUMN_GROUP):
        group = features[:, start : start + COLUMN_GROUP]
        for facts in _facts(group, schema, decimal):
            kind, _, form = declared.get(facts.name, "").partition(":")
            column = _declared(facts, kind, form or None) if kind else _inferred(facts)
            if column.kind == "number" and facts.n_infinite:
                infinite[column.name] = facts.values.is_infinite().fill_null(value=False)
            columns.append(column)
    if infinite and nonfinite == "error":
        raise infinite_cells(infinite)
    if not any(c.kind != "drop" for c in columns):
        raise DataError(
            "The table must have a feature column besides the target; every column is constant, missing or an "
            "identifier. If that is wrong, declare a column with --kind NAME=category."
        )
    return replace(schema, columns=tuple(columns))


@dataclass(frozen=True)
class _Facts:
    """Statistics of one column: its cells, the same as numbers, and counts."""

    name: str
    cells: pl.Series
    values: pl.Series
    unreadable: pl.Series | None
    n_missing: int
    n_distinct: int
    n_infinite: int
    low: float
    high: float
    whole: bool
    padded: bool
    spellings: tuple[str, ...]
    decimal: str | None
    notation: Notation | None = None

    def column(
        self, kind: str, note: str = "", *, distinct: int | None = None, form: str | None = None
    ) -> Column:
        n = self.n_distinct if distinct is None else distinct
        notation = self.notation if kind == "number" else None
        return Column(self.name, kind, self.n_missing, n, note or self._written(notation), form, notation)

    def written_in(self, notation: Notation) -> _Facts:
        """The same column, with its cells read in a notation."""
        values = notation.read(text_cells(self.cells, self.spellings))
        known = values.drop_nulls()
        unreadable = text_cells(self.cells, self.spellings).is_not_null() & values.is_null()
        return replace(
            self,
            values=values,
            unreadable=unreadable if unreadable.any() else None,
            n_distinct=known.n_unique(),
            n_infinite=int(known.is_infinite().sum()),
            low=_number(known.min()),
            high=_number(known.max()),
            whole=bool((known == known.round()).all()),
            notation=notation,
        )

    def _written(self, notation: Notation | None) -> str:
        """Return what was understood, with an example that shows it."""
        if notation is None:
            return ""
        text = text_cells(self.cells, self.spellings)
        example = int((text.str.len_chars() * self.values.is_not_null()).arg_max() or 0)
        grouped = notation.thousands != "," or text.str.contains(",", literal=True).any()
        shown = notation if grouped else replace(notation, thousands="")
        kind = f"numbers {shown.text}".strip()
        return f"is read as {kind}: {shorten(text[example])!r} is {self.values[example]:.15g}"


def _facts(group: pl.DataFrame, schema: Schema, decimal: str | None) -> Iterator[_Facts]:
    values, unreadable = read_numbers(group, schema.missing, decimal=schema.decimal)
    counted = values.select(pl.all().drop_nulls().n_unique()).row(0)
    infinite = values.select(pl.all().is_infinite().sum()).row(0)
    lowest, highest = values.select(pl.all().min()).row(0), values.select(pl.all().max()).row(0)
    whole = values.select((pl.all() == pl.all().round()).all()).row(0)
    zeros = pl.col(pl.String).filter(pl.col(pl.String).str.starts_with("0"))
    padded = group.select(zeros.str.contains(r"^0\d").any()).to_dict(as_series=False)
    missing = values.null_count().row(0)
    for i, name in enumerate(group.columns):
        mask = unreadable.get(name)
        yield _Facts(
            name,
            group[name],
            values[name],
            mask,
            missing[i] - (0 if mask is None else int(mask.sum())),
            counted[i],
            infinite[i],
            lowest[i] or 0.0,
            highest[i] or 0.0,
            whole[i],
            padded.get(name, [False])[0],
            schema.missing,
            decimal,
        )


def _inferred(facts: _Facts) -> Column:
    cells, present = facts.cells, len(facts.cells) - facts.n_missing
    if present == 0:
        return facts.column("drop", "is dropped: all values are missing")
    if cells.dtype == pl.Boolean:
        return _unless_constant(facts, facts.column("boolean"))
    if cells.dtype in (pl.Date, pl.Datetime):
        return _unless_constant(facts, facts.column("date", distinct=cells.drop_nulls().n_unique()))
    if facts.unreadable is None:
        return _number_column(facts, present)
    column = None if facts.padded else _written_number(facts, present)
    if column is not None:
        return column
    if facts.unreadable.sum() <= (1 - MIN_READABLE) * present:
        raise refuse(facts.name, "numbers, as most of its cells do", cells, facts.unreadable)
    return _text_column(facts, present)


def _written_number(facts: _Facts, present: int) -> Column | None:
    """Return the column of text as numbers, or as categories if its units are mixed; None if it holds neither."""
    found = _understood(facts)
    if found.notation is not None:
        written = facts.written_in(found.notation)
        if written.unreadable is None:
            return _number_column(written, present)
        kind = f"numbers {found.notation.text}".strip()
        raise refuse(facts.name, f"{kind}, as most of its cells do", facts.cells, written.unreadable)
    if found.ambiguous:
        raise _ambiguous(facts.name, found.ambiguous)
    if not found.units or not known_units(found.units):
        return None
    column = _text_column(facts, present)
    mixed = f"mixes the units {listed(found.units, 4)}; convert them to one to use it as a number"
    note = f"{column.note}; it {mixed}" if column.note else f"is taken as categories: it {mixed}"
    return replace(column, note=note)


def _number_column(facts: _Facts, present: int) -> Column:
    cells = facts.cells
    if facts.whole and max(-facts.low, facts.high) >= _INT64_LIMIT and _has_long_integers(cells):
        distinct = cells.drop_nulls().n_unique()
        why = "holds integers beyond 64 bits, which a float cannot represent"
        if present >= MIN_ROWS and distinct > MIN_READABLE * present:
            return facts.column(
                "drop", f"is dropped: it {why}, and looks like an identifier", distinct=distinct
            )
        return facts.column("category", f"{why}, and is taken as categories", distinct=distinct)
    if facts.padded:
        levels = read_levels(cells)
        distinct = levels.drop_nulls().n_unique()
        if present >= MIN_ROWS and distinct > MIN_READABLE * present:
            return facts.column("drop", "is dropped: codes that look like an identifier", distinct=distinct)
        note = "has codes with leading zeros and is taken as categories"
        return facts.column("category", note, distinct=distinct)
    if (
        facts.whole
        and present >= MIN_ROWS
        and facts.n_distinct == present
        and facts.high - facts.low == present - 1
    ):
        return facts.column("drop", "is dropped: it numbers the rows")
    return _unless_constant(facts, facts.column("number"))


def _text_column(facts: _Facts, present: int) -> Column:
    cells = facts.cells
    truth, unreadable = read_booleans(cells, facts.spellings)
    if not unreadable.any():
        return _unless_constant(facts, facts.column("boolean", distinct=truth.drop_nulls().n_unique()))
    form = date_format(facts.name, cells, facts.spellings)
    if form is not None:
        distinct = text_cells(cells, facts.spellings).drop_nulls().n_unique()
        return _unless_constant(facts, facts.column("date", distinct=distinct, form=form))
    column = _category_column(facts)
    if present >= MIN_ROWS and column.distinct > present / 2 and _words(cells) >= 3:
        raise DataError(
            f"Column {facts.name!r} must hold numbers, dates or categories; it looks like free text, such as "
            f"{_excerpt(cells)!r} ({column.distinct:,} distinct cells). Leave it out with --kind {facts.name}=drop, "
            f"or declare it: --kind {facts.name}=category."
        )
    if present >= MIN_ROWS and column.distinct > MIN_READABLE * present:
        return facts.column(
            "drop",
            "is dropped: nearly all values are distinct, as in an identifier",
            distinct=column.distinct,
        )
    return _unless_constant(facts, column)


def _category_column(facts: _Facts) -> Column:
    levels = read_levels(facts.cells)
    return Column(facts.name, "category", levels.null_count(), levels.drop_nulls().n_unique())


def _unless_constant(facts: _Facts, column: Column) -> Column:
    if column.distinct == 1 and column.missing == 0:
        return facts.column("drop", "is dropped: all values are equal", distinct=1)
    return column


def _declared(facts: _Facts, kind: str, form: str | None) -> Column:
    cells = facts.cells
    if kind == "drop":
        return facts.column("drop", distinct=cells.drop_nulls().n_unique())
    if kind == "category":
        return _category_column(facts)
    if kind == "number":
        return _declared_number(facts, form)
    if kind == "boolean":
        values, unreadable = read_booleans(cells, facts.spellings)
    else:
        form = form or date_format(facts.name, cells, facts.spellings)
        values, unreadable = read_dates(cells, form, facts.spellings)
    if unreadable.any():
        raise refuse(
            facts.name,
            {"boolean": "true or false", "date": "dates"}[kind] + ", as declared",
            cells,
            unreadable,
        )
    return Column(facts.name, kind, values.null_count(), values.drop_nulls().n_unique(), form=form)


def _declared_number(facts: _Facts, decimal: str | None) -> Column:
    """The column as numbers, however inference would have taken it; a decimal separator settles what is ambiguous."""
    if facts.cells.dtype == pl.String and (facts.unreadable is not None or decimal is not None):
        facts = replace(facts, decimal=decimal or facts.decimal)
        found = _understood(facts, declared=True)
        if found.ambiguous:
            raise _ambiguous(facts.name, found.ambiguous)
        if found.notation is not None and (found.notation != Notation() or facts.unreadable is not None):
            facts = facts.written_in(found.notation)
    if facts.unreadable is not None:
        kind = "numbers" if facts.notation is None else f"numbers {facts.notation.text}".strip()
        raise refuse(facts.name, f"{kind}, as declared", facts.cells, facts.unreadable)
    return facts.column("number")


def _understood(facts: _Facts, *, declared: bool = False) -> Understood:
    if facts.cells.dtype != pl.String:
        return Understood()
    return understand(text_cells(facts.cells, facts.spellings), decimal=facts.decimal, declared=declared)


def _ambiguous(name: str, cell: str) -> DataError:
    return DataError(
        f"Column {name!r} must hold numbers that can be read in one way; cells such as {cell!r} may have a decimal "
        f"separator or grouped thousands. Declare which: --kind '{name}=number:.' for a decimal point, "
        f"--kind '{name}=number:,' for a decimal comma."
    )


def check_numbers(nonfinite: str, decimal: str | None) -> None:
    """Check the two options of `infer_schema` about numbers."""
    one_of("nonfinite", nonfinite, ("error", "impute"))
    if decimal is not None:
        one_of("decimal", decimal, (".", ","))


def checked_kinds(kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the declared kinds of columns, if each is one."""
    for name, kind in kinds.items():
        base, colon, form = kind.partition(":")
        one_of(f"kinds[{name!r}]", base, KINDS)
        if colon and not (form in (".", ",") if base == "number" else base == "date" and "%" in form):
            raise ConfigError(
                f"kinds[{name!r}] may name a format for a date only, as in 'date:%d/%m/%Y', or the decimal separator "
                f"of numbers, as in 'number:,'; got {kind!r}."
            )
    return dict(kinds)


def _has_long_integers(cells: pl.Series) -> bool:
    text = cells.cast(pl.String).str.strip_chars()
    return cells.dtype.is_integer() or bool(text.str.contains(r"^[+-]?\d{19,}$").any())


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _words(cells: pl.Series) -> float:
    return float(str(cells.drop_nulls().head(10_000).str.count_matches(r"\S+").mean() or 0))


def _excerpt(cells: pl.Series) -> str:
    return shorten(cells.drop_nulls().head(1).item())
