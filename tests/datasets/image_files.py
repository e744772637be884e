"""Small files laid out as the official ones of each image data set."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
from PIL import Image

RNG = np.random.default_rng(5)


def images(n, *shape):
    return RNG.integers(0, 256, (n, *shape), dtype=np.uint8)


def python2_pickle(value) -> bytes:
    """As Python 2 wrote it with protocol 2: strings are SHORT_BINSTRING, and nearly everything gets a number."""
    counter = iter(range(1, 10**6))

    def numbered(code):
        number = next(counter)
        return code + (b"q" + bytes([number]) if number < 256 else b"r" + struct.pack("<I", number))

    def written(part):
        match part:
            case None:
                code = b"N"
            case bool():
                code = b"\x88" if part else b"\x89"
            case int() if 0 <= part < 256:
                code = b"K" + bytes([part])
            case int() if 0 <= part < 65536:
                code = b"M" + struct.pack("<H", part)
            case int():
                code = b"J" + struct.pack("<i", part)
            case bytes() if len(part) < 256:
                code = numbered(b"U" + bytes([len(part)]) + part)
            case bytes():
                code = b"T" + struct.pack("<i", len(part)) + part
            case str():
                code = written(part.encode())
            case list():
                code = numbered(b"]") + b"(" + b"".join(map(written, part)) + b"e"
            case tuple():
                code = numbered(b"(" + b"".join(map(written, part)) + b"t")
            case dict():
                code = numbered(b"}") + b"(" + b"".join(written(x) for kv in part.items() for x in kv) + b"u"
            case np.ndarray():
                empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
                kind = b"cnumpy\ndtype\n" + written(part.dtype.str[1:]) + b"K\x00K\x01\x87R"
                kind += written((3, part.dtype.str[0], None, None, None, -1, -1, 0)) + b"b"
                state = written(1) + written(part.shape) + kind + b"\x89" + written(part.tobytes())
                code = empty + b"(" + state + b"tb"
        return code

    return b"\x80\x02" + written(value) + b"."


def cifar_part(n, *labels, n_classes=10):
    codes = {name: RNG.integers(0, n_classes, n).tolist() for name in labels}
    return {
        "batch_label": "some",
        **codes,
        "data": images(n, 3072),
        "filenames": [f"{i}.png" for i in range(n)],
    }


def write_cifar10(folder: Path) -> dict[str, dict]:
    parts = {f"data_batch_{i}": cifar_part(4, "labels") for i in range(1, 6)}
    parts["test_batch"] = cifar_part(3, "labels")
    parts["batches.meta"] = {"num_cases_per_batch": 4, "label_names": [f"class {i}" for i in range(10)]}
    return _write_pickles(folder / "cifar-10-batches-py", parts)


def write_cifar100(folder: Path) -> dict[str, dict]:
    parts = {
        part: cifar_part(n, "fine_labels", "coarse_labels", n_classes=20)
        for part, n in (
            ("train", 300),
            ("test", 3),
        )  # 300 file names, so that the numbers of entries need four bytes
    }
    parts["meta"] = {"fine_label_names": [f"class {i}" for i in range(100)]}
    return _write_pickles(folder / "cifar-100-python", parts)


def _write_pickles(folder, parts):
    folder.mkdir()
    for name, part in parts.items():
        (folder / name).write_bytes(python2_pickle(part))
    return parts


def write_idx(folder: Path, *, packed: bool = False) -> dict[str, np.ndarray]:
    arrays = {
        "train-images-idx3-ubyte": images(6, 28, 28),
        "train-labels-idx1-ubyte": RNG.integers(0, 10, 6, dtype=np.uint8),
        "t10k-images-idx3-ubyte": images(2, 28, 28),
        "t10k-labels-idx1-ubyte": RNG.integers(0, 10, 2, dtype=np.uint8),
    }
    for name, array in arrays.items():
        content = idx(array)
        path = folder / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(content) if packed else content)
    return arrays


def idx(array, shape=None) -> bytes:
    shape = array.shape if shape is None else shape
    return b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + array.tobytes()


def npz_arrays(*shape, n_classes=10) -> dict[str, np.ndarray]:
    return {
        "x_train": images(5, *shape),
        "y_train": RNG.integers(0, n_classes, 5),
        "x_test": images(2, *shape),
        "y_test": RNG.integers(0, n_classes, 2),
    }


def write_tiny_imagenet(folder: Path) -> None:
    root = folder / "tiny-imagenet-200"
    lines = []
    for code, name in enumerate(("n01", "n02")):
        place = root / "train" / name / "images"
        place.mkdir(parents=True)
        for i in range(3):
            flat(40 * i + 100 * code).save(place / f"{name}_{i}.JPEG")
        lines.append(f"val_{code}.JPEG\t{name}\t0\t0\t62\t62\n")
    (root / "val" / "images").mkdir(parents=True)
    (root / "val" / "val_annotations.txt").write_text("".join(lines[::-1]))
    for code in range(2):
        flat(100 * code, mode="L" if code else "RGB").save(root / "val" / "images" / f"val_{code}.JPEG")


def flat(value, *, mode="RGB", size=(64, 64)):
    """An image of one grey, which JPEG keeps as it is."""
    return Image.new("RGB", size, (value,) * 3).convert(mode)
