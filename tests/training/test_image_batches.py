import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import pad

from selfcal import ImageBatches, TensorBatches
from selfcal.errors import ConfigError, DataError
from selfcal.training.batches import Batches
from selfcal.training.image_batches import cropped
from selfcal.training.loader_batches import as_batches

RNG = np.random.default_rng(0)
X, Y = RNG.integers(0, 256, (25, 3, 12, 10), dtype=np.uint8), np.arange(25) % 4
RAW = {"mean": [0.0] * 3, "std": [1 / 255] * 3}  # batches then hold the bytes themselves


def in_row_order(batches, number=0):
    seen = list(batches.one_pass(number))
    order = torch.cat([b.index for b in seen]).argsort()
    return torch.cat([b.x for b in seen])[order], torch.cat([b.y for b in seen])[order]


def test_one_pass_visits_every_row_once_in_equal_batches():
    batches = ImageBatches(X, Y, batch_size=8, **RAW)
    assert isinstance(batches, Batches)
    assert as_batches(batches) is batches
    assert (len(batches), batches.n_rows) == (4, 25)
    seen = list(batches.one_pass(0))
    assert [len(b.y) for b in seen] == [7, 6, 6, 6]
    assert sorted(torch.cat([b.index for b in seen]).tolist()) == list(range(25))
    for b in seen:
        np.testing.assert_allclose(b.x, X[b.index], rtol=1e-6)
        np.testing.assert_array_equal(b.y, Y[b.index])


def test_the_order_is_that_of_batches_of_tensors():
    ours = ImageBatches(X, Y, batch_size=8, seed=3, augment=True)
    theirs = TensorBatches(torch.from_numpy(X), torch.from_numpy(Y), batch_size=8, seed=3)
    for a, b in zip(ours.one_pass(2), theirs.one_pass(2), strict=True):
        assert torch.equal(a.index, b.index)


def test_without_shuffling_the_rows_come_in_order():
    seen = ImageBatches(X, Y, batch_size=8, shuffle=False).one_pass(5)
    assert torch.equal(torch.cat([b.index for b in seen]), torch.arange(25))


def test_channels_are_normalised_by_their_own_mean_and_spread():
    batches = ImageBatches(X, Y, batch_size=8)
    x, _ = in_row_order(batches)
    assert x.dtype == torch.float32
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)
    np.testing.assert_allclose(batches.mean, (X / 255).mean((0, 2, 3)))
    np.testing.assert_allclose(batches.std, (X / 255).std((0, 2, 3)))


def test_other_images_take_the_statistics_of_the_training_images():
    train = ImageBatches(X[:20], Y[:20], batch_size=8)
    x, _ = in_row_order(ImageBatches(X[20:], Y[20:], batch_size=8, mean=train.mean, std=train.std))
    mean, std = (X[:20] / 255).mean((0, 2, 3)), (X[:20] / 255).std((0, 2, 3))
    expected = (X[20:] / 255 - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(x, expected, atol=1e-5)


def test_a_channel_that_never_varies_is_only_centred():
    batches = ImageBatches(np.full((4, 1, 8, 8), 7, np.uint8), np.zeros(4, int), batch_size=4)
    assert batches.std == (1.0,)
    assert in_row_order(batches)[0].abs().max() < 1e-7


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 12), st.data())
def test_crops_are_windows_of_the_padded_image(channels, height, width, data):
    x = torch.randint(1, 256, (3, channels, height, width), dtype=torch.uint8)
    corners = torch.tensor([[data.draw(st.integers(0, 8)) for _ in range(3)] for _ in range(2)])
    for image, (top, left), ours in zip(x, corners.T.tolist(), cropped(x, corners), strict=True):
        assert torch.equal(ours, pad(image, (4, 4, 4, 4))[:, top : top + height, left : left + width])


def test_augmentation_moves_up_to_four_pixels_and_flips_about_half():
    """The position of one bright pixel shows the shift: every shift occurs, and each as often as it should."""
    n = 4000
    x = np.zeros((n, 1, 20, 20), np.uint8)
    x[:, 0, 10, 6] = 255
    out, _ = in_row_order(ImageBatches(x, np.zeros(n, int), batch_size=500, augment=True, mean=[0], std=[1]))
    assert torch.equal(out.sum((1, 2, 3)), torch.ones(n))
    down, right = np.divmod(out.flatten(1).argmax(1).numpy(), 20)
    flipped = right > 11  # 6 moves to 2 ... 10, and then by the flip to 17 ... 9: only some can be recognised
    assert set(down) == set(range(6, 15))
    assert set(right) == set(range(2, 11)) | set(range(9, 18))
    np.testing.assert_allclose(np.bincount(down)[6:] / n, 1 / 9, atol=0.025)
    np.testing.assert_allclose(flipped.mean(), 6 / 9 / 2, atol=0.03)


def test_augmentation_depends_on_seed_and_pass_alone():
    def images(seed=1, number=0, batch_size=8, **more):
        return in_row_order(
            ImageBatches(X, Y, batch_size=batch_size, seed=seed, augment=True, **more), number
        )[0]

    torch.manual_seed(0)
    first = images()
    torch.manual_seed(99)
    assert torch.equal(first, images())
    assert torch.equal(first, images(batch_size=3))
    assert not torch.equal(first, images(number=1))
    assert not torch.equal(first, images(seed=2))
    batches = ImageBatches(X, Y, batch_size=8, seed=1, augment=True)
    list(batches.one_pass(3))
    next(batches.one_pass(0))
    assert torch.equal(first, in_row_order(batches)[0])
    assert not np.shares_memory(X, first.numpy())


def test_random_streams_of_others_stay_where_they_are():
    before = torch.get_rng_state()
    list(ImageBatches(X, Y, batch_size=8, augment=True).one_pass(0))
    assert torch.equal(before, torch.get_rng_state())


def test_bytes_are_neither_copied_nor_changed():
    x = X.copy()
    batches = ImageBatches(x, Y, batch_size=8, augment=True)
    assert np.shares_memory(batches._x.numpy(), x)
    list(batches.one_pass(0))
    np.testing.assert_array_equal(x, X)


def test_read_only_and_turned_arrays_and_tensors_are_taken():
    frozen = X.copy()
    frozen.setflags(write=False)
    expected, _ = in_row_order(ImageBatches(X, Y, batch_size=8))
    views = [frozen, X.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2), X[::-1].copy()[::-1]]
    for x in [*views, torch.from_numpy(X)]:
        assert torch.equal(in_row_order(ImageBatches(x, torch.from_numpy(Y), batch_size=8))[0], expected)


@pytest.mark.parametrize(
    ("arguments", "more", "error", "wording"),
    [
        ((X / 255, Y), {}, DataError, r"uint8 of shape .* got float64 .* x\[:, None\]"),
        ((X[:, 0], Y), {}, DataError, r"got uint8 of shape \(25, 12, 10\)"),
        ((X[:0], Y[:0]), {}, DataError, "at least one"),
        ((X, Y[:4]), {}, DataError, "x has 25, y has 4"),
        ((X, Y / 2), {}, DataError, "class codes"),
        ((X.astype(object), Y), {}, DataError, "arrays of whole numbers"),
        ((X, Y), {"batch_size": 0}, ConfigError, "batch_size"),
        ((X, Y), {"seed": -1}, ConfigError, "seed"),
        ((X, Y), {"augment": "no"}, ConfigError, "augment must be True or False"),
        ((X, Y), {"mean": [0.5]}, ConfigError, "mean must hold a number for each of the 3 channels"),
        ((X, Y), {"std": [1, 0, 1]}, ConfigError, "std must be a number in"),
        ((X, Y), {"mean": [0, 0, float("nan")]}, ConfigError, "mean must be a number"),
    ],
)
def test_bad_input(arguments, more, error, wording):
    with pytest.raises(error, match=wording):
        ImageBatches(*arguments, **{"batch_size": 8} | more)
