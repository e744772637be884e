"""Tables and labels as estimators receive them: scikit-learn's rules, with errors that name the place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import validate_data

from selfcal._checks import Float, Int, same_length
from selfcal.errors import DataError, DataTypeError


def feature_table(estimator: BaseEstimator, X: ArrayLike, *, reset: bool) -> Float:
    """Return `X` as a finite float64 table; `reset` when fitting, to remember its width and column names."""
    try:
        table = validate_data(estimator, X, reset=reset, dtype=np.float64, ensure_all_finite=False)
    except (ValueError, TypeError) as error:
        _name_the_cell(X, error)
        if isinstance(error, ValueError):
            raise DataError(str(error)) from None
        raise
    wrong = ~np.isfinite(table)
    if wrong.any():
        row, column = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        value = "NaN" if np.isnan(table[row, column]) else "infinity"
        raise DataError(
            f"X must hold finite numbers; row {row}, column {_column(X, int(column))} is {value} "
            f"({int(wrong.sum())} such cells, NaN or infinity). Impute or drop them first, for instance with "
            "sklearn.impute.SimpleImputer."
        )
    return table


def labels(y: ArrayLike | None, n_rows: int) -> NDArray[Any]:
    """Return `y` as a vector of discrete labels, one for each row."""
    if y is None:
        raise DataError(
            "This classifier requires y to be passed, but the target y is None. Pass the labels as y."
        )
    target = column_or_1d(y, warn=True)
    same_length(X=range(n_rows), y=target)
    missing = _missing(target)
    if missing.any():
        row = int(np.argmax(missing))
        raise DataError(
            f"y must hold a label in every row; row {row} is {target[row]!r} (None, NaN or infinity count as "
            f"missing; {int(missing.sum())} such rows). Drop the rows without a label."
        )
    kinds = {str if isinstance(v, str) else type(v) for v in target} if target.dtype.kind == "O" else set()
    if len(kinds) > 1 and str in kinds:
        raise DataError(
            f"y must hold labels of one kind; got {' and '.join(sorted(k.__name__ for k in kinds))} mixed. "
            "Convert them first, for instance with y.astype(str)."
        )
    if type_of_target(target) not in ("binary", "multiclass"):
        row = int(np.argmax(target != np.round(target))) if target.dtype.kind == "f" else 0
        raise DataError(
            f"Unknown label type: {type_of_target(target)}. y must hold discrete classes; row {row} is "
            f"{target[row]!r}. Cut a continuous target into classes first."
        )
    return target


def _missing(target: NDArray[Any]) -> NDArray[np.bool_]:
    if target.dtype.kind == "f":
        return ~np.isfinite(target)
    if target.dtype.kind != "O":
        return np.zeros(len(target), dtype=bool)
    return np.array(
        [v is None or (isinstance(v, float) and not math.isfinite(v)) for v in target], dtype=bool
    )


def class_codes(target: NDArray[Any]) -> tuple[NDArray[Any], Int]:
    """Return the distinct classes and each row's class as a code 0..k-1."""
    classes, codes = np.unique(target, return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"y must hold at least two classes; every row is {classes[0]!r}, one class only. "
            "Check that the label column is the right one."
        )
    return classes, codes.astype(np.int64)


def _name_the_cell(X: ArrayLike, error: Exception) -> None:
    """Raise an error that names the first cell of `X` that is no number, if there is one."""
    if hasattr(X, "toarray"):
        return
    cells = np.asarray(X, dtype=object)
    if cells.ndim != 2:
        return
    for column in range(cells.shape[1]):
        for row, value in enumerate(cells[:, column]):
            try:
                float(value)
            except (ValueError, TypeError) as reason:
                kind = DataTypeError if isinstance(error, TypeError) else DataError
                raise kind(
                    f"X must hold numbers; row {row}, column {_column(X, column)} is {value!r} ({reason}). "
                    "Encode text first, for instance with sklearn.preprocessing.OneHotEncoder."
                ) from None


def _column(X: ArrayLike, column: int) -> str:
    names = getattr(X, "columns", None)
    return str(column) if names is None else repr(list(names)[column])
