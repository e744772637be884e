"""The fitted state of a calibrator as plain values, found by its annotations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from selfcal._support.checks import Float, plain
from selfcal.errors import DataError

State = dict[str, Any]
"""Numbers, strings, lists of these, or arrays, by name; nested values have dotted names."""


def learned(owner: type) -> dict[str, Any]:
    """Return the type of each fitted attribute of a calibrator, or of each field of one of its curves."""
    hints = get_type_hints(owner)
    return {name: hint for name, hint in hints.items() if is_dataclass(owner) or name.endswith("_")}


def state_of(part: Any) -> State:
    """Return the fitted state."""
    state: State = {}
    for name, hint in learned(type(part)).items():
        inner = _taken_apart(getattr(part, name), hint)
        if isinstance(inner, dict):
            state.update({f"{name}.{below}": value for below, value in inner.items()})
        else:
            state[name] = inner
    return state


def restored(owner: type, state: State) -> State:
    """The attributes (or fields) that have this state; the reverse of `state_of`."""
    return {name: _put_together(name, hint, state) for name, hint in learned(owner).items()}


def _taken_apart(value: Any, hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return _columns(value, get_args(hint)[0])
    if isinstance(value, dict):
        return {"keys": [_word(key) for key in value], "rows": _stacked(value.values())}
    if value is None or isinstance(value, (bool, np.bool_, np.number, int, float, str, np.ndarray)):
        return plain(value)
    return state_of(value)


def _put_together(name: str, hint: Any, state: State) -> Any:
    inner = {key.removeprefix(f"{name}."): v for key, v in state.items() if key.startswith(f"{name}.")}
    if get_origin(hint) is tuple:
        return _curves(inner, get_args(hint)[0])
    if inner and any(get_origin(option) is dict for option in get_args(hint)):
        keys, rows = _of(list, "keys", inner), _array("rows", inner, 2)
        if not len({*map(_word, keys)}) == len(keys) == len(rows):
            raise DataError(f"{name} must have one row for each key; got {len(keys)} keys, {len(rows)} rows.")
        return dict(zip(keys, rows, strict=True))
    if is_dataclass(hint):
        return cast(type, hint)(**restored(cast(type, hint), inner))
    if hasattr(hint, "from_state"):
        return hint.from_state(inner)
    return _array(name, state) if _is_array(hint) else _of(hint, name, state)


def _is_array(hint: Any) -> bool:
    return get_origin(hint) is np.ndarray


def _columns(curves: Iterable[Any], kind: type) -> State:
    """The fields of all curves side by side: numbers as one array, arrays end to end with their lengths."""
    state: State = {}
    for name, hint in learned(kind).items():
        values = [getattr(curve, name) for curve in curves]
        if _is_array(hint):
            state[name] = np.concatenate(values)
            state[f"{name}.lengths"] = np.array([len(v) for v in values])
        else:
            state[name] = np.array(values, dtype=np.float64)
    return state


def _curves(state: State, kind: type) -> tuple[Any, ...]:
    columns: dict[str, list[Any]] = {}
    for name, hint in learned(kind).items():
        values = _array(name, state, 1)
        if _is_array(hint):
            lengths = _of(np.ndarray, f"{name}.lengths", state)
            whole = lengths.ndim == 1 and lengths.dtype == np.int64 and (lengths >= 0).all()
            if not whole or lengths.sum() != len(values):
                raise DataError(f"The lengths of {name} must add up to its {len(values)} numbers.")
            columns[name] = np.split(values, np.cumsum(lengths)[:-1])
        else:
            columns[name] = values.tolist()
    return tuple(kind(*row) for row in zip(*columns.values(), strict=True))


def _of(hint: Any, name: str, state: State) -> Any:
    """The value of that name if it is of that type; a whole number will do for any number."""
    allowed = tuple(t for t in (get_args(hint) or (hint,)) if isinstance(t, type))
    value = state.get(name, ...)
    whole = type(value) is int and float in allowed
    if not (isinstance(value, allowed) or whole) or (isinstance(value, bool) and bool not in allowed):
        raise DataError(f"{name} must be {' or '.join(t.__name__ for t in allowed)}; got {value!r}.")
    if isinstance(value, float) and not np.isfinite(value):
        raise DataError(f"{name} must be finite; got {value!r}.")
    return value


def _array(name: str, state: State, ndim: int | None = None) -> Float:
    values: NDArray[Any] = _of(np.ndarray, name, state)
    if values.dtype != np.float64 or values.ndim != (ndim or values.ndim):
        raise DataError(f"{name} must be an array of float64 numbers; got {values.dtype}, {values.shape}.")
    return values


def _stacked(rows: Iterable[Float]) -> Float:
    table = [*rows]
    return np.array(table) if table else np.zeros((0, 0))


def _word(key: Any) -> Any:
    value = plain(key)
    if not isinstance(value, (bool, int, float, str)):
        raise DataError(
            f"Only strings, numbers and booleans can be kept as values of a field; got {value!r}."
        )
    return value
