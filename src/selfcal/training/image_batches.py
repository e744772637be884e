"""Batches of images: stored as bytes, normalised and augmented when a batch is made."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from selfcal._support.checks import boolean, in_range, positive_int, same_length
from selfcal.errors import ConfigError, DataError
from selfcal.training.batches import checked_codes, half_of, pass_generator, shuffled_rows
from selfcal.training.types import Batch

PADDING = 4
"""Black pixels added on each side before an image is cropped to its size again, as is usual for CIFAR."""


class ImageBatches:
    """Batches of images in memory, stored with one byte per value.

    A batch holds `(x / 255 - mean) / std`, channel by channel. With `augment` every image is shifted by up to
    four pixels in each direction and flipped left to right with probability one half, differently in every pass.

    Args:
        x: The images as uint8 of shape (rows, channels, height, width), an array or a tensor.
        y: Their label codes, 0, 1, 2, ...
        batch_size: Rows per batch at most; batches are equal to within a row.
        seed: With the number of the pass it decides the order and the augmentation, the same in every run.
        mean: Mean of each channel on the scale from 0 to 1; that of `x` unless given.
        std: Standard deviation of each channel; that of `x` unless given.
        augment: Whether to crop and flip at random; for training only.
        shuffle: Whether the rows come in a new random order in every pass.

    Example:
        >>> import numpy as np
        >>> x = np.arange(6 * 28 * 28, dtype=np.uint8).reshape(6, 1, 28, 28)
        >>> train = ImageBatches(x[:5], np.arange(5) % 2, batch_size=2, augment=True)
        >>> [tuple(batch.x.shape) for batch in train.one_pass(0)]
        [(2, 1, 28, 28), (2, 1, 28, 28), (1, 1, 28, 28)]
        >>> test = ImageBatches(x[5:], np.zeros(1, dtype=int), batch_size=2, mean=train.mean, std=train.std)
        >>> len(test), test.n_rows
        (1, 1)
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __init__(
        self,
        x: Tensor | NDArray[np.uint8],
        y: Tensor | NDArray[Any],
        *,
        batch_size: int,
        seed: int = 0,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        augment: bool = False,
        shuffle: bool = True,
    ) -> None:
        self._x = _images(_tensor(x))
        self._y = checked_codes(_tensor(y))
        self.n_rows = same_length(x=self._x, y=self._y)
        self._batch_size = positive_int("batch_size", batch_size)
        self._seed = positive_int("seed", seed, low=0)
        self._augment = boolean("augment", augment)
        self._shuffle = boolean("shuffle", shuffle)
        if mean is None or std is None:
            own_mean, own_std = _channel_statistics(self._x)
            mean = own_mean if mean is None else mean
            std = own_std if std is None else std
        self.mean = _per_channel("mean", mean, self._x.shape[1], low=-np.inf)
        self.std = _per_channel("std", std, self._x.shape[1], low=0.0)
        spread = torch.tensor(self.std).view(-1, 1, 1)
        self._scale = 1 / (255 * spread)
        self._shift = -torch.tensor(self.mean).view(-1, 1, 1) / spread

    def __len__(self) -> int:
        return (self.n_rows + self._batch_size - 1) // self._batch_size

    def identity(self) -> tuple[object, ...]:
        """Everything that the passes depend on."""
        settings = self._batch_size, self._seed, self.mean, self.std, self._augment, self._shuffle
        return *settings, self._x, self._y

    def halved(self) -> Self | None:
        """The same images in batches of half the size."""
        half = half_of(self._batch_size, self.n_rows)
        smaller = copy.copy(self)
        smaller._batch_size = half
        return smaller if half else None

    def one_pass(self, number: int) -> Iterator[Batch]:
        """All rows once; their order and augmentation depend on the number of the pass."""
        generator = pass_generator(self._seed, number)
        if self._shuffle:
            batches = shuffled_rows(self.n_rows, len(self), generator)
        else:
            batches = torch.arange(self.n_rows).tensor_split(len(self))
        if self._augment:  # drawn for all rows at once, so that it does not depend on the batches
            corners = torch.randint(2 * PADDING + 1, (2, self.n_rows), generator=generator)
            flipped = torch.randint(2, (self.n_rows,), generator=generator).bool()
        for rows in batches:
            x = self._x.index_select(0, rows)
            if self._augment:
                x = cropped(x, corners[:, rows])
                x = torch.where(flipped[rows, None, None, None], x.flip(3), x)
            yield Batch(x.float().mul_(self._scale).add_(self._shift), self._y[rows], rows)


def cropped(x: Tensor, corners: Tensor) -> Tensor:
    """Each image with a black margin, cropped at its own (top, left) corner in `corners`."""
    height, width = x.shape[2:]
    windows = pad(x, (PADDING,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(len(x)), :, corners[0], corners[1]]


def _tensor(values: Tensor | NDArray[Any]) -> Tensor:
    """A tensor on the CPU, which shares the memory of an array where it can."""
    if isinstance(values, Tensor):
        return values.cpu()
    try:
        return torch.from_numpy(np.require(values, requirements=["C", "W"]))
    except TypeError as error:
        raise DataError(f"Expected images and labels as arrays of whole numbers; {error}") from error


def _images(x: Tensor) -> Tensor:
    if x.dtype != torch.uint8 or x.ndim != 4 or 0 in x.shape:
        raise DataError(
            "x must hold images as uint8 of shape (rows, channels, height, width), at least one; got "
            f"{str(x.dtype).removeprefix('torch.')} of shape {tuple(x.shape)}. Grey images of shape (rows, height, "
            "width) need x[:, None]; images with the channels last x.transpose(0, 3, 1, 2)."
        )
    return x


def _channel_statistics(x: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, from exact counts; a channel that never varies has 1."""
    value = torch.arange(256, dtype=torch.float64) / 255
    means, spreads = [], []
    for channel in range(x.shape[1]):
        count = torch.bincount(x[:, channel].reshape(-1), minlength=256)
        mean = (count * value).sum() / count.sum()
        variance = (count * (value - mean) ** 2).sum() / count.sum()
        means.append(float(mean))
        spreads.append(float(variance.sqrt()) if count.count_nonzero() > 1 else 1.0)
    return means, spreads


def _per_channel(name: str, values: Sequence[float], channels: int, *, low: float) -> tuple[float, ...]:
    if len(values) != channels:
        raise ConfigError(
            f"{name} must hold a number for each of the {channels} channels; got {len(values)} numbers."
        )
    return tuple(float(in_range(name, value, low, open_low=True)) for value in values)
