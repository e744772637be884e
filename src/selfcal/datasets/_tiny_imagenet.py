"""The folder that the official archive of Tiny-ImageNet unpacks to."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from selfcal.datasets._image_files import ImageArrays, reading, whole_file
from selfcal.errors import DataError

SIDE = 64


def read_tiny_imagenet(folder: Path) -> ImageArrays:
    """The training images by class folder, the validation images by the list; classes in the order of their ids.

    The labels of the official test images are not public, so the validation images are the test set, as is usual.
    """
    classes = sorted(path.name for path in (folder / "train").glob("*/") if path.is_dir())
    code = {name: number for number, name in enumerate(classes)}
    train = [
        (path, number)
        for name, number in code.items()
        for path in sorted((folder / "train" / name / "images").glob("*.JPEG"))
    ]
    listed = folder / "val" / "val_annotations.txt"
    with reading(listed):
        test = [
            _listed(line, folder / "val" / "images", code)
            for line in whole_file(listed).decode("utf-8").splitlines()
        ]
    return ImageArrays(*_read_images(train), *_read_images(test), classes)


def _listed(line: str, folder: Path, code: dict[str, int]) -> tuple[Path, int]:
    """The image and the class that a line names: file, class id and a box, with tabs between."""
    name, identifier, *_ = [*line.split("\t"), ""]
    if Path(name).name != name or identifier not in code:
        raise DataError(f"expected lines of file name and class id with a tab between; got {line[:80]!r}")
    return folder / name, code[identifier]


def _read_images(images: Sequence[tuple[Path, int]]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    from PIL import Image

    x = np.empty((len(images), 3, SIDE, SIDE), dtype=np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        for row, (path, _) in enumerate(images):
            with reading(path), Image.open(path, formats=["JPEG"]) as image:
                if image.size != (SIDE, SIDE):
                    raise DataError(f"expected {SIDE} x {SIDE} pixels; got {image.width} x {image.height}")
                x[row] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    return x, np.array([number for _, number in images], dtype=np.int64)
