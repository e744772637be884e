"""Names of columns that hold the prediction for one class, such as prob_cat, cat_prob and P(cat)."""

from __future__ import annotations

import re
from collections.abc import Sequence

WHOLE = r"^([+-]?\d+)\.0*$"
"""A whole number with a decimal point."""

Affix = tuple[str, str]
"""What is before the name of the class, and what is after it."""

AFFIXES: tuple[Affix, ...] = (
    *(
        (start, "")
        for start in ("prob_class_", "proba_class_", "prob_", "proba_", "probability_", "p_", "P_")
    ),
    *((start, "") for start in ("prob.", "p.", "prob ", "y_prob_", "y_proba_", "logit_", "logits_")),
    *((f"{start}(", ")") for start in ("P", "p", "Pr", "prob", "probability", "confidence")),
    *(("", end) for end in ("_prob", "_proba", "_probability", " prob", ".prob", "_logit")),
)
"""Before and after the name of a class; the first that fits is used."""

SHORT_AFFIXES: tuple[Affix, ...] = (
    *((start, "") for start in ("class_", "score_", "prob", "proba", "class", "logit", "p", "")),
    *(("", end) for end in ("_p", "_score")),
)
"""Those that other columns may have, too: only a known class or, after a prefix, a whole number is accepted."""


def whole(label: str) -> str:
    """A label without the decimals of a whole number.

    >>> whole("1.0"), whole("1.5"), whole("a.0")
    ('1', '1.5', 'a.0')
    """
    return re.sub(WHOLE, r"\1", label)


def class_columns(names: Sequence[str], labels: set[str], prefix: str | None = None) -> dict[str, str]:
    """The column of each class, in the order of the table; empty if some label has none.

    For two labels, the column of one of them is enough.

    Args:
        names: The names of the columns.
        labels: The known classes.
        prefix: The prefix before the class, if it is known.

    Example:
        >>> class_columns(["id", "cat_prob", "dog_prob"], {"cat", "dog"})
        {'cat': 'cat_prob', 'dog': 'dog_prob'}
    """
    tried = (*AFFIXES, *SHORT_AFFIXES) if prefix is None else ((prefix, ""),)
    candidates = [(affix, _matches(names, affix, labels)) for affix in tried]
    for _, found in candidates:
        if len(found) >= 2 and labels <= {*found, *map(whole, found)}:
            return found
    for affix, found in candidates:
        one = {name: column for name, column in found.items() if {name, whole(name)} & labels}
        if len(one) == 1 and len(labels) == 2 and affix != ("", ""):
            return one
    return {}


def without_affix(names: Sequence[str]) -> list[str]:
    """The classes that columns are named after.

    >>> without_affix(["P(cat)", "P(dog)"])
    ['cat', 'dog']
    """
    for start, end in AFFIXES:
        if all(_within(name, (start, end)) for name in names):
            return [name[len(start) : len(name) - len(end)] for name in names]
    return list(names)


def _matches(names: Sequence[str], affix: Affix, labels: set[str]) -> dict[str, str]:
    start, end = affix
    found = {name[len(start) : len(name) - len(end)]: name for name in names if _within(name, affix)}
    if affix not in SHORT_AFFIXES:
        return found
    return {
        name: column
        for name, column in found.items()
        if name in labels or whole(name) in labels or (start and name.isdecimal())
    }


def _within(name: str, affix: Affix) -> bool:
    start, end = affix
    return name.startswith(start) and name.endswith(end) and len(name) > len(start) + len(end)
