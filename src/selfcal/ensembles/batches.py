"""Batches that hold rows for each of several networks trained side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from selfcal._support.checks import positive_int, same_length
from selfcal.errors import DataError
from selfcal.training.batches import checked_codes, half_of, pass_generator
from selfcal.training.types import Batch


class ParallelBatches:
    """Rows of one table for several networks trained side by side.

    A batch holds the same number of rows for each network, those of the first network first. If a network has
    fewer rows than another, some of them are repeated with weight zero. The data is stored once for all networks.

    Args:
        x: The rows of all networks.
        y: Their label codes, 0, 1, 2, ...
        weight: Optional sample weights.
        rows: The rows of each network.
        batch_size: Rows per network and batch at most; None gives each network all its rows at once, in order.
        seed: With the number of the pass it decides the order of the rows, different for each network.

    Example:
        >>> x, y = torch.arange(5.0)[:, None], torch.zeros(5, dtype=torch.long)
        >>> data = ParallelBatches(x, y, rows=[torch.tensor([0, 1, 2]), torch.tensor([3, 4])])
        >>> batch = next(data.one_pass(0))
        >>> batch.index.tolist(), batch.weight.tolist()
        ([0, 1, 2, 3, 4, 3], [1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        weight: Tensor | None = None,
        *,
        rows: Sequence[Tensor],
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        self.n_rows = same_length(x=x, y=y, weight=weight)
        if not rows or not all(len(own) for own in rows):
            raise DataError("Every network needs at least one row; got a network without any.")
        self._x, self._y, self._weight = x, checked_codes(y), weight
        self._rows = list(rows)
        self._most_rows = max(map(len, rows))
        self._batch_size = None if batch_size is None else positive_int("batch_size", batch_size)
        self._seed = seed
        self._in_order = list(self._batches(lambda own: own)) if len(self) == 1 else None

    def __len__(self) -> int:
        return 1 if self._batch_size is None else -(-self._most_rows // self._batch_size)

    def identity(self) -> tuple[object, ...]:
        """The values that determine every pass."""
        return self._batch_size, self._seed, self._x, self._y, self._weight, *self._rows

    def halved(self) -> ParallelBatches | None:
        """The same rows in batches of half the size."""
        half = half_of(self._batch_size, self._most_rows)
        if not half:
            return None
        return ParallelBatches(
            self._x, self._y, self._weight, rows=self._rows, batch_size=half, seed=self._seed
        )

    def one_pass(self, number: int) -> Iterator[Batch]:
        """All rows of every network once, in a different order for every pass."""
        if self._in_order is not None:
            return iter(self._in_order)
        stream = pass_generator(self._seed, number)
        return self._batches(lambda own: own[torch.randperm(len(own), generator=stream).to(own.device)])

    def _batches(self, ordered: Callable[[Tensor], Tensor]) -> Iterator[Batch]:
        places = torch.arange(self._most_rows, device=self._x.device)
        rows = torch.stack([ordered(own)[places % len(own)] for own in self._rows])
        counted = torch.stack([places < len(own) for own in self._rows])
        for part in places.tensor_split(len(self)):
            yield self._batch(rows[:, part].reshape(-1), counted[:, part].reshape(-1))

    def _batch(self, rows: Tensor, counted: Tensor) -> Batch:
        weight = None if self._weight is None else self._weight[rows]
        if not bool(counted.all()):
            weight = counted.to(self._x) if weight is None else weight * counted
        return Batch(self._x[rows], self._y[rows], rows, weight)
