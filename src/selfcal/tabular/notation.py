"""Numbers as people write them: with units, currencies, grouped thousands and decimal commas.

How numbers are written is decided once for a whole column, and new files are read in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

MIN_READABLE = 0.9
"""If at least this fraction of the cells can be read as one kind, the other cells are errors."""

_SAMPLE = 1000
_SPACES = "[\u00a0\u2000-\u200a\u202f\u205f\u3000]"
_APOSTROPHES = "[’‘´`]"
_MINUS = "[−﹣－]"
_CURRENCY = (
    r"(?:[A-Z]{1,2})?\p{Sc}|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|KRW|TRY"
    r"|SGD|HKD|RUB|Rs\.?"
)
_UNIT = r"[\p{L}%‰°\p{Sc}][\p{L}\p{Sc}\d%°²³/·.^]{0,11}(?: [\p{L}/²³]{1,8})?"
_CELL = (
    rf"^(?<open>\()?(?<sign>[+-])?\s*(?<before>{_CURRENCY})?\s*(?<inner>[+-])?"
    rf"(?<core>(?:\d[\d.,' ]*|[.,]\d+)(?:[eE][+-]?\d+)?)\s*(?<after>{_UNIT})?\s*(?<close>\))?$"
)
_EXPONENT = r"(?:[eE][+-]?\d+)?"
_MULTIPLES = ("k", "K", "M", "m", "B", "bn", "Mio", "Mio.", "mio", "mn", "T", "tsd", "Tsd.")
_KNOWN_UNIT = (
    rf"^(?:{_CURRENCY}|%|‰|[kcm]?m[²³]?|mi|ft|in|yd|[kmµ]?g|lbs?|oz|t|m?l|h|min|m?s|days?|weeks?|months?|years?|°[CF]"
    r"|k|K|M|B|bn|[kM]?W|kWh|k?Hz|k?Pa|kcal|kJ)$"
)


@dataclass(frozen=True)
class Notation:
    """How the numbers of a column are written.

    Attributes:
        decimal: The decimal separator.
        thousands: The separator between groups of three digits, if there is one.
        unit: The unit or currency of the whole column, such as "kg", "%" or "$".

    Example:
        >>> Notation(",", ".", "€").read(pl.Series(["1.234,50 €", "(3 €)", "12"])).to_list()
        [1234.5, -3.0, 12.0]
    """

    decimal: str = "."
    thousands: str = ""
    unit: str = ""

    def read(self, text: pl.Series) -> pl.Series:
        """Return stripped cells as numbers, null where they are not written in this way.

        Plain numbers, with a point and without unit, are read as well, unless the cells contradict one another, or
        the unit is a percentage or another multiple and may have been left out as well as converted.
        """
        cells = _split(text)
        values = self._amounts(cells)
        if self.decimal != ".":
            plain = Notation(unit=self.unit)._amounts(cells)
            only_plain, only_so = (
                plain.is_not_null() & values.is_null(),
                values.is_not_null() & plain.is_null(),
            )
            if only_plain.any() and not only_so.any():
                return plain
        return values

    @property
    def text(self) -> str:
        """What is special about the notation, for a note; empty if it is the plain one."""
        separators = {",": "commas", ".": "points", " ": "spaces", "'": "apostrophes"}
        parts = [
            f"in {self.unit}" if self.unit else "",
            f"with {separators[self.thousands]} between thousands" if self.thousands else "",
            "with a decimal comma" if self.decimal == "," else "",
        ]
        return ", ".join(filter(None, parts))

    def _amounts(self, cells: pl.DataFrame) -> pl.Series:
        core = cells["core"]
        written = core.str.contains(self._pattern())
        if self.thousands:
            core = core.str.replace_all(self.thousands, "", literal=True)
        if self.decimal != ".":
            core = core.str.replace(self.decimal, ".", literal=True)
        values = core.set(~written, None).cast(pl.Float64, strict=False)
        bare = cells["unit"] == ""
        readable = cells["unit"] == self.unit
        if self.unit in ("%", "‰"):  # 0.45 may be 45% without the sign
            readable |= bare & ((values.abs() > 1) | (values == 0))
        elif self.unit in _MULTIPLES:
            readable |= bare & (values == 0)
        else:
            readable |= bare
        return pl.select(
            pl.when(readable).then(pl.when(cells["negative"]).then(-values).otherwise(values))
        ).to_series()

    def _pattern(self) -> str:
        decimals = rf"(?:\{self.decimal}\d*)?"
        whole = r"\d+"
        if self.thousands:
            t = rf"\{self.thousands}" if self.thousands in ".," else self.thousands
            whole = rf"(?:\d+|[1-9]\d{{0,2}}(?:{t}\d{{3}})+)"
            if self.thousands == ",":  # India: 12,34,567
                whole = whole[:-1] + r"|[1-9]\d?(?:,\d{2})+,\d{3})"
        return rf"^(?:{whole}{decimals}|\{self.decimal}\d+){_EXPONENT}$"


_NOTATIONS = tuple(
    Notation(d, t) for d, ts in ((".", ("", ",", " ", "'")), (",", ("", ".", " ", "'"))) for t in ts
)


@dataclass(frozen=True)
class Understood:
    """How the numbers in a column of text are written.

    Attributes:
        notation: How they are written; None if they cannot be read as one quantity.
        units: The units, the most frequent first, if there are several.
        ambiguous: A cell that has two readings, with a decimal comma or point and with grouped thousands.
    """

    notation: Notation | None = None
    units: tuple[str, ...] = ()
    ambiguous: str = ""


def understand(text: pl.Series, *, decimal: str | None = None, declared: bool = False) -> Understood:
    """Find out how the numbers in stripped cells are written.

    Args:
        text: The cells, null where missing.
        decimal: The decimal separator, if it is known.
        declared: The column is known to hold numbers: the notation that most cells have is returned, however few.

    Example:
        >>> understand(pl.Series(["$1,234.50", "$12"])).notation
        Notation(decimal='.', thousands=',', unit='$')
        >>> understand(pl.Series(["5 kg", "11 lbs", "7 kg"])).units
        ('kg', 'lbs')
        >>> understand(pl.Series(["1,234", "12345"])).ambiguous
        '1,234'
    """
    needed = 0.0 if declared else MIN_READABLE
    text = text.drop_nulls()
    sample = _split(text.head(_SAMPLE))["core"]
    if not len(text) or sample.is_not_null().sum() < max(1, needed / 2 * len(sample)):
        return Understood()
    cells = _split(text)
    matched = cells.filter(pl.col("core").is_not_null())
    enclosed = cells["negative"] & text.str.starts_with("(")
    if matched.height < max(1, needed * len(text)) or (enclosed.all() and not declared):
        return Understood()
    counts = matched["unit"].value_counts(sort=True).filter(pl.col("unit") != "")
    units = tuple(counts["unit"])
    with_unit = int(counts["count"].sum())
    if len(units) > 1 and not declared and counts["count"][0] < MIN_READABLE * len(text):
        return Understood(units=units if with_unit > (1 - MIN_READABLE) * len(text) else ())
    if units and with_unit < len(text) / 2 and not declared:
        return Understood()
    unit = units[0] if units else ""
    return _with_separators(matched["core"], unit, decimal, needed * len(text))


def known_units(units: tuple[str, ...]) -> bool:
    """Whether all of these are common units, and not the letters of codes such as 12A."""
    return bool(pl.Series(units, dtype=pl.String).str.contains(_KNOWN_UNIT).all())


def _with_separators(core: pl.Series, unit: str, decimal: str | None, needed: float) -> Understood:
    """Choose the separators with which most cells can be read."""
    counts = {
        n: int(core.str.contains(n._pattern()).sum()) for n in _NOTATIONS if decimal in (None, n.decimal)
    }
    most = max(counts.values())
    if most < max(1.0, needed):
        return Understood()
    fitting = [n for n in counts if counts[n] == most]
    chosen = fitting[0]
    grouped = core.filter(core.str.contains(r"^\d{1,3}([.,])\d{3}$"))
    long = core.str.contains(r"^\d{4}").any()
    if (
        Notation(",") in fitting
        and Notation(".", ",") in fitting
        and core.str.contains(",", literal=True).any()
    ):
        if long:
            return Understood(ambiguous=str([*grouped, *core][0]))
        chosen = Notation(".", ",")
    elif Notation(",", ".") in fitting and chosen == Notation() and grouped.len() and unit and unit != "%":
        return Understood(ambiguous=str(grouped[0]))
    # where the point is decimal, a comma can only group
    if chosen == Notation() and unit and core.str.contains(".", literal=True).any():
        chosen = Notation(".", ",")
    return Understood(Notation(chosen.decimal, chosen.thousands, unit))


def _split(text: pl.Series) -> pl.DataFrame:
    """Return the digits with their separators, the unit ("" if none) and the sign of each cell."""
    plain = (
        text.str.replace_all(_SPACES, " ").str.replace_all(_APOSTROPHES, "'").str.replace_all(_MINUS, "-")
    ).str.strip_chars()
    found = plain.str.extract_groups(_CELL).struct.unnest()
    signs = pl.col("open").is_not_null(), pl.col("sign") == "-", pl.col("inner") == "-"
    paired = pl.col("open").is_null() == pl.col("close").is_null()
    one_sign = pl.sum_horizontal(pl.col("open", "sign", "inner").is_not_null()) <= 1
    one_unit = pl.col("before").is_null() | pl.col("after").is_null()
    return found.select(
        pl.when(paired & one_sign & one_unit).then(pl.col("core").str.strip_chars()).alias("core"),
        pl.coalesce("before", "after", pl.lit("")).str.strip_chars().alias("unit"),
        pl.any_horizontal(*(sign.fill_null(value=False) for sign in signs)).alias("negative"),
    )
