"""Data frames as estimators receive them: columns are checked by name, and cells encoded as numbers."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from selfcal._support.checks import Int
from selfcal.errors import ConfigError, DataError
from selfcal.tabular.copies import find_copies
from selfcal.tabular.frames import Frame, array_names, as_frame, is_frame, is_mixed, mixed_frame
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.preprocessing import Encoded, Preprocessor
from selfcal.tabular.schema import Schema, column_values

NAMES_SHOWN = 5


def frame_of(X: Any) -> Frame | None:
    """Return the cells of a data frame, or of an array with text; None for numbers, which need no encoding."""
    if is_frame(X):
        return _not_empty(as_frame(X), "X")
    return _not_empty(mixed_frame(X), "X") if is_mixed(X) else None


def check_names_unused(**settings: object) -> None:
    """Raise if a setting about the columns of data frames is given with an array of numbers."""
    for name, value in settings.items():
        if value is not None:
            raise ConfigError(
                f"{name} is for data frames, whose columns have names; X is an array of numbers. Leave it out, or "
                "pass a data frame."
            )


def fitted_preprocessor(frame: Frame, rows: Int, kinds: Mapping[str, str] | None) -> Preprocessor:
    """Infer the kinds of the columns, with a warning about each unusual one, and learn their encoding from `rows`."""
    table = frame.table[rows]
    with _in_words_of_python():
        schema = infer_schema(table, kinds={**frame.kinds, **(kinds or {})})
        preprocessor = Preprocessor(budget=sys.maxsize).fit(table, schema)
    for note in schema.notes:
        warnings.warn(note, stacklevel=3)  # the caller of `fit`
    return preprocessor


def copies_of_rows(table: pl.DataFrame, schema: Schema, rows: Int) -> Int:
    """Return the number of each row's group: copies among `rows` are one, with a warning."""
    used = schema.used
    values = column_values(table[rows], schema)
    found = find_copies(values, kinds=[c.kind for c in used], names=[c.name for c in used])
    for note in found.notes:
        warnings.warn(note, stacklevel=3)  # the caller of `fit`
    groups = np.full(table.height, -1)
    groups[rows] = found.groups
    return groups


def remember_columns(estimator: BaseEstimator, preprocessor: Preprocessor) -> None:
    """Set scikit-learn's attributes about the columns; those that are only numbered have no names."""
    names = [column.name for column in preprocessor.schema.columns]
    estimator.n_features_in_ = len(names)
    estimator.__dict__.pop("feature_names_in_", None)
    if names not in (array_names(len(names)), [*map(str, range(len(names)))]):
        estimator.feature_names_in_ = np.array(names, dtype=object)


def encoded(estimator: BaseEstimator, preprocessor: Preprocessor, X: Any, name: str = "X") -> Encoded:
    """Return the encoded rows of a data frame or array, for a model that was fitted on a data frame or on text.

    As scikit-learn requires, columns must be in the order they had in `fit`. Columns that were not there are ignored,
    and those that the model does not use may be left out. The columns of an array are taken by their position.
    """
    frame = _not_empty(_named_cells(estimator, preprocessor.schema, X, name), name)
    with _in_words_of_python():
        return preprocessor.encode(frame.table)


def _named_cells(estimator: BaseEstimator, schema: Schema, X: Any, name: str) -> Frame:
    known = [column.name for column in schema.columns]
    if is_frame(X):
        frame = as_frame(X, name)
        if hasattr(estimator, "feature_names_in_") or {*known} <= {*frame.table.columns}:
            _check_names(schema, frame.table.columns)
            return frame
    cells = X if is_frame(X) else np.asarray(X, dtype=object)
    try:
        validate_data(estimator, cells, reset=False, skip_check_array=True)  # the width, and a missing name
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a table with the columns of fit. {error}") from None
    if not is_frame(X):
        return mixed_frame(cells, known, name)
    return replace(frame, table=frame.table.rename(dict(zip(frame.table.columns, known, strict=True))))


def _not_empty(frame: Frame, name: str) -> Frame:
    if not len(frame):
        raise DataError(f"{name} must have at least one row; it has none.")
    return frame


def _check_names(schema: Schema, given: Sequence[str]) -> None:
    """Compare names as scikit-learn does, in its words."""
    known, here = dict.fromkeys(column.name for column in schema.columns), {*given}
    missing = {column.name for column in schema.used} - here
    problem = ""
    if missing:
        unseen = here - {*known, schema.target}
        problem += _listed("Feature names unseen at fit time", unseen) if unseen else ""
        problem += _listed("Feature names seen at fit time, yet now missing", missing)
    elif [column for column in given if column in known] != [column for column in known if column in here]:
        problem = (
            "Feature names must be in the same order as they were in fit.\nSelect the columns in that order, that of "
            "feature_names_in_."
        )
    if problem:
        raise DataError(f"The feature names should match those that were passed during fit.\n{problem}")


def _listed(title: str, names: set[str]) -> str:
    shown = sorted(names)[:NAMES_SHOWN] + ["..."] * (len(names) > NAMES_SHOWN)
    return f"{title}:\n" + "".join(f"- {name}\n" for name in shown)


@contextmanager
def _in_words_of_python() -> Iterator[None]:
    """A context in which advice on options of the command line becomes advice on arguments and cells."""
    try:
        yield
    except DataError as error:
        text = str(error)
        for option, advice in _ADVICE:
            text = option.sub(advice, text)
        error.args = (text,)
        raise


_ADVICE = tuple(
    (re.compile(option), advice)
    for option, advice in {
        r"--kind '(.+?)=([^']+)'": r"kinds={'\1': '\2'}",
        r"--kind (.+?)=(date:\S+?|\w+)(?=[,.;)]?(?:\s|$))": r"kinds={'\1': '\2'}",
        r"with the column declared \(--kind\)": "with the column declared (kinds)",
        r"add their spelling to the missing values \(--missing .+?\)(?=, or declare)": "make them None",
        r"their spelling as a missing value \(--missing\)": "None in their place",
        r"pass --nonfinite impute to treat them as missing": "make them None to treat them as missing",
        r", or a wrong separator \(--sep\)": "",
        r"columns or categories \(--max-levels of .+\), or raise .+\)": "or columns",
        r"first below the header": "first",
    }.items()
)
