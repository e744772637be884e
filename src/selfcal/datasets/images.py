"""Image data sets from files that are already there; nothing is ever downloaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from selfcal._support.checks import Int, one_of
from selfcal.datasets._cifar import read_cifar10, read_cifar100
from selfcal.datasets._image_files import ImageArrays, read_idx_folder, read_npz, reading
from selfcal.datasets._tiny_imagenet import SIDE, read_tiny_imagenet
from selfcal.errors import DataError

FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
"""The classes of Fashion-MNIST in the order of their codes, which its files do not name."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Training and test images with their labels.

    Images are uint8 of shape (rows, channels, height, width); labels int64 codes from 0, whose names are
    `classes` if they are known.
    """

    x_train: NDArray[np.uint8]
    y_train: Int
    x_test: NDArray[np.uint8]
    y_test: Int
    classes: tuple[str, ...] | None
    name: str


@dataclass(frozen=True)
class _Source:
    """The possible locations of a data set in the data folder, how to get it, and its expected shape."""

    places: Mapping[str, Callable[[Path], ImageArrays]]
    remedy: str
    shape: tuple[int, int, int]
    n_classes: int | None
    classes: Sequence[str] | None = None


_COLOUR = (3, 32, 32)
_UNPACK = "get the official {} and unpack it there"
_SUBSET = "make a subset of {} with the arrays x_train, y_train, x_test, y_test"

_SOURCES = {
    "cifar10": _Source(
        {"cifar-10-batches-py": read_cifar10, "cifar10.npz": read_npz},
        _UNPACK.format("cifar-10-python.tar.gz"),
        _COLOUR,
        10,
    ),
    "cifar100": _Source(
        {"cifar-100-python": read_cifar100, "cifar100.npz": read_npz},
        _UNPACK.format("cifar-100-python.tar.gz"),
        _COLOUR,
        100,
    ),
    "tiny-imagenet": _Source(
        {"tiny-imagenet-200": read_tiny_imagenet},
        _UNPACK.format("tiny-imagenet-200.zip"),
        (3, SIDE, SIDE),
        None,
    ),
    "fashion-mnist": _Source(
        {
            "fashion_mnist.npz": read_npz,
            **{
                f"{folder}train-images-idx3-ubyte{suffix}": read_idx_folder
                for folder in ("", "fashion-mnist/", "FashionMNIST/raw/")
                for suffix in ("", ".gz")
            },
        },
        "put the four official files train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
        "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz there",
        (1, 28, 28),
        10,
        FASHION,
    ),
    "cifar10-small": _Source({"cifar10_small.npz": read_npz}, _SUBSET.format("CIFAR-10"), _COLOUR, 10),
    "cifar100-small": _Source({"cifar100_small.npz": read_npz}, _SUBSET.format("CIFAR-100"), _COLOUR, 100),
}


def load_images(name: str, data_dir: str | os.PathLike[str]) -> ImageSet:
    """Read an image data set from its official files, or from arrays in .npz, in a local folder.

    An .npz holds `x_train`, `y_train`, `x_test`, `y_test` and perhaps `class_names`; colours may come first or last.
    Pickles are read without running any code in them.

    Args:
        name: "cifar10", "cifar100", "tiny-imagenet", "fashion-mnist", or a subset in one file, "cifar10-small"
            or "cifar100-small".
        data_dir: The folder in which the files, or the folder that the official archive unpacks to, lie.

    Returns:
        The images as bytes, the labels as codes.

    Example:
        >>> load_images("cifar10", "no/such/folder")
        Traceback (most recent call last):
        ...
        selfcal.errors.DataError: Found no cifar10 in no/such/folder; looked for cifar-10-batches-py, cifar10.npz.
        Nothing is downloaded: get the official cifar-10-python.tar.gz and unpack it there.
    """
    source = _SOURCES[one_of("name", name, _SOURCES)]
    folder = Path(data_dir)
    for place, read in source.places.items():
        if (folder / place).exists():
            return _image_set(name, source, read(folder / place), folder / place)
    raise DataError(
        f"Found no {name} in {folder}; looked for {', '.join(source.places)}. "
        f"Nothing is downloaded: {source.remedy}."
    )


def _image_set(name: str, source: _Source, found: ImageArrays, path: Path) -> ImageSet:
    """The arrays in the one layout and the one type, if they are what this data set consists of."""
    classes = source.classes if found.classes is None else found.classes
    n_classes = source.n_classes or len(classes or ())
    with reading(path):
        if classes is not None and len(classes) != n_classes:
            raise DataError(f"expected the names of {n_classes} classes; got {len(classes)}")
        return ImageSet(
            _channels_first("x_train", found.x_train, source.shape),
            _codes("y_train", found.y_train, len(found.x_train), n_classes),
            _channels_first("x_test", found.x_test, source.shape),
            _codes("y_test", found.y_test, len(found.x_test), n_classes),
            None if classes is None else tuple(classes),
            name,
        )


def _channels_first(name: str, x: NDArray[Any], shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    channels, *size = shape
    if x.dtype == np.uint8 and len(x):
        if x.shape[1:] == (*size, channels):
            x = x.transpose(0, 3, 1, 2)
        elif channels == 1 and x.shape[1:] == (*size,):
            x = x[:, None]
        if x.shape[1:] == shape:
            return np.require(x, requirements=["C", "W"])
    raise DataError(f"{name} must hold uint8 images of shape {shape}; got {x.dtype} of shape {x.shape}")


def _codes(name: str, y: NDArray[Any], n_rows: int, n_classes: int) -> Int:
    if y.dtype.kind not in "iu" or y.shape != (n_rows,):
        raise DataError(
            f"{name} must hold a whole number for each of the {n_rows} images; got {y.dtype} of shape {y.shape}"
        )
    if y.min() < 0 or y.max() >= n_classes:
        raise DataError(f"{name} must lie in 0 ... {n_classes - 1}; got {y.min()} ... {y.max()}")
    return np.require(y, np.int64, ["C", "W"])
