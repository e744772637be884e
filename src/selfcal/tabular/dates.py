"""The format of the dates in a column."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from selfcal.errors import DataError
from selfcal.tabular.cells import parse_dates, refuse, text_cells
from selfcal.tabular.notation import MIN_READABLE

_DAYS = ("%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y")
_TIMES = ("%H:%M", "%H:%M:%S%.f")
DATE_FORMATS = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%d.%m.%Y",
    "%d.%m.%y",
    "%d-%m-%Y",
    *_DAYS,
    *("%B %d, %Y", "%B %d %Y", "%d %B %Y", "%d. %B %Y", "%d-%B-%Y", "%d-%B-%y"),
    *(f"{day} {time}" for day in ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y") for time in _TIMES),
    *(f"{day} {time}" for day in _DAYS[:2] for time in (*_TIMES, "%I:%M %p", "%I:%M:%S %p")),
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f%#z",
    "%Y-%m-%d %H:%M:%S%.f %#z",
)
"""The formats that are recognised; others are declared."""

_LOOKS_LIKE_A_DATE = (
    r"^(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[-. ] ?\p{L}{3,9}[-. ]|\p{L}{3,9} \d{1,2},? \d{4})"
)
_SAMPLE = 100


def date_format(name: str, cells: pl.Series, missing: Sequence[str]) -> str | None:
    """Return the format in which every cell is a date, None if there is none; a day and month in doubt is an error.

    Example:
        >>> date_format("day", pl.Series(["12/31/2024", "01/02/2025"]), ())
        '%m/%d/%Y'
    """
    text = text_cells(cells, missing)
    sample = text.drop_nulls().head(_SAMPLE)
    if sample.str.contains(_LOOKS_LIKE_A_DATE).sum() < MIN_READABLE * len(sample):
        return None
    present = len(text) - text.null_count()
    possible = [form for form in DATE_FORMATS if parse_dates(sample, form).is_not_null().any()]
    wrong = {}
    for form in possible:
        values = parse_dates(text, form)
        unreadable = text.is_not_null() & values.is_null()
        if unreadable.sum() <= (1 - MIN_READABLE) * present and not (values.dt.year() < 1000).any():
            wrong[form] = unreadable
    fitting = [form for form, unreadable in wrong.items() if not unreadable.any()]
    if len(fitting) > 1:
        shown = " or ".join(f"--kind {name}=date:{form}" for form in fitting)
        raise DataError(
            f"Column {name!r} must hold dates of one format; cells such as {sample[0]!r} fit {len(fitting)}. "
            f"Pass {shown}."
        )
    if wrong and not fitting:
        raise refuse(name, "dates, as most of its cells do", cells, next(iter(wrong.values())))
    return fitting[0] if fitting else None
