"""Validation of arguments, and the wording of its errors.

A message states what was expected, what came, and what to do. NumPy only, so that metrics never load torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfcal.errors import ConfigError, DataError

Float = NDArray[np.float64]
Int = NDArray[np.int64]

MAX_EXPONENT = 200
"""The largest weight is between 2 to minus this power and 2 to this power, so that fourth powers can be summed."""

ROW_SUM_TOLERANCE = 1e-4
"""Tolerance for the sum of a row of probabilities; for float16 it is their epsilon, 1e-3."""

MAX_NAME_LENGTH = 100
"""Longer names are not compared with others to suggest one of them."""

DECIMALS = 100
"""Labels with more distinct fractional numbers than this look like measurements."""


def as_array(values: Any, dtype: Any = None) -> NDArray[Any]:
    """Return `values` as a NumPy array; tensors are detached and moved to the CPU first."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu()
    return np.asarray(values, dtype=dtype)


def numbers(values: ArrayLike, name: str) -> Float:
    """Return `values` as a float64 array, with masked values as NaN; anything but numbers is an error."""
    try:
        if isinstance(values, np.ma.MaskedArray):
            return np.ma.filled(values.astype(np.float64), np.nan)
        return as_array(values, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{name} must hold numbers in rows of equal length; got: {error}.") from error


def rounding_tolerance(values: ArrayLike) -> float:
    """Return the tolerance for rounding errors of probabilities of this precision."""
    half = as_array(values).dtype == np.float16
    return float(np.finfo(np.float16).eps) if half else ROW_SUM_TOLERANCE


def plain(value: Any) -> Any:
    """Return a NumPy scalar as a Python object, which reads better in a message."""
    return value.item() if isinstance(value, np.generic) else value


def shorten(value: object, max_length: int = 60) -> str:
    """Return a value as truncated text for a message: names read from a file may be megabytes long.

    Example:
        >>> shorten("abcdef", 3)
        'abc...'
    """
    text = str(value)
    return text if len(text) <= max_length else f"{text[:max_length]}..."


def listed(names: Sequence[object], most: int = 10) -> str:
    """Return the names as text for a message, with dots after the first ones.

    Example:
        >>> listed(["a", "b", "c"], most=2)
        "'a', 'b', ..."
    """
    return ", ".join(map(repr, names[:most])) + (", ..." if len(names) > most else "")


def such(n: int, noun: str) -> str:
    """Return the number of rows or cells of a kind, for a message.

    Example:
        >>> such(1, "row"), such(1077, "cell")
        ('1 such row', '1,077 such cells')
    """
    return f"{n:,} such {noun}{'' if n == 1 else 's'}"


def closest(name: str, options: Iterable[str]) -> str | None:
    """Return the option that differs from `name` in case only, or else in the fewest letters; None if none is close.

    One letter in three may be missing, added, different or swapped with the next one.

    Example:
        >>> closest("Uniform", ["uniform", "quantile"]), closest("unifrom", ["uniform"]), closest("bins", ["norm"])
        ('uniform', 'uniform', None)
    """
    known = [option for option in options if max(len(name), len(option)) <= MAX_NAME_LENGTH]
    distances = {option: _edits(name.casefold(), option.casefold()) for option in known}
    near = [option for option, edits in distances.items() if edits <= max(len(name), len(option)) / 3]
    return min(near, key=lambda option: (distances[option], _edits(name, option)), default=None)


def _edits(a: str, b: str) -> int:
    """Return how many letters must be inserted, deleted, replaced or swapped with the next to turn `a` into `b`."""
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, letter in enumerate(a, start=1):
        row = [i]
        for j, other in enumerate(b, start=1):
            edits = min(last[j] + 1, row[-1] + 1, last[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                edits = min(edits, before[j - 2] + 1)
            row.append(edits)
        before, last = last, row
    return last[-1]


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return a sentence that suggests the closest option, with a space before it; empty if none is close.

    Example:
        >>> did_you_mean("unifrom", ["uniform", "quantile"])
        " Did you mean 'uniform'?"
    """
    near = closest(name, options)
    return "" if near is None else f" Did you mean {near!r}?"


def one_of(name: str, value: str, allowed: Iterable[str]) -> str:
    """Return `value` if it is allowed; otherwise raise an error that suggests the closest allowed value."""
    options = list(allowed)
    if value in options:
        return value
    hint = did_you_mean(str(value), options)
    raise ConfigError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}.{hint}")


def in_range(
    name: str, value: float, low: float = -np.inf, high: float = np.inf, *, open_low: bool = False
) -> float:
    """Return `value` if it is a finite number within [low, high] (or (low, high] with `open_low`)."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if number and (value > low if open_low else value >= low) and value <= high and abs(value) < np.inf:
        return value
    left = "(" if open_low or np.isinf(low) else "["
    right = ")" if np.isinf(high) else "]"
    raise ConfigError(f"{name} must be a number in {left}{low}, {high}{right}; got {value!r}.")


def positive_int(name: str, value: Any, *, low: int = 1) -> int:
    """Return `value` if it is a whole number of at least `low`."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= low:
        return int(value)
    raise ConfigError(f"{name} must be a whole number of at least {low}; got {value!r}.")


def n_jobs(value: Any) -> None:
    """Check a number of processes: None, a positive number, or a negative one that counts from all processors."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if value is not None and not (whole and value):
        raise ConfigError(
            f"n_jobs must be None, a number of processes, or -1 for all processors; got {value!r}."
        )


def boolean(name: str, value: Any) -> bool:
    """Return `value` if it is True or False; a string such as "no" would be truthy."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ConfigError(f"{name} must be True or False; got {value!r}.")


def same_length(**arrays: Any) -> int:
    """Return the common length of the named arrays (those that are not None)."""
    lengths = {name: len(a) for name, a in arrays.items() if a is not None}
    if len(set(lengths.values())) > 1:
        got = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        raise DataError(f"Expected the same number of rows, but got inconsistent lengths: {got}.")
    return next(iter(lengths.values()))


def probabilities(probs: ArrayLike, name: str = "probs") -> Float:
    """Return `probs` as float64 (n, k) rows that sum to one, clipped to [0, 1] within the rounding tolerance."""
    p = numbers(probs, name)
    if p.ndim != 2 or p.shape[1] < 2:
        raise DataError(
            f"{name} must be a table of shape (rows, classes) with at least two classes; got shape {p.shape}. "
            "For binary P(y=1) pass np.column_stack([1 - p, p])."
        )
    if p.shape[0] == 0:
        raise DataError(f"{name} must have at least one row; got no rows.")
    tolerance = rounding_tolerance(probs)
    with np.errstate(invalid="ignore"):
        total = p.sum(axis=1)
    wrong = ~(np.abs(total - 1) <= tolerance)  # `not <=`, so that NaN counts as wrong
    wrong |= (p < -tolerance).any(axis=1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{name} must hold probabilities that sum to one in each row; row {row} is "
            f"{np.array2string(p[row], threshold=6, precision=4)} with sum {total[row]:.6g} "
            f"({such(int(wrong.sum()), 'row')}). If these are logits, apply scipy.special.softmax(logits, axis=1)."
        )
    return np.clip(p, 0.0, 1.0)


def logits(values: ArrayLike, name: str = "logits") -> Float:
    """Return `values` as a finite float64 table of shape (rows, classes)."""
    z = numbers(values, name)
    if z.ndim != 2 or z.shape[0] < 1 or z.shape[1] < 2:
        raise DataError(
            f"{name} must be a table of shape (rows, classes) with at least one row and two classes; "
            f"got shape {z.shape}. For one score per row pass np.column_stack([0 * z, z])."
        )
    wrong = ~np.isfinite(z)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(f"{name} must be finite; row {row}, column {column} is {plain(z[row, column])}.")
    return z


def unit_interval(values: ArrayLike, name: str = "confidence") -> Float:
    """Return `values` as a float64 vector, clipped to [0, 1] within the rounding tolerance."""
    c = numbers(values, name)
    if c.ndim != 1 or c.size == 0:
        raise DataError(f"{name} must be a vector with at least one value; got shape {c.shape}.")
    tolerance = rounding_tolerance(values)
    wrong = ~((c >= -tolerance) & (c <= 1 + tolerance))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{name} must lie in [0, 1]; row {row} is {plain(c[row])!r} ({such(int(wrong.sum()), 'row')}). "
            "If these are scores, calibrate them first."
        )
    return np.clip(c, 0.0, 1.0)


def label_codes(
    y_true: ArrayLike, n_classes: int, classes: ArrayLike | None = None, *, name: str = "y_true"
) -> Int:
    """Return labels as codes 0..k-1: their position in `classes`, the column order of the probabilities."""
    y = as_array(y_true)
    if y.ndim != 1:
        raise DataError(f"{name} must be a vector of labels; got shape {y.shape}. Try {name}.ravel().")
    names = np.arange(n_classes) if classes is None else as_array(classes)
    if len(names) != n_classes:
        raise DataError(
            f"classes must name the {n_classes} columns of the probabilities; got {len(names)} names."
        )
    if len(set(names.tolist())) < n_classes:
        raise DataError(f"classes must name each column once; got {names.tolist()}.")
    order = np.argsort(names)
    try:
        place = np.clip(np.searchsorted(names, y, sorter=order), 0, n_classes - 1)
        codes = order[place]
        unknown = names[codes] != y
    except (TypeError, np.exceptions.DTypePromotionError):
        codes, unknown = np.zeros(len(y), dtype=np.int64), np.ones(len(y), dtype=bool)
    if np.any(unknown):
        row = int(np.argmax(unknown))
        remedy = "Drop these rows, or correct misspelt labels."
        if classes is None:
            remedy = "Pass classes= with the label of each column if the labels are names."
        shown = np.array2string(names, threshold=8, separator=", ")
        raise DataError(
            f"{name} must hold labels from {shown}; row {row} is {plain(y[row])!r} "
            f"({such(int(np.sum(unknown)), 'row')}). {remedy}"
        )
    return codes.astype(np.int64, copy=False)


def sample_weights(sample_weight: ArrayLike | None, n: int) -> Float | None:
    """Return the weights as float64, non-negative, finite and not all zero; None stays None.

    Only their ratios matter: weights whose sums or squares could overflow or underflow are scaled by a power of two,
    which keeps the ratios exact.
    """
    if sample_weight is None:
        return None
    w = numbers(sample_weight, "sample_weight")
    if w.ndim == 0:
        w = np.full(n, float(w))
    if w.shape != (n,):
        raise DataError(f"sample_weight must hold one weight for each of the {n} rows; got shape {w.shape}.")
    wrong = ~(np.isfinite(w) & (w >= 0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"sample_weight must be finite and not negative; row {row} is {plain(w[row])!r}. Drop the row."
        )
    if not w.any():
        raise DataError("sample_weight must be positive in some row; it is zero in every row.")
    exponent = weight_exponent(w)
    return np.ldexp(w, -exponent) if exponent else w


def weight_exponent(weight: Float) -> int:
    """Return the power of two that `sample_weights` divides these weights by; 0 for ordinary ones.

    Example:
        >>> weight_exponent(np.array([1.0, 3.0])), weight_exponent(np.array([1.0, 1e308]))
        (0, 824)
    """
    exponent = int(np.frexp(weight.max())[1])
    return exponent - min(max(exponent, -MAX_EXPONENT), MAX_EXPONENT)


def relative_weights(weight: Float) -> Float:
    """Return the same weights times a power of two, with the largest in [0.5, 1): their ratios are exact."""
    return np.ldexp(weight, -int(np.frexp(weight.max())[1]))
