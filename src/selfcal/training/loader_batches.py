"""Data in any form as batches, and a torch `DataLoader` whose rows have an index and whose order can be restored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from selfcal._support.random_streams import redirected, stream_in_use
from selfcal.errors import ConfigError
from selfcal.training.batches import Batches, TensorBatches, as_batch, half_of, inner
from selfcal.training.types import Batch

_DRAWN_AT_ONCE = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers of torch whose order depends only on their generator when a pass begins."""


def as_batches(data: object, *, batch_size: int | None = None, seed: int = 0) -> Batches:
    """Batches from arrays or tensors, a `DataLoader`, or batches already made.

    Arrays or tensors are ``(x, y)`` or ``(x, y, weight)``, where x may be a tuple or dictionary of them, or a
    dictionary with ``labels``.
    """
    if isinstance(data, Batches):
        return data
    if isinstance(data, DataLoader):
        return LoaderBatches(data)
    if isinstance(data, Mapping) or (
        isinstance(data, (tuple, list)) and len(data) in (2, 3) and not isinstance(data[1], (int, float, str))
    ):
        rows = as_batch(data)
        return TensorBatches(rows.x, rows.y, rows.weight, batch_size=batch_size, seed=seed)
    raise ConfigError(
        "Expected data as arrays or tensors (x, y) or (x, y, weight), a dictionary with labels, or a DataLoader of "
        f"such; got {type(data).__name__}."
    )


class LoaderBatches:
    """A torch `DataLoader` with each row's index in the data set added.

    Sampler, shuffling, batch size, workers and collate function are those of the loader. A sampler with a method
    `set_epoch` is told the number of each pass.

    Attributes:
        given: The loader.
        indexed: A loader of the same batches, each with the tensor of its rows' indices.
    """

    def __init__(self, loader: DataLoader[Any], rows: Iterable[list[int]] | None = None) -> None:
        if loader.batch_sampler is None or isinstance(loader.dataset, IterableDataset):
            raise ConfigError(
                "Expected a DataLoader over a map-style data set with batching, so that each row has an index and a "
                "run can be resumed; got an iterable data set or batch_size=None. Give the data set the methods "
                "__getitem__ and __len__."
            )
        self.n_rows = len(loader.dataset)  # type: ignore[arg-type] # torch's types lack the length of map-style sets
        self.given = loader
        self.indexed: DataLoader[Any] = DataLoader(
            _Indexed(loader.dataset),
            batch_sampler=loader.batch_sampler if rows is None else rows,
            collate_fn=_IndexedCollate(loader.collate_fn),
            **{name: getattr(loader, name) for name in _KEPT},
        )

    def __len__(self) -> int:
        return len(self.indexed)

    def identity(self) -> tuple[object, ...]:
        """Settings, and the first rows of the data set but for what is drawn anew whenever they are read."""
        sampler = self.given.batch_sampler
        inside = sampler.sampler if type(sampler) is BatchSampler else sampler
        by_pass = hasattr(inside, "set_epoch")
        if not (type(inside) in _DRAWN_AT_ONCE or by_pass or isinstance(inside, (Sequence, range, Tensor))):
            raise ConfigError(
                f"The order of {type(inside).__name__} cannot be restored, so that a run with a checkpoint could not "
                "be resumed exactly. Use shuffle=True or a sampler of torch, or give yours a method "
                "set_epoch(number) that decides the order of a pass."
            )
        size = sampler.batch_size if type(sampler) is BatchSampler else None
        shown = range(min(size or 1, self.n_rows))
        first, again = (self._first(shown) for _ in range(2))
        same = [a for a, b in zip(first, again, strict=True) if not _differ(a, b)]
        return size, type(inside).__name__, *same

    def _first(self, rows: Sequence[int]) -> tuple[object, ...]:
        with redirected():
            batch = as_batch(self.given.collate_fn([self.given.dataset[i] for i in rows]))
        return *inner(batch.x), batch.y, batch.weight

    def generators(self) -> list[torch.Generator]:
        """The generators that the order is drawn from: the run's own, and those of the loader."""
        sampler = self.given.batch_sampler
        owners = (self.indexed, sampler, getattr(sampler, "sampler", None))
        cpu = torch.device("cpu")
        found = [stream_in_use(cpu).generator(cpu), *(getattr(owner, "generator", None) for owner in owners)]
        return list({id(each): each for each in found if each is not None}.values())

    def redrawn(self, change: Callable[[Any], Iterable[list[int]]]) -> LoaderBatches:
        """The same data in batches of the rows that `change` makes of the loader's batch sampler.

        A single row i that is given as -1 - i stands for no row.
        """
        return LoaderBatches(self.given, change(self.given.batch_sampler))

    def halved(self) -> LoaderBatches | None:
        """A loader of half the batch size, unless the user's own sampler makes the batches."""
        sampler = self.given.batch_sampler
        if type(sampler) is not BatchSampler or not (half := half_of(sampler.batch_size, self.n_rows)):
            return None
        smaller = BatchSampler(sampler.sampler, half, sampler.drop_last)
        kept = {name: getattr(self.given, name) for name in ("collate_fn", *_KEPT)}
        return LoaderBatches(DataLoader(self.given.dataset, batch_sampler=smaller, **kept))

    def one_pass(self, number: int) -> Iterator[Batch]:
        """The batches of the loader."""
        sampler = self.given.batch_sampler
        for owner in (sampler, getattr(sampler, "sampler", None)):
            getattr(owner, "set_epoch", lambda number: None)(number)
        with redirected():  # samplers, and workers' seeds, are drawn from torch's global stream
            items = iter(self.indexed)
        while True:
            with redirected():
                item = next(items, None)
            if item is None:
                return
            rows, index = item
            batch = replace(as_batch(rows), index=index)
            yield batch if int(index[0]) >= 0 else batch.part(slice(0))


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


def _differ(one: object, other: object) -> bool:
    return isinstance(one, Tensor) and isinstance(other, Tensor) and not torch.equal(one, other)


class _Indexed(Dataset[Any]):
    """A data set whose items come with their index."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.dataset[index if index >= 0 else -1 - index], index


class _IndexedCollate:
    """The loader's own collate function, with the rows' indices added."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate

    def __call__(self, items: Sequence[tuple[Any, int]]) -> tuple[Any, Tensor]:
        rows, index = zip(*items, strict=True)
        return self.collate(list(rows)), torch.tensor(index)
