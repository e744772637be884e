"""Data as batches with the index of each row."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from selfcal._support.checks import positive_int, same_length
from selfcal._support.fingerprint import fingerprint
from selfcal.errors import ConfigError, DataError
from selfcal.training.inputs import Inputs, as_inputs, named, split_labels, taken, tensor
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
        x: The rows: a tensor, or a tuple or dictionary of tensors.
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
        x: Inputs,
        y: Tensor,
        weight: Tensor | None = None,
        *,
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        self.n_rows = same_length(**named(x), y=y, weight=weight)
        if not self.n_rows:
            raise DataError("The data must have at least one row; got none.")
        if weight is not None and not bool((torch.isfinite(weight) & (weight >= 0)).all() and weight.any()):
            raise DataError("Sample weights must be finite, not negative and not all zero.")
        self.rows = Batch(x, checked_codes(y), torch.arange(self.n_rows, device=_device(x)), weight)
        self._batch_size = None if batch_size is None else positive_int("batch_size", batch_size)
        self._seed = seed

    def __len__(self) -> int:
        return 1 if self._batch_size is None else -(-self.n_rows // self._batch_size)

    def identity(self) -> tuple[object, ...]:
        """Everything that the passes depend on."""
        rows = self.rows
        return self._batch_size, self._seed, *inner(rows.x), rows.y, rows.weight

    def halved(self) -> Self | None:
        """The same rows in batches of half the size."""
        half = half_of(self._batch_size, self.n_rows)
        smaller = copy.copy(self)
        smaller._batch_size = half
        return smaller if half else None

    def one_pass(self, number: int) -> Iterator[Batch]:
        """All rows once, in a different order for every pass."""
        if len(self) == 1:
            yield self.rows
            return
        for places in shuffled_rows(self.n_rows, len(self), pass_generator(self._seed, number)):
            rows = places.to(_device(self.rows.x))
            weight = None if self.rows.weight is None else self.rows.weight[rows]
            yield Batch(taken(self.rows.x, rows), self.rows.y[rows], rows, weight)


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


def as_batch(rows: object) -> Batch:
    """A batch from a `Batch`, from ``(x, y)`` or ``(x, y, weight)``, or from a dictionary with ``labels``."""
    if isinstance(rows, Batch):
        return rows
    if isinstance(rows, (tuple, list)) and len(rows) in (2, 3):
        x, y, weight = as_inputs(rows[0]), rows[1], rows[2] if len(rows) == 3 else None
    elif isinstance(rows, Mapping):
        x, y, weight = split_labels(rows)
    else:
        raise ConfigError(
            "Expected a batch as (x, y), (x, y, weight), a dictionary with labels, or selfcal.Batch(x, y, index, "
            f"weight); got {type(rows).__name__}."
        )
    if y is None:
        raise ConfigError(
            f'A batch that is a dictionary must have its labels as "labels"; got {", ".join(map(str, named(x)))}. '
            "Rename the entry in the data set or in the loader's collate_fn."
        )
    return Batch(x, tensor(y), None, None if weight is None else tensor(weight))


class Endless:
    """Pass after pass over the data, starting at any position.

    Example:
        >>> import torch
        >>> data = TensorBatches(torch.arange(4.0)[:, None], torch.zeros(4, dtype=torch.long), batch_size=2)
        >>> stream = Endless(data)
        >>> rows = [next(stream).index.tolist() for _ in range(4)]
        >>> again = Endless(data)
        >>> again.load_state({"number": 1, "taken": 1, "of": 2, "before": [], "random": []})
        >>> next(again).index.tolist() == rows[3]
        True
    """

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self._before: list[Tensor] = []
        self._start(0, 0)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if not self._taken:  # here the pass begins to draw its order
            self._before = random_states(self.batches)
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

    def state(self) -> dict[str, Any]:
        """The number of the pass, how many of its batches were taken of how many, and the random states."""
        return {
            "number": self._number,
            "taken": self._taken,
            "of": len(self.batches),
            "before": self._before,
            "random": random_states(self.batches),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`; with batches of another size, from about the same position in the pass."""
        set_random_states(self.batches, state["before"])
        self._start(state["number"], state["taken"] * len(self.batches) // state["of"])
        self._before = list(state["before"])
        set_random_states(self.batches, state["random"])

    def _start(self, number: int, taken: int) -> None:
        self._number, self._taken = number, taken
        self._pass = iter(self.batches.one_pass(number))
        for _ in range(taken):
            next(self._pass)


def random_states(batches: Batches) -> list[Tensor]:
    """The states of the generators that batches draw from, apart from what the number of the pass decides."""
    return [generator.get_state() for generator in _generators(batches)]


def set_random_states(batches: Batches, states: Sequence[Tensor]) -> None:
    """Restore `random_states`; nothing happens without states."""
    for generator, state in zip(_generators(batches), states, strict=False):
        generator.set_state(state)


def _generators(batches: Batches) -> Sequence[torch.Generator]:
    found: Sequence[torch.Generator] = getattr(batches, "generators", tuple)()
    return found


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
    return *inner(batch.x), batch.y, batch.index, batch.weight


def inner(x: Inputs) -> tuple[object, ...]:
    """The tensors of an input as parts of a fingerprint, with their names if it is not one tensor."""
    return (x,) if isinstance(x, Tensor) else tuple(part for pair in named(x).items() for part in pair)


def _device(x: Inputs) -> torch.device:
    return next(iter(named(x).values())).device
