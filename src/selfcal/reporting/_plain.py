"""Dataclasses to plain Python for JSON, and back with every type checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from selfcal._support.checks import shorten
from selfcal.errors import DataError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses as dictionaries and tuples as lists, all the way down.

    A field whose JSON name is a Python keyword has that name in its metadata, under "json".
    """
    if isinstance(value, str | int | float):
        return value
    if is_dataclass(value):
        return {_name(one): to_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, tuple | list) else value


def from_plain(kind: type[T], value: Any) -> T:
    """The dataclass that `to_plain` made these values of.

    Fields that a later version adds are ignored; fields with a default may be missing.
    """
    return cast("T", _read(kind, value, kind.__name__))


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # only X | None
        return None if value is None else _read(arguments[0], value, where)
    if is_dataclass(kind):
        return _read_fields(kind, value, where)
    if origin is Literal:
        return _known(value, arguments, where)
    if origin is tuple:
        return _read_items(arguments, _checked(value, list, where), where)
    if origin is Mapping:
        given = _checked(value, dict, where)
        return {_checked(key, str, where): _read(arguments[1], item, where) for key, item in given.items()}
    return _checked(value, kind, where)


def _read_items(kinds: tuple[Any, ...], items: list[Any], where: str) -> tuple[Any, ...]:
    if kinds[-1] is Ellipsis:
        if set(map(type, items)) == {kinds[0]}:  # thousands of numbers, checked at once
            return tuple(items)
        kinds = kinds[:1] * len(items)
    return tuple(_read(kind, item, where) for kind, item in zip(kinds, items, strict=True))


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    given, hints = _checked(value, dict, where), _hints(kind)
    found = {
        one.name: _read(hints[one.name], given[_name(one)], f"{where}.{_name(one)}")
        for one in fields(kind)
        if _name(one) in given or one.default is MISSING
    }
    return kind(**found)


def _known(value: Any, allowed: tuple[Any, ...], where: str) -> Any:
    if value not in allowed:
        raise DataError(f"{where} must be one of {', '.join(map(repr, allowed))}; got {shorten(value)}.")
    return value


def _checked(value: Any, kind: type, where: str) -> Any:
    allowed = (int, float) if kind is float else kind
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise DataError(f"{where} must be of type {kind.__name__}; got {type(value).__name__}.")
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _name(one: Field[Any]) -> str:
    return cast("str", one.metadata.get("json", one.name))
