"""Training data as batches that know which training rows they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from selfcal._checks import positive_int, same_length
from selfcal._types import Batch
from selfcal.errors import ConfigError, DataError


class Batches(Protocol):
    """Anything that can be iterated over again and again, one pass over the data at a time."""

    n_rows: int

    def __iter__(self) -> Iterator[Batch]: ...

    def __len__(self) -> int: ...


class TensorBatches:
    """Batches of tensors in memory.

    Args:
        x: The rows.
        y: Their label codes.
        weight: Optional sample weights.
        batch_size: Rows per batch at most; batches are equal to within a row, so that none is too small for
            batch statistics. None gives all rows at once, in order.
        seed: Seeds the shuffling, which is this object's own and the same in every run.

    Example:
        >>> import torch
        >>> data = TensorBatches(torch.arange(5.0)[:, None], torch.zeros(5, dtype=torch.long), batch_size=2)
        >>> [len(batch.x) for batch in data]
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
            raise DataError("Expected at least one row of data; got none.")
        self._x, self._y, self._weight = x, y, weight
        self._batch_size = None if batch_size is None else positive_int("batch_size", batch_size)
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return 1 if self._batch_size is None else -(-self.n_rows // self._batch_size)

    def __iter__(self) -> Iterator[Batch]:
        if len(self) == 1:
            yield Batch(self._x, self._y, torch.arange(self.n_rows, device=self._x.device), self._weight)
            return
        order = torch.randperm(self.n_rows, generator=self._generator).to(self._x.device)
        for rows in order.tensor_split(len(self)):
            weight = None if self._weight is None else self._weight[rows]
            yield Batch(self._x[rows], self._y[rows], rows, weight)


class LoaderBatches:
    """A torch `DataLoader` of ``(x, y)`` pairs, with each row's place in the data set added.

    Sampler, batch size, workers and collate function stay the loader's own.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        if loader.batch_sampler is None or isinstance(loader.dataset, torch.utils.data.IterableDataset):
            raise ConfigError(
                "Expected a DataLoader over a map-style data set with batching, so that each row has a place; "
                "got an iterable data set or batch_size=None. Give batches as (x, y, index) instead."
            )
        self.n_rows = len(loader.dataset)  # type: ignore[arg-type]
        self._loader: DataLoader[Any] = DataLoader(
            _Indexed(loader.dataset),
            batch_sampler=loader.batch_sampler,
            num_workers=loader.num_workers,
            collate_fn=_IndexedCollate(loader.collate_fn),
            pin_memory=loader.pin_memory,
            generator=loader.generator,
        )

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        for rows, index in self._loader:
            batch = as_batch(rows)
            yield Batch(batch.x, batch.y, index)


class _Indexed(Dataset[Any]):
    """A data set whose items say where they stand."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.dataset[index], index


class _IndexedCollate:
    """The loader's own collate function, with the rows' places beside it."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate

    def __call__(self, items: Sequence[tuple[Any, int]]) -> tuple[Any, Tensor]:
        rows, index = zip(*items, strict=True)
        return self.collate(list(rows)), torch.tensor(index)


def as_batches(data: object, *, batch_size: int | None = None, seed: int = 0) -> Batches:
    """Batches from a pair of tensors, a `DataLoader`, or batches already made."""
    if isinstance(data, (TensorBatches, LoaderBatches)):
        return data
    if isinstance(data, DataLoader):
        return LoaderBatches(data)
    if isinstance(data, tuple) and all(isinstance(part, Tensor) for part in data) and len(data) in (2, 3):
        x, y, *weight = data
        return TensorBatches(x, y, *weight, batch_size=batch_size, seed=seed)
    if hasattr(data, "n_rows") and isinstance(data, Iterable):
        return data  # type: ignore[return-value] # the protocol, by its looks
    raise ConfigError(
        f"Expected data as a pair of tensors (x, y), a DataLoader or a Batches object; got {type(data).__name__}."
    )


def as_batch(rows: object) -> Batch:
    """A batch from a `Batch` or from ``(x, y)`` or ``(x, y, index)``."""
    if isinstance(rows, Batch):
        return rows
    if isinstance(rows, (tuple, list)) and len(rows) in (2, 3):
        return Batch(*rows)
    raise ConfigError(f"Expected a batch as (x, y) or (x, y, index); got {type(rows).__name__}.")


def endless(batches: Batches) -> Iterator[Batch]:
    """Pass after pass over the data."""
    while True:
        yield from batches
