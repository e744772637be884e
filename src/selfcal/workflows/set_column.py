"""Prediction sets as a column of a table: lists of class names in JSON, such as ``["no", "yes"]``."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from selfcal.conformal import SetCounts

SET_COLUMN = "prediction_set"
"""The column that `selfcal predict --sets` writes and `selfcal evaluate` evaluates."""


def set_column(sets: NDArray[np.bool_], classes: Sequence[str]) -> pl.Series:
    """Return the sets (rows, classes) as text.

    >>> set_column(np.array([[True, False], [True, True]]), ["a", "b"]).to_list()
    ['["a"]', '["a", "b"]']
    """
    if not len(sets):
        return pl.Series(SET_COLUMN, [], dtype=pl.String)
    distinct, place = np.unique(sets, axis=0, return_inverse=True)
    names = np.array(classes, dtype=object)
    texts = pl.Series([json.dumps(names[row].tolist(), ensure_ascii=False) for row in distinct])
    return texts.gather(place.ravel()).alias(SET_COLUMN)


def count_sets(counts: SetCounts, sets: pl.Series, labels: pl.Series) -> bool:
    """Add the sets of some rows with known classes to the counts; False, and nothing added, if a text is no list."""
    members = {text: _members(text) for text in sets.unique().to_list()}
    if any(known is None for known in members.values()):
        return False
    rows = zip(labels.to_list(), (members[text] or () for text in sets.to_list()), strict=True)
    counts.add((label, label in known, len(known)) for label, known in rows)
    return True


def _members(text: str | None) -> list[str] | None:
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else None
