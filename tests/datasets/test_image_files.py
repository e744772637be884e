import gzip
import io
import zipfile

import numpy as np
import pytest

from selfcal.datasets import load_images
from selfcal.errors import DataError
from tests.datasets import image_files as files


@pytest.mark.parametrize("place", ["", "fashion-mnist", "FashionMNIST/raw"])
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_plain_or_packed_wherever_they_lie(place, packed, tmp_path):
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    stored = files.write_idx(tmp_path / place, packed=packed)
    found = load_images("fashion-mnist", tmp_path)
    np.testing.assert_array_equal(found.x_train[:, 0], stored["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(found.y_train, stored["train-labels-idx1-ubyte"])
    np.testing.assert_array_equal(found.x_test[:, 0], stored["t10k-images-idx3-ubyte"])
    np.testing.assert_array_equal(found.y_test, stored["t10k-labels-idx1-ubyte"])


PIXELS = files.images(6, 28, 28)


@pytest.mark.parametrize(
    ("content", "wording"),
    [
        (b"", "begins with nothing"),
        (b"\0\0\x0d\x03" + files.idx(PIXELS)[4:], "begins with 00000803; it begins with 00000d03"),
        (files.idx(PIXELS[0]), "it begins with 00000802"),
        (files.idx(PIXELS)[:9], "begins with"),
        (files.idx(PIXELS)[:-1], "4,704 bytes; got 4,703"),
        (files.idx(PIXELS) + b"\0", "4,704 bytes; got more"),
        (files.idx(PIXELS, (2**32 - 1,) * 3), "expected at most 268,435,456 bytes"),
        (files.idx(PIXELS, (6, 56, 14)), r"of shape \(1, 28, 28\); got uint8 of shape \(6, 56, 14\)"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_that_are_not_what_they_say(content, wording, packed, tmp_path):
    files.write_idx(tmp_path, packed=packed)
    name = f"train-images-idx3-ubyte{'.gz' if packed else ''}"
    (tmp_path / name).write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=f"{name}: .*{wording}"):
        load_images("fashion-mnist", tmp_path)


def test_a_packed_file_cut_off_or_not_packed_at_all(tmp_path):
    files.write_idx(tmp_path, packed=True)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    content = path.read_bytes()
    for broken, wording in ((content[:-3], "ended before"), (gzip.decompress(content), "Not a gzipped file")):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=f"{path.name}: .*{wording}"):
            load_images("fashion-mnist", tmp_path)


def test_a_bomb_in_gzip_stays_packed(tmp_path):
    files.write_idx(tmp_path, packed=True)
    bomb = gzip.compress(files.idx(PIXELS[:1]) + bytes(2**24))
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(bomb)
    with pytest.raises(DataError, match="784 bytes; got more"):
        load_images("fashion-mnist", tmp_path)


def test_an_array_that_is_shorter_than_its_header_states(tmp_path):
    """A header of a petabyte with five bytes behind it: refused before memory is asked for."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (10**9, 1000, 1000)}
    )
    path = tmp_path / "cifar10_small.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_train.npy", header.getvalue() + b"12345")
    with pytest.raises(DataError, match="x_train has 5 bytes, but its header has uint8 of shape"):
        load_images("cifar10-small", tmp_path)
