import numpy as np
import pytest

from selfcal.datasets import load_images
from selfcal.errors import DataError
from tests.datasets import image_files as files


@pytest.fixture
def folder(tmp_path):
    files.write_tiny_imagenet(tmp_path)
    return tmp_path / "tiny-imagenet-200"


def test_images_stand_under_their_class(folder):
    found = load_images("tiny-imagenet", folder.parent)
    assert found.classes == ("n01", "n02")
    np.testing.assert_array_equal(found.y_train, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(found.x_train[:, 1, 5, 7], [0, 40, 80, 100, 140, 180])
    np.testing.assert_array_equal(found.y_test, [1, 0])  # as listed, not as the files are sorted
    np.testing.assert_array_equal(found.x_test[:, :, 0, 0], [[100] * 3, [0] * 3])  # the first of them is grey


def test_channels_come_in_their_order(folder):
    red = files.Image.new("RGB", (64, 64), (250, 0, 0))
    red.save(folder / "train" / "n01" / "images" / "n01_0.JPEG")
    assert load_images("tiny-imagenet", folder.parent).x_train[0, :, 9, 9].argmax() == 0


def test_other_files_are_left_alone(folder):
    (folder / "train" / "n01" / "images" / ".DS_Store").write_bytes(b"?")
    (folder / "train" / "n01" / "n01_boxes.txt").write_text("n01_0.JPEG\t0\t0\t1\t1\n")
    assert len(load_images("tiny-imagenet", folder.parent).x_train) == 6


def png(path):
    files.flat(3).save(path, format="PNG")


def small(path):
    files.flat(3, size=(32, 64)).save(path)


def cut_in_header(path):
    path.write_bytes(path.read_bytes()[:-200])


def cut_in_pixels(path):
    path.write_bytes(path.read_bytes()[:-20])


def bomb(path):
    """A header that says 65,500 x 65,500 pixels, which would take 12 GB."""
    content = bytearray(path.read_bytes())
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 9] = (65_500).to_bytes(2) * 2
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("breaks", "wording"),
    [
        (lambda path: path.write_bytes(b""), "cannot identify"),
        (lambda path: path.write_bytes(b"<html>not found</html>"), "cannot identify"),
        (png, "cannot identify"),
        (small, "expected 64 x 64 pixels; got 32 x 64"),
        (cut_in_header, "Truncated"),
        (cut_in_pixels, "truncated"),
        (bomb, "decompression bomb"),
    ],
    ids=["empty", "text", "png", "small", "cut-in-header", "cut-in-pixels", "bomb"],
)
@pytest.mark.parametrize("place", ["train/n02/images/n02_1.JPEG", "val/images/val_0.JPEG"])
def test_a_broken_image_is_named(folder, place, breaks, wording):
    breaks(folder / place)
    with pytest.raises(DataError, match=rf"Could not read .*{place}: .*{wording}"):
        load_images("tiny-imagenet", folder.parent)


@pytest.mark.parametrize(
    "line", ["", "val_0.JPEG", "val_0.JPEG\tn77\t0", "../../secret.JPEG\tn01", "/etc/x\tn01"]
)
def test_a_line_of_the_list_that_names_no_image_or_class(folder, line):
    with open(folder / "val" / "val_annotations.txt", "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(DataError, match=r"val_annotations\.txt: expected lines of file name and class id"):
        load_images("tiny-imagenet", folder.parent)


def test_a_folder_without_images(tmp_path):
    (tmp_path / "tiny-imagenet-200" / "val").mkdir(parents=True)
    (tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt").touch()
    with pytest.raises(DataError, match="x_train must hold uint8 images"):
        load_images("tiny-imagenet", tmp_path)
