"""The rows that two data sets have in common, as far as that can be told without reading them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

from selfcal.errors import DataError
from selfcal.training.batches import Batches, TensorBatches
from selfcal.training.inputs import named
from selfcal.training.loader_batches import LoaderBatches

MIN_DIFFERENT = 10
"""Equal tensors with fewer different rows may be drawn apart from a table with few different rows."""

Places = dict[object, NDArray[np.int64]]
"""Where rows are: positions in data sets, and addresses in memory."""


def check_disjoint(*, is_bilevel: bool, **data: Batches | None) -> None:
    """Refuse data sets that have rows in common, where that would make a result look better than it is.

    Only an outer level learns from the outer rows: without one, a calibrator may share those of early stopping.
    """
    for first, second in combinations(data, 2):
        may_share = not is_bilevel and "train_data" not in (first, second)
        one, other = data[first], data[second]
        if one is None or other is None or may_share:
            continue
        shared = rows_in_common(one, other)
        if shared:
            raise DataError(
                f"{first} and {second} must be disjoint: rows that the network or the outer level has learned from "
                f"make it look better than it is; got {shared:,} row{'s' * (shared > 1)} in both. Split the data "
                "first, for example with torch.utils.data.random_split."
            )


def rows_in_common(one: Batches, other: Batches) -> int:
    """The number of rows that are in both; 0 if it is not known.

    Example:
        >>> x, y = torch.arange(6.0)[:, None], torch.zeros(6, dtype=torch.long)
        >>> rows_in_common(TensorBatches(x[:4], y[:4]), TensorBatches(x[3:], y[3:]))
        1
    """
    if isinstance(one, TensorBatches) and isinstance(other, TensorBatches) and _copied(one, other):
        return one.n_rows
    first, second = _places(one), _places(other)
    return sum(len(np.intersect1d(rows, second[key])) for key, rows in first.items() if key in second)


def _copied(one: TensorBatches, other: TensorBatches) -> bool:
    """Whether the rows are equal, and too many different ones for that to be chance."""
    pairs = [({**named(b.rows.x), "labels": b.rows.y}) for b in (one, other)]
    equal = pairs[0].keys() == pairs[1].keys() and all(
        torch.equal(part, pairs[1][name]) if part.shape == pairs[1][name].shape else False
        for name, part in pairs[0].items()
    )
    first = next(iter(pairs[0].values()))
    return equal and len(torch.unique(first.reshape(len(first), -1), dim=0)) >= MIN_DIFFERENT


def _places(batches: Batches) -> Places:
    if isinstance(batches, TensorBatches):
        return _in_memory(next(iter(named(batches.rows.x).values())), np.arange(batches.n_rows))
    if isinstance(batches, LoaderBatches):
        rows = _visited(batches)
        return {} if rows is None else _in_data_set(batches.given.dataset, rows)
    return {}


def _visited(batches: LoaderBatches) -> NDArray[np.int64] | None:
    """The rows of the data set that a loader yields; None if only its sampler knows."""
    sampler = batches.given.batch_sampler
    inside = sampler.sampler if isinstance(sampler, BatchSampler) else None
    if isinstance(inside, SubsetRandomSampler):
        return np.asarray(inside.indices, dtype=np.int64)
    if isinstance(inside, (SequentialSampler, RandomSampler)):
        return np.arange(batches.n_rows)
    return None


def _in_data_set(dataset: Any, rows: NDArray[np.int64]) -> Places:
    if isinstance(dataset, Subset):
        return _in_data_set(dataset.dataset, np.asarray(dataset.indices, dtype=np.int64)[rows])
    if isinstance(dataset, ConcatDataset):
        places: Places = {}
        ends = np.asarray(dataset.cumulative_sizes)
        for part, end, size in zip(dataset.datasets, ends, np.diff(ends, prepend=0), strict=True):
            inside = rows[(rows >= end - size) & (rows < end)] - (end - size)
            for key, found in _in_data_set(part, inside).items():
                places[key] = np.concatenate([places.get(key, found[:0]), found])
        return places
    if isinstance(dataset, TensorDataset):
        return _in_memory(dataset.tensors[0], rows)
    return {id(dataset): rows}


def _in_memory(x: Tensor, rows: NDArray[np.int64]) -> Places:
    """The addresses of rows; none for rows that all lie at one address."""
    if not x.numel() or not x.stride(0):
        return {}
    return {str(x.device): x.data_ptr() + rows * (x.stride(0) * x.element_size())}
