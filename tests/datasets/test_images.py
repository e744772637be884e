import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selfcal.datasets import ImageSet, load_images
from selfcal.errors import ConfigError, DataError
from tests.datasets import image_files as files

WRITERS = {
    "cifar10": files.write_cifar10,
    "cifar100": files.write_cifar100,
    "fashion-mnist": files.write_idx,
    "tiny-imagenet": files.write_tiny_imagenet,
    "cifar10-small": lambda folder: np.savez_compressed(
        folder / "cifar10_small.npz", **files.npz_arrays(32, 32, 3), class_names=np.array([b"x"] * 10)
    ),
    "cifar100-small": lambda folder: np.savez(folder / "cifar100_small.npz", **files.npz_arrays(32, 32, 3)),
}
SHAPES = {"fashion-mnist": (1, 28, 28), "tiny-imagenet": (3, 64, 64)}


@pytest.mark.parametrize("name", WRITERS)
def test_every_source_gives_bytes_channels_first_and_codes(name, tmp_path):
    WRITERS[name](tmp_path)
    found = load_images(name, tmp_path)
    assert isinstance(found, ImageSet)
    assert found.name == name
    for x, y in ((found.x_train, found.y_train), (found.x_test, found.y_test)):
        assert x.shape == (len(y), *SHAPES.get(name, (3, 32, 32)))
        assert (x.dtype, y.dtype) == (np.uint8, np.int64)
        assert x.flags["C_CONTIGUOUS"]
        assert x.flags["WRITEABLE"]
    assert found.classes is None or y.max() < len(found.classes)


@pytest.fixture(scope="module", params=WRITERS)
def valid(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("valid")
    WRITERS[request.param](folder)
    load_images(request.param, folder)
    return request.param, folder, sorted(path for path in folder.rglob("*") if path.is_file())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_files_give_images_or_one_clear_error(valid, data):
    """Bytes changed, cut out, put in or cut off, anywhere: a data error that names the file, or harmless."""
    name, folder, paths = valid
    path = data.draw(st.sampled_from(paths))
    content = path.read_bytes()
    # headers and the ends of files, where there is most to break, half of the time
    near = st.integers(0, 80) | st.integers(len(content) - 80, len(content)) | st.integers(0, len(content))
    start = min(max(data.draw(near), 0), len(content))
    end = start + data.draw(st.integers(0, 8) | st.just(len(content)))
    path.write_bytes(content[:start] + data.draw(st.binary(max_size=8)) + content[end:])
    try:
        found, message = load_images(name, folder), str(folder)
    except DataError as error:
        found, message = None, str(error)
    finally:
        path.write_bytes(content)
    assert str(folder) in message
    if found is not None:
        assert len(found.x_train) == len(found.y_train)
        assert found.y_train.min() >= 0


@pytest.mark.parametrize("name", WRITERS)
def test_missing_files_are_named_and_so_is_where_to_get_them(name, tmp_path):
    with pytest.raises(DataError, match=r"looked for .*(npz|200|ubyte).* Nothing is downloaded"):
        load_images(name, tmp_path)


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_missing_from_its_folder_is_named(name, tmp_path):
    WRITERS[name](tmp_path)
    last = sorted(path for path in tmp_path.rglob("*") if path.is_file())[-1]
    last.unlink()
    with pytest.raises(DataError, match=rf"{last.name}"):
        load_images(name, tmp_path)


def test_unknown_name():
    with pytest.raises(ConfigError, match="Did you mean 'cifar10'"):
        load_images("cifar-10", ".")


@pytest.mark.parametrize("layout", [(28, 28), (28, 28, 1), (1, 28, 28)])
def test_grey_arrays_in_any_layout(layout, tmp_path):
    arrays = files.npz_arrays(*layout)
    np.savez(tmp_path / "fashion_mnist.npz", **arrays)
    found = load_images("fashion-mnist", tmp_path)
    np.testing.assert_array_equal(found.x_train[:, 0], arrays["x_train"].reshape(-1, 28, 28))
    np.testing.assert_array_equal(found.y_test, arrays["y_test"])
    assert found.classes[9] == "Ankle boot"


@pytest.mark.parametrize("channels_last", [True, False])
def test_colour_arrays_in_any_layout(channels_last, tmp_path):
    arrays = files.npz_arrays(3, 32, 32)
    stored = {k: np.moveaxis(v, 1, 3) if v.ndim == 4 and channels_last else v for k, v in arrays.items()}
    np.savez_compressed(tmp_path / "cifar10.npz", **stored)
    found = load_images("cifar10", tmp_path)
    np.testing.assert_array_equal(found.x_train, arrays["x_train"])
    np.testing.assert_array_equal(found.x_test, arrays["x_test"])


@pytest.mark.parametrize(
    ("change", "wording"),
    [
        ({"x_train": files.images(5, 32, 32)}, r"x_train must hold uint8 images of shape \(3, 32, 32\)"),
        ({"x_test": np.zeros((2, 32, 32, 3))}, "x_test must hold uint8 .* got float64"),
        ({"x_train": files.images(0, 32, 32, 3), "y_train": np.zeros(0, int)}, "x_train must hold"),
        ({"y_train": np.arange(4)}, "a whole number for each of the 5 images"),
        ({"y_train": np.arange(5.0)}, "got float64"),
        ({"y_test": np.array([0, 10])}, r"y_test must lie in 0 \.\.\. 9; got 0 \.\.\. 10"),
        ({"y_test": np.array([-1, 0])}, r"got -1 \.\.\. 0"),
        ({"class_names": np.array([b"one", b"two"])}, "names of 10 classes; got 2"),
        ({"y_test": None}, "y_test is missing"),
        ({"y_train": np.array([0, "x", None, 1, 2], dtype=object)}, "its header has object"),
    ],
)
def test_arrays_that_are_not_the_data_set(change, wording, tmp_path):
    arrays = {k: v for k, v in (files.npz_arrays(32, 32, 3) | change).items() if v is not None}
    path = tmp_path / "cifar10_small.npz"
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=rf"Could not read {path}.*{wording}"):
        load_images("cifar10-small", tmp_path)


def test_the_checksum_of_an_array_is_looked_at(tmp_path):
    path = tmp_path / "cifar10_small.npz"
    arrays = files.npz_arrays(32, 32, 3)
    np.savez(path, **arrays)
    content = bytearray(path.read_bytes())
    content[content.index(arrays["x_train"].tobytes()) + 700] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="CRC"):
        load_images("cifar10-small", tmp_path)
