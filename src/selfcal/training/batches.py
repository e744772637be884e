"""Data as batches with the index of each row."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler

from selfcal._support.checks import positive_int, same_length
from selfcal._support.fingerprint import fingerprint
from selfcal._support.random_streams import redirected
from selfcal.errors import ConfigError, DataError
from selfcal.training.types import Batch

MIN_BATCH_ROWS = 4
"""Batches are not halved below this size if memory runs out; fewer rows would be too few for batch statistics."""


@runtime_checkable
class Batches(Protocol):
    """Data that can be iterated over any number of times.

    Batches that can be made smaller also have a method `halved`: the same data in batches of half the size, or None
    if they are too small for that.
    """

    n_rows: int

    def one_pass(self, number: int) -> Iterator[Batch]:
        """All rows, batch by batch; `number`, the number of the pass from 0, may determine the order."""

    def __len__(self) -> int:
        """Batches in a pass."""


class TensorBatches:
    """Batches of tensors in memory.

    Args:
        x: The rows.
        y: Their label codes, 0, 1, 2, ...
        weight: Optional sample weights.
        batch_size: Rows per batch at most; batches are equal to within a row, so that none is too small for
            batch statistics. None gives all rows at once, in order.
        seed: With the number of the pass it decides the order of the rows, the same in every run.

    Example:
        >>> import torch
        >>> data = TensorBatches(torch.arange(5.0)[:, None], torch.zeros(5, dtype=torch.long), batch_size=2)
        >>> [len(batch.x) for batch in data.one_pass(0)]
        [2, 2, 1]
        >>> len(data), data.n_rows
        (3, 5)
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        weight: Tensor | None = None,
        *,
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        self.n_rows = same_length(x=x, y=y, weight=weight)
        if not self.n_rows:
            raise DataError("The data must have at least one row; got none.")
        if weight is not None and not bool((torch.isfinite(weight) & (weight >= 0)).all() and weight.any()):
            raise DataError("Sample weights must be finite, not negative and not all zero.")
        self._rows = Batch(x, checked_codes(y), torch.arange(self.n_rows, device=x.device), weight)
        self._batch_size = None if batch_size is None else positive_int("batch_size", batch_size)
        self._seed = seed

    def __len__(self) -> int:
        return 1 if self._batch_size is None else -(-self.n_rows // self._batch_size)

    def identity(self) -> tuple[object, ...]:
        """Everything that the passes depend on."""
        rows = self._rows
        return self._batch_size, self._seed, rows.x, rows.y, rows.weight

    def halved(self) -> Self | None:
        """The same rows in batches of half the size."""
        half = half_of(self._batch_size, self.n_rows)
        smaller = copy.copy(self)
        smaller._batch_size = half
        return smaller if half else None

    def one_pass(self, number: int) -> Iterator[Batch]:
        """All rows once, in a different order for every pass."""
        if len(self) == 1:
            yield self._rows
            return
        for places in shuffled_rows(self.n_rows, len(self), pass_generator(self._seed, number)):
            rows = places.to(self._rows.x.device)
            weight = None if self._rows.weight is None else self._rows.weight[rows]
            yield Batch(self._rows.x[rows], self._rows.y[rows], rows, weight)


def half_of(batch_size: int | None, n_rows: int) -> int:
    """Half the rows of a batch, which has all rows if no size is given; 0 if that would be too few."""
    half = min(batch_size or n_rows, n_rows) // 2
    return half if half >= MIN_BATCH_ROWS else 0


def halved(batches: Batches, times: int) -> Batches:
    """The same data in batches halved so many times, as far as that is possible.

    Example:
        >>> import torch
        >>> data = TensorBatches(torch.zeros(20, 1), torch.zeros(20, dtype=torch.long))
        >>> [len(halved(data, times)) for times in range(4)]
        [1, 2, 4, 4]
    """
    for _ in range(times):
        smaller = getattr(batches, "halved", lambda: None)()
        if smaller is None:
            break
        batches = smaller
    return batches


def checked_codes(y: Tensor) -> Tensor:
    """The labels as int64 if they are a vector of class codes 0, 1, 2, ..."""
    whole = not (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool)
    if whole and y.ndim == 1 and bool((y >= 0).all()):
        return y.long()
    raise DataError(
        "y must be a vector of class codes 0, 1, 2, ... of an integer type; got "
        f"{str(y.dtype).removeprefix('torch.')} of shape {tuple(y.shape)}"
        f"{'' if y.ndim != 1 else f', starting with {y[:3].tolist()}'}. Try y.long()."
    )


def pass_generator(seed: int, number: int) -> torch.Generator:
    """A random generator for one pass over the data, independent of all others."""
    return torch.Generator().manual_seed(seed * 1_000_003 + number)


def shuffled_rows(n_rows: int, n_batches: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """The row indices in a random order, split into batches whose sizes differ by one at most."""
    return torch.randperm(n_rows, generator=generator).tensor_split(n_batches)


class LoaderBatches:
    """A torch `DataLoader` of ``(x, y)`` or ``(x, y, weight)``, with each row's index in the data set added.

    Sampler, shuffling, batch size, workers and collate function are those of the loader.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        if loader.batch_sampler is None or isinstance(loader.dataset, IterableDataset):
            raise ConfigError(
                "Expected a DataLoader over a map-style data set with batching, so that each row has an index; "
                "got an iterable data set or batch_size=None."
            )
        self.n_rows = len(loader.dataset)  # type: ignore[arg-type] # torch's types lack the length of map-style sets
        self._given = loader
        self._loader: DataLoader[Any] = DataLoader(
            _Indexed(loader.dataset),
            batch_sampler=loader.batch_sampler,
            collate_fn=_IndexedCollate(loader.collate_fn),
            **{name: getattr(loader, name) for name in _KEPT},
        )

    def __len__(self) -> int:
        return len(self._loader)

    def identity(self) -> tuple[object, ...]:
        """The first batch, if the loader has an order that a later process can reproduce."""
        sampler = self._loader.batch_sampler
        if type(sampler) is BatchSampler and isinstance(sampler.sampler, SequentialSampler):
            return first_rows(self)
        raise ConfigError(
            "A DataLoader that shuffles uses its own generator, so that a run with a checkpoint could not be "
            "resumed exactly. Pass the data as tensors or as ImageBatches, whose order depends only on a seed and "
            "the number of the pass, or use shuffle=False."
        )

    def halved(self) -> LoaderBatches | None:
        """A loader of half the batch size, unless the user's own sampler makes the batches."""
        sampler = self._loader.batch_sampler
        if type(sampler) is not BatchSampler or not (half := half_of(sampler.batch_size, self.n_rows)):
            return None
        smaller = BatchSampler(sampler.sampler, half, sampler.drop_last)
        kept = {name: getattr(self._given, name) for name in ("collate_fn", *_KEPT)}
        return LoaderBatches(DataLoader(self._given.dataset, batch_sampler=smaller, **kept))

    def one_pass(self, number: int) -> Iterator[Batch]:
        """The batches of the loader."""
        with redirected():  # samplers, and workers' seeds, are drawn from torch's global stream
            items = iter(self._loader)
        while True:
            with redirected():
                item = next(items, None)
            if item is None:
                return
            rows, index = item
            yield replace(as_batch(rows), index=index)


_KEPT = (
    "num_workers",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
)


class _Indexed(Dataset[Any]):
    """A data set whose items come with their index."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.dataset[index], index


class _IndexedCollate:
    """The loader's own collate function, with the rows' indices added."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate

    def __call__(self, items: Sequence[tuple[Any, int]]) -> tuple[Any, Tensor]:
        rows, index = zip(*items, strict=True)
        return self.collate(list(rows)), torch.tensor(index)


def as_batches(data: object, *, batch_size: int | None = None, seed: int = 0) -> Batches:
    """Batches from arrays or tensors ``(x, y)`` or ``(x, y, weight)``, a `DataLoader`, or batches already made."""
    if isinstance(data, Batches):
        return data
    if isinstance(data, DataLoader):
        return LoaderBatches(data)
    arrays = (Tensor, np.ndarray)
    if isinstance(data, (tuple, list)) and len(data) in (2, 3) and all(isinstance(d, arrays) for d in data):
        x, y, *weight = (torch.as_tensor(part) for part in data)
        return TensorBatches(x, y, *weight, batch_size=batch_size, seed=seed)
    raise ConfigError(
        "Expected data as arrays or tensors (x, y) or (x, y, weight), or a DataLoader of such; "
        f"got {type(data).__name__}."
    )


def as_batch(rows: object) -> Batch:
    """A batch from a `Batch` or from ``(x, y)`` or ``(x, y, weight)``."""
    if isinstance(rows, Batch):
        return rows
    if isinstance(rows, (tuple, list)) and len(rows) in (2, 3):
        x, y, *weight = rows
        return Batch(x, y, None, *weight)
    raise ConfigError(
        "Expected a batch as (x, y), (x, y, weight) or selfcal.Batch(x, y, index, weight); "
        f"got {type(rows).__name__}."
    )


class Endless:
    """Pass after pass over the data, starting at any position.

    Example:
        >>> import torch
        >>> data = TensorBatches(torch.arange(4.0)[:, None], torch.zeros(4, dtype=torch.long), batch_size=2)
        >>> stream = Endless(data)
        >>> rows = [next(stream).index.tolist() for _ in range(4)]
        >>> again = Endless(data)
        >>> again.load_state({"number": 1, "taken": 1, "of": 2})
        >>> next(again).index.tolist() == rows[3]
        True
    """

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self._start(0, 0)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = next(self._pass, None)
        if batch is None:
            if not self._taken:
                raise DataError(
                    "A pass over the data must yield at least one batch; got no batch. Use a smaller batch size "
                    "if this is a DataLoader with drop_last=True."
                )
            self._start(self._number + 1, 0)
            return next(self)
        self._taken += 1
        return batch

    def state(self) -> dict[str, int]:
        """The number of the pass, and how many of its batches were taken, of how many."""
        return {"number": self._number, "taken": self._taken, "of": len(self.batches)}

    def load_state(self, state: dict[str, int]) -> None:
        """Continue from a `state`; with batches of another size, from about the same position in the pass."""
        self._start(state["number"], state["taken"] * len(self.batches) // state["of"])

    def _start(self, number: int, taken: int) -> None:
        self._number, self._taken = number, taken
        self._pass = iter(self.batches.one_pass(number))
        for _ in range(taken):
            next(self._pass)


def data_fingerprint(batches: Batches) -> str:
    """A SHA-256 that identifies the data and its order.

    Batches without a method `identity` (everything that their passes depend on: tensors, and objects with a repr) are
    identified by their size and the first batch.

    Example:
        >>> import torch
        >>> x, y = torch.arange(4.0)[:, None], torch.zeros(4, dtype=torch.long)
        >>> data_fingerprint(TensorBatches(x, y)) == data_fingerprint(TensorBatches(x + 1, y))
        False
    """
    identity = getattr(batches, "identity", None)
    parts: list[object] = [type(batches).__name__, batches.n_rows, len(batches)]
    for part in first_rows(batches) if identity is None else identity():
        if isinstance(part, Tensor):  # by its bytes: NumPy has no bfloat16
            raw = part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
            parts += [part.dtype, tuple(part.shape), raw]
        else:
            parts.append(part)
    return fingerprint(*parts)


def first_rows(batches: Batches) -> tuple[object, ...]:
    """The parts of the first batch."""
    batch = next(Endless(batches))
    return batch.x, batch.y, batch.index, batch.weight
