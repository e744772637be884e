"""The official Python files of CIFAR-10 and CIFAR-100, which are pickles, read without running them.

A pickle is a program. This reader first looks through it, step by step and without running it, and continues only
if every step is one that the official files have: plain data, and the three NumPy names that an array is made of.
Then placeholders record the arguments of the arrays, and the arrays are built from these records.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfcal._support.checks import Int
from selfcal.datasets._image_files import ImageArrays, reading, whole_file
from selfcal.errors import DataError

ARRAY_PARTS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}
ALLOWED_STEPS = {
    *("PROTO", "STOP", "MARK", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINSTRING", "SHORT_BINSTRING"),
    *("EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "APPEND", "APPENDS"),
    *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("GLOBAL", "REDUCE", "BUILD"),
}


def read_cifar10(folder: Path) -> ImageArrays:
    """The five training files, the test file and the names of the classes."""
    train = [_read_part(folder / f"data_batch_{number}", "labels") for number in range(1, 6)]
    x_train, y_train = (np.concatenate(parts) for parts in zip(*train, strict=True))
    classes = _read_names(folder / "batches.meta", "label_names")
    return ImageArrays(x_train, y_train, *_read_part(folder / "test_batch", "labels"), classes)


def read_cifar100(folder: Path) -> ImageArrays:
    """The images with their fine labels, of which there are a hundred."""
    train, test = (_read_part(folder / part, "fine_labels") for part in ("train", "test"))
    return ImageArrays(*train, *test, _read_names(folder / "meta", "fine_label_names"))


def _read_part(path: Path, label: str) -> tuple[NDArray[np.uint8], Int]:
    with reading(path):
        content = plain_pickle(whole_file(path))
        x, y = _array(_entry(content, "data")), _entry(content, label)
        if not (isinstance(y, list) and all(type(code) is int for code in y)):
            raise DataError(f"{label} must be a list of whole numbers")
        if x.ndim != 2 or x.shape[1] != 3072 or len(x) != len(y):
            raise DataError(
                f"expected rows of 3072 bytes and a label each; got data of shape {x.shape} and {len(y)} labels"
            )
        return x.reshape(-1, 3, 32, 32), np.array(y, dtype=np.int64)


def _read_names(path: Path, key: str) -> list[str]:
    with reading(path):
        names = _entry(plain_pickle(whole_file(path)), key)
        if not (isinstance(names, list) and all(isinstance(name, bytes) for name in names)):
            raise DataError(f"{key} must be a list of names")
        return [str(name, "utf-8") for name in names]


def _entry(content: object, key: str) -> Any:
    if not isinstance(content, dict) or key.encode() not in content:
        raise DataError(f"expected a dictionary with {key!r}")
    return content[key.encode()]


class _Recorded:
    """A placeholder for a part of an array: it records its arguments and does nothing else."""

    def __init__(self, name: str, arguments: tuple[object, ...] = ()) -> None:
        self.name = name
        self.arguments = arguments
        self.state: object = None

    def __call__(self, *arguments: object) -> _Recorded:
        return _Recorded(self.name, arguments)

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Recorder(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        _allow(module, name)
        return _Recorded(name)


def _allow(module: str, name: str) -> None:
    if (module, name) not in ARRAY_PARTS:
        raise DataError(f"it refers to {module}.{name}, which no official file does; nothing was run")


def plain_pickle(content: bytes) -> Any:
    """Return the content of a pickle of Python 2 of plain data and arrays; strings are bytes, arrays are recorded."""
    argument: Any
    for count, (step, argument, _) in enumerate(pickletools.genops(content)):
        if step.name not in ALLOWED_STEPS:
            raise DataError(f"it has the step {step.name}, which no official file has; nothing was run")
        if step.name == "GLOBAL":
            _allow(*str(argument).split(" ", 1))
        if step.name == "LONG_BINPUT" and argument > count:  # it would allocate memory for as many entries
            raise DataError(f"it numbers an entry {argument} after {count} steps")
    return _Recorder(io.BytesIO(content), encoding="bytes").load()


def _array(record: object) -> NDArray[np.uint8]:
    """The array of bytes that a record describes as (version, shape, type, Fortran order, content)."""
    match record:
        case _Recorded(
            name="_reconstruct",
            state=(1, tuple(shape), _Recorded(name="dtype", arguments=(b"u1", *_)), False, bytes(content)),
        ) if all(type(size) is int and size >= 0 for size in shape) and math.prod(shape) == len(content):
            return np.frombuffer(content, dtype=np.uint8).reshape(shape)
    raise DataError("data must be an array of bytes")
