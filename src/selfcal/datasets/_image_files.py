"""Arrays of images from .npz and idx files, and common helpers of the readers of image files."""

from __future__ import annotations

import gzip
import io
import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from selfcal.errors import DataError

MAX_BYTES = 2**28
"""Larger than any array or file of these data sets."""

IDX_OF_BYTES = b"\x00\x00\x08"
"""The first bytes of an idx file of unsigned bytes; the number of dimensions follows."""


class ImageArrays(NamedTuple):
    """Images and labels as they are stored, and the names of the classes if there are any."""

    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    classes: Sequence[str] | None = None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error within into one that names the file.

    Damaged files make zip, gzip, NumPy, pickle and Pillow raise a dozen types of error.
    """
    try:
        yield
    except Exception as error:
        reason = (
            (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        )
        raise DataError(
            f"Could not read {path}: {reason.rstrip('.')}. Get a fresh copy of the file."
        ) from error


def whole_file(path: Path) -> bytes:
    """Return the content of a file of plausible size."""
    size = os.path.getsize(path)
    if size > MAX_BYTES:
        raise DataError(f"it has {size:,} bytes, expected at most {MAX_BYTES:,}")
    return path.read_bytes()


def read_npz(path: Path) -> ImageArrays:
    """The arrays x_train, y_train, x_test, y_test and, if it is there, class_names."""
    with reading(path), zipfile.ZipFile(path) as archive:
        x_train, y_train, x_test, y_test = (_npy(archive, name) for name in ImageArrays._fields[:4])
        classes = None
        if "class_names.npy" in archive.namelist():
            classes = [str(name, "utf-8") for name in _npy(archive, "class_names").astype(np.bytes_)]
        return ImageArrays(x_train, y_train, x_test, y_test, classes)


def _npy(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Return one array, if its header and its size agree."""
    if f"{name}.npy" not in archive.namelist():
        raise DataError(f"expected the arrays {', '.join(ImageArrays._fields[:4])}; {name} is missing")
    size = archive.getinfo(f"{name}.npy").file_size
    with archive.open(f"{name}.npy") as file:
        first = np.lib.format.read_magic(file) == (1, 0)
        read_header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
        held = size - file.tell()
        if dtype.hasobject or held > MAX_BYTES or math.prod(shape) * dtype.itemsize != held:
            raise DataError(f"{name} has {held:,} bytes, but its header has {dtype} of shape {shape}")
        file.seek(0)
        array = np.lib.format.read_array(file, allow_pickle=False)
        file.read()  # nothing is left, but the checksum is verified at the end
        return np.asarray(array)


def read_idx_folder(train_images: Path) -> ImageArrays:
    """The four files of MNIST and similar sets, plain or gzipped, in the folder of the first."""
    folder = train_images.parent
    return ImageArrays(
        _read_idx(folder / "train-images-idx3-ubyte", 3),
        _read_idx(folder / "train-labels-idx1-ubyte", 1),
        _read_idx(folder / "t10k-images-idx3-ubyte", 3),
        _read_idx(folder / "t10k-labels-idx1-ubyte", 1),
    )


def _read_idx(plain: Path, dimensions: int) -> NDArray[np.uint8]:
    path = plain if plain.is_file() else plain.with_name(f"{plain.name}.gz")
    with reading(path), _opened(path) as file:
        start = IDX_OF_BYTES + bytes([dimensions])
        header = file.read(4 + 4 * dimensions)
        if header[:4] != start or len(header) < 4 + 4 * dimensions:
            raise DataError(
                f"expected an idx file of bytes in {dimensions} dimensions that begins with {start.hex()}; "
                f"it begins with {header[:4].hex() or 'nothing'}"
            )
        shape = tuple(np.frombuffer(header, dtype=">u4", offset=4).tolist())
        size = math.prod(shape)
        if size > MAX_BYTES:
            raise DataError(f"its header has shape {shape}, expected at most {MAX_BYTES:,} bytes")
        content = file.read(size + 1)
        if len(content) != size:
            more = "more" if len(content) > size else f"{len(content):,}"
            raise DataError(f"its header has shape {shape}, {size:,} bytes; got {more}")
        return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _opened(path: Path) -> io.BufferedIOBase:
    return gzip.open(path) if path.suffix == ".gz" else open(path, "rb")
