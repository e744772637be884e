"""Tables and labels as estimators receive them: scikit-learn's rules, with errors that name the row and column."""

from __future__ import annotations

import math
import reprlib
import warnings
from collections.abc import Callable, Mapping
from numbers import Number
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import validate_data

from selfcal._support import checks
from selfcal._support.checks import (
    DECIMALS,
    Float,
    Int,
    label_codes,
    listed,
    numbers,
    plain,
    same_length,
    such,
)
from selfcal.errors import ConfigError, DataError, DataTypeError
from selfcal.tabular.copies import find_copies

MAX_DENSE_BYTES = 4 * 2**30
"""Largest size of a sparse table once it is dense."""


def feature_table(estimator: BaseEstimator, X: ArrayLike, *, reset: bool, name: str = "X") -> Float:
    """Return numbers as a finite float64 table; `reset` when fitting, to remember its width and column names."""
    values = numbers(X, name) if isinstance(X, np.ma.MaskedArray) else X
    try:
        # dtype=None: a conversion here would take dates for numbers, and its error would not name the cell
        raw = validate_data(
            estimator, values, reset=reset, dtype=None, ensure_all_finite=False, accept_sparse="csr"
        )
    except (TypeError, ValueError, RuntimeError) as error:
        _explain(estimator, X, name, error)
    if issparse(raw):
        raw = _dense(raw, name)
    table = _as_numbers(estimator, raw, name)
    wrong = ~np.isfinite(table)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        value = "NaN" if np.isnan(table[row, column]) else "infinity"
        raise DataError(
            f"{name} must hold finite numbers; {cell(estimator, row, column)} is {value} "
            f"({such(int(wrong.sum()), 'cell')}, NaN or infinity). Impute or drop them first, for instance with "
            "sklearn.impute.SimpleImputer."
        )
    return table


def labels(y: ArrayLike | None, n_rows: int, *, name: str = "y") -> NDArray[Any]:
    """Return `y` as a vector of discrete labels, one for each row."""
    if y is None:
        raise DataError(
            "This classifier requires y to be passed, but the target y is None. Pass the labels as y."
        )
    try:
        target = column_or_1d(y, warn=True)
    except ValueError as error:
        raise DataError(
            f"{name} must be a vector with one label per row; {str(error).splitlines()[0]} If it has one column "
            f"per class, pass {name}.argmax(axis=1)."
        ) from None
    same_length(**{name.replace("y", "X"): range(n_rows), name: target})
    missing = _missing(target)
    if isinstance(y, np.ma.MaskedArray):
        missing |= np.ma.getmaskarray(y).ravel()
    if missing.any():
        row = int(np.argmax(missing))
        raise DataError(
            f"{name} must hold a label in every row; row {row} is {plain(target[row])!r} (None, NaN, infinity "
            f"and masked count as missing; {such(int(missing.sum()), 'row')}). Drop the rows without a label."
        )
    if target.dtype.kind == "O":
        target = _one_kind(target, name)
    try:
        kind = type_of_target(target)
    except (TypeError, ValueError) as error:
        raise DataTypeError(f"{name} must hold strings, integers or booleans: {error}") from None
    if kind not in ("binary", "multiclass"):
        row = int(np.argmax(target != np.round(target))) if target.dtype.kind == "f" else 0
        raise DataError(
            f"Unknown label type: {kind}. {name} must hold discrete classes, strings, integers or booleans; "
            f"row {row} is {plain(target[row])!r}. Bin a continuous target into classes first."
        )
    return target


def class_codes(target: NDArray[Any]) -> tuple[NDArray[Any], Int]:
    """Return the distinct classes and each row's class as a code 0..k-1."""
    classes, codes = np.unique(target, return_inverse=True)
    if len(classes) < 2:
        raise DataError(
            f"y must hold at least two classes; every row is {plain(classes[0])!r}, one class only. "
            "Check that the label column is the right one."
        )
    if len(classes) > DECIMALS and classes.dtype.kind in "UO":
        decimals = [label for label in classes if _has_decimals(label)]
        if len(decimals) > DECIMALS:
            raise DataError(
                f"y must hold classes; it holds {len(decimals):,} distinct numbers such as {decimals[0]!r} and "
                "looks continuous. Bin them into classes first, or pass names that are not numbers."
            )
    return classes, codes.astype(np.int64)


def row_weights(sample_weight: ArrayLike | None, class_weight: Float | None, codes: Int) -> Float | None:
    """Return the weight of each row, times that of its class, and at most one; None if all are equal."""
    weight = checks.sample_weights(sample_weight, len(codes))
    if class_weight is not None:
        own = class_weight[codes]
        weight = own if weight is None else own * (weight / weight.max())
        if not weight.any():
            raise DataError(
                "class_weight and sample_weight must leave rows of positive weight; every row has weight zero."
            )
    # no sum of weights overflows, and only their ratios matter
    return None if weight is None else weight / weight.max()


def class_weights(given: Mapping[Any, float] | str | None, classes: NDArray[Any], codes: Int) -> Float | None:
    """Return the weight of each class, at most one: as given by label, or in inverse proportion to its rows.

    Example:
        >>> class_weights({"yes": 4.0}, np.array(["no", "yes"]), np.array([0, 0, 1]))
        array([0.25, 1.  ])
        >>> class_weights("balanced", np.array(["no", "yes"]), np.array([0, 0, 1]))
        array([0.5, 1. ])
    """
    if given is None:
        return None
    if isinstance(given, str):
        counts = np.bincount(codes)
        return counts.min() / counts
    labels = classes.tolist()
    unknown = [label for label in given if label not in labels]
    if unknown and any(
        label not in given for label in labels
    ):  # a class may be absent from a fold of the rows
        raise ConfigError(
            f"class_weight must name classes of y, which has {listed(labels)}; got {plain(unknown[0])!r}. Correct it."
        )
    weights = np.array(
        [checks.in_range(f"class_weight[{label!r}]", given.get(label, 1.0), 0) for label in labels]
    )
    return weights / (weights.max() or 1.0)


def counted_rows(codes: Int, weight: Float | None) -> Int:
    """Return the rows whose weight is not zero; at least two classes must be among them."""
    if weight is None:
        return np.arange(len(codes))
    counted = np.flatnonzero(weight)
    if np.all(codes[counted] == codes[counted[0]]):
        raise DataError(
            "sample_weight must leave at least two classes; every row whose weight is not zero is of one class, "
            f"that of row {counted[0]}. Give weight to rows of another class."
        )
    return counted


def group_numbers(groups: ArrayLike, n_rows: int, *, name: str = "groups") -> Int:
    """Return the number of each row's group; a row whose value is missing is a separate group."""
    values = np.asarray(groups)
    if values.shape != (n_rows,):
        raise DataError(
            f"{name} must hold one value for each of the {n_rows} rows; got shape {values.shape}."
        )
    missing = _missing(values)
    numbers = np.empty(n_rows, dtype=np.int64)
    try:
        present, numbers[~missing] = np.unique(values[~missing], return_inverse=True)
    except TypeError:
        raise DataTypeError(
            f"{name} must hold values of one kind, such as all numbers or all text. Try {name}.astype(str)."
        ) from None
    numbers[missing] = len(present) + np.arange(missing.sum())
    return numbers


def row_groups(estimator: BaseEstimator, table: Float, rows: Int, groups: ArrayLike | None) -> Int:
    """Return the number of each row's group; by default copies among `rows` are a group, with a warning."""
    if groups is not None:
        return group_numbers(groups, len(table))
    found = find_copies(table[rows], names=getattr(estimator, "feature_names_in_", None))
    for note in found.notes:
        warnings.warn(note, stacklevel=4)  # the caller of `fit`
    numbers = np.full(len(table), -1)
    numbers[rows] = found.groups
    return numbers


def named_classes(codes: NDArray[Any], names: ArrayLike) -> NDArray[Any]:
    """The label of each class, where the classes found in the labels are codes."""
    classes = np.asarray(names)
    if classes.ndim != 1 or len({*classes.tolist()}) != classes.size:
        raise ConfigError("class_names must be a list of different labels, one for each class.")
    if not np.array_equal(codes, np.arange(len(classes))):
        raise DataError(
            f"y must hold each code from 0 to {len(classes) - 1}, since class_names has {len(classes)} labels; it "
            f"holds {len(codes)} different values. Leave class_names out if y holds the labels themselves."
        )
    return classes


class Validation(NamedTuple):
    """Validation rows with their label codes and groups."""

    table: Float
    codes: Int
    groups: Int


def validation_rows(
    encode: Callable[[ArrayLike], Float],
    classes: NDArray[Any],
    X_val: ArrayLike | None,
    y_val: ArrayLike | None,
    groups_val: ArrayLike | None,
) -> Validation | None:
    """Return the validation rows, if there are any; copies among them are one group unless groups are given.

    Args:
        encode: Turns `X_val` into the numbers that the network takes.
        classes: The labels in the order of the codes.
        X_val: The rows.
        y_val: Their labels.
        groups_val: Their groups.
    """
    given = {"X_val": X_val, "y_val": y_val, "groups_val": groups_val}
    names = [name for name, value in given.items() if value is not None]
    if not names:
        return None
    if X_val is None or y_val is None:
        missing = "X_val" if X_val is None else "y_val"
        raise ConfigError(f"X_val and y_val go together; got {' and '.join(names)} without {missing}.")
    table = encode(X_val)
    codes = label_codes(labels(y_val, len(table), name="y_val"), len(classes), classes, name="y_val")
    if groups_val is None:
        return Validation(table, codes, find_copies(table).groups)
    return Validation(table, codes, group_numbers(groups_val, len(table), name="groups_val"))


def cell(estimator: BaseEstimator, row: int, column: int) -> str:
    """The position of a cell, with the name of its column if the estimator has names."""
    preprocessor = getattr(estimator, "preprocessor_", None)
    if preprocessor is not None:
        return f"row {row}, column {preprocessor.feature_names[column]!r}"
    names = getattr(estimator, "feature_names_in_", None)
    return f"row {row}, column {column}" + ("" if names is None else f" ({names[column]!r})")


def _dense(X: Any, name: str) -> NDArray[Any]:
    """Return a sparse table as the dense one that networks and trees need."""
    size = 8 * X.shape[0] * X.shape[1]
    if size > MAX_DENSE_BYTES:
        raise DataError(
            f"{name} must fit into {MAX_DENSE_BYTES / 2**30:.0f} GB as a dense table; {X.shape[0]:,} rows of "
            f"{X.shape[1]:,} columns take {size / 2**30:.1f} GB. Reduce the columns first, for instance with "
            "sklearn.decomposition.TruncatedSVD, or pass fewer rows at a time."
        )
    return X.toarray()


def _as_numbers(estimator: BaseEstimator, raw: NDArray[Any], name: str) -> Float:
    if raw.dtype.kind in "mMV":
        remedy = f"Turn dates into days first: ({name} - {name}.min()) / np.timedelta64(1, 'D')."
        if raw.dtype.kind == "V":
            remedy = "Pass each field as a separate column."
        raise DataTypeError(f"{name} must hold numbers; got {raw.dtype}. {remedy}")
    try:
        return raw.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        _name_the_cell(estimator, raw, name)
        raise


def _name_the_cell(estimator: BaseEstimator, raw: NDArray[Any], name: str) -> None:
    """Raise an error that names the first cell that is not a number, if there is one."""
    for column, values in enumerate(raw.T):
        try:
            values.astype(np.float64)  # much faster than cell by cell
        except (TypeError, ValueError, OverflowError):
            for row, value in enumerate(values):
                _check_number(value, f"{name} must hold numbers; {cell(estimator, row, column)}")


def _check_number(value: Any, place: str) -> None:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError) as reason:
        remedy = "Convert the column to numbers, or leave it out."
        if isinstance(value, str):
            remedy = "The model was fitted on numbers; pass numbers, or fit it on a data frame with text."
        raise (DataTypeError if isinstance(reason, TypeError) else DataError)(
            f"{place} is {reprlib.repr(plain(value))} ({reason}). {remedy}"
        ) from None


def _explain(estimator: BaseEstimator, X: ArrayLike, name: str, error: Exception) -> NoReturn:
    """Raise scikit-learn's error as ours, reworded if `X` is not a table at all."""
    table = f"{name} must be a table of numbers of shape (rows, columns)"
    try:
        cells = np.asarray(X, dtype=object)
    except (ValueError, RuntimeError):  # lists that do not fit together; a tensor that has a gradient
        raise DataError(f"{table}. {error}") from None
    if cells.ndim == 2 and isinstance(error, TypeError):  # columns without a common dtype
        _name_the_cell(estimator, cells, name)
    if hasattr(X, "toarray") or cells.ndim == 2:
        message = ("" if name == "X" else f"{name}: ") + str(error).split("\n[")[0]  # without the whole array
        raise (DataTypeError if isinstance(error, TypeError) else DataError)(message) from None
    if cells.ndim == 0:
        raise DataTypeError(
            f"{table}, such as a NumPy array or a data frame; got a {type(X).__name__}."
        ) from None
    if cells.ndim > 2:
        remedy = f"Try {name}.reshape(len({name}), -1)."
    elif len({len(row) for row in cells if isinstance(row, (list, tuple))}) > 1:
        remedy = "Its rows have different lengths; make them equal."
    else:
        remedy = (
            f"Reshape your data: {name}.reshape(-1, 1) makes it one column, {name}.reshape(1, -1) one row."
        )
    raise DataError(f"{table}; got shape {cells.shape}. {remedy}") from None


def _missing(target: NDArray[Any]) -> NDArray[np.bool_]:
    if target.dtype.kind == "f":
        return ~np.isfinite(target)
    if target.dtype.kind in "mM":
        return np.isnat(target)
    if target.dtype.kind != "O":
        return np.zeros(len(target), dtype=bool)
    return np.array([_is_missing(v) for v in target], dtype=bool)


def _is_missing(value: Any) -> bool:
    try:
        if value is None or (isinstance(value, float) and math.isinf(value)):
            return True
        return bool(value != value)  # noqa: PLR0124 # as NaN and NaT do
    except TypeError:  # pandas.NA is neither equal nor unequal to itself
        return True
    except (
        ValueError
    ):  # an array has no single truth value; it is not a label either, which is reported elsewhere
        return False


def _one_kind(target: NDArray[Any], name: str) -> NDArray[Any]:
    """Return labels in an object array as what they all are."""
    kinds = sorted({_kind(v) for v in target})
    if len(kinds) > 1:
        raise DataError(
            f"{name} must hold labels of one kind; got {' and '.join(kinds)} mixed. "
            f"Convert them first, for instance with {name}.astype(str)."
        )
    return np.array(target.tolist()) if kinds[0] in ("bool", "number") else target


def _has_decimals(label: Any) -> bool:
    try:
        return float(label) % 1 > 0
    except (TypeError, ValueError):
        return False


def _kind(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, Number):
        return "number"
    return "str" if isinstance(value, str) else type(value).__name__
