"""Training data without the rows that a recipe's selection has left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from selfcal.errors import ConfigError
from selfcal.training.batches import Batches, halved
from selfcal.training.distributed import n_processes
from selfcal.training.inputs import Inputs, named
from selfcal.training.interfaces import DataSelection
from selfcal.training.types import Batch, Output


class Selection:
    """The rows that a `DataSelection` keeps, and all that it has observed.

    Args:
        rule: Decides which rows are kept.
        n_train: The number of training rows.

    Attributes:
        kept: Whether each training row is in the current pass.
    """

    def __init__(self, rule: DataSelection, n_train: int) -> None:
        self._rule = rule
        self._observed = rule.init(n_train)
        self._pass = 0
        self.kept = torch.ones(n_train, dtype=torch.bool)

    def observe(self, output: Output, batch: Batch) -> None:
        """Learn of the rows of a step."""
        if batch.index is None:
            raise ConfigError(
                f"{self._rule!r} must know which training rows a batch holds; got a batch without their index. Pass "
                "selfcal.Batch(x, y, index)."
            )
        with torch.no_grad():
            self._rule.observe(self._observed, output, batch)

    def begin(self, number: int) -> Tensor:
        """The mask of the rows of a pass: decided anew when it begins, and kept when it is resumed."""
        if number > self._pass:
            kept = self._rule.keep(self._observed, self.kept, number)
            if kept.shape != self.kept.shape or kept.dtype != torch.bool or not bool(kept.any()):
                raise ConfigError(
                    f"{self._rule!r} must keep at least one row, by a mask of shape {tuple(self.kept.shape)}; got "
                    f"{str(kept.dtype).removeprefix('torch.')} of shape {tuple(kept.shape)}, {int(kept.sum())} rows."
                )
            self.kept, self._pass = kept, number
        return self.kept

    def state(self) -> dict[str, Any]:
        """Everything that changes: copies, by name."""
        observed = {name: value.clone() for name, value in self._observed.items()}
        return {"observed": observed, "kept": self.kept.clone(), "pass": self._pass}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state`, which is copied."""
        self._observed = {name: value.clone() for name, value in state["observed"].items()}
        self.kept, self._pass = state["kept"].clone(), state["pass"]


class SelectedBatches:
    """Batches of the rows that a selection keeps, of about the size that they have with all rows.

    Rows are left out after they have been read, in the order of the pass. Batches are equal to within a row.

    Args:
        batches: All training rows.
        selection: Which of them are kept: `BilevelStep.selection`.

    Example:
        >>> from selfcal import TensorBatches, selections
        >>> data = TensorBatches(torch.arange(6.0)[:, None], torch.zeros(6, dtype=torch.long), batch_size=2)
        >>> selection = Selection(selections.DynamicPruning(), n_train=6)
        >>> selection.kept = torch.tensor([True, True, False, True, False, True])
        >>> [sorted(batch.index.tolist()) for batch in SelectedBatches(data, selection).one_pass(0)]
        [[3, 5], [0, 1]]
    """

    def __init__(self, batches: Batches, selection: Selection) -> None:
        if n_processes() > 1 and hasattr(batches, "redrawn"):
            raise ConfigError(
                "A recipe that selects rows needs its training data in memory if several processes train, as each "
                "draws the order of a DataLoader for itself; got a DataLoader. Pass arrays or tensors, or use one "
                "process."
            )
        self.n_rows = batches.n_rows
        self._batches = batches
        self._selection = selection

    def __len__(self) -> int:
        return len(self._sizes())

    def generators(self) -> Sequence[torch.Generator]:
        """The generators that the order is drawn from."""
        found: Sequence[torch.Generator] = getattr(self._batches, "generators", tuple)()
        return found

    def halved(self) -> SelectedBatches | None:
        """The same rows in batches of half the size."""
        smaller = halved(self._batches, 1)
        return None if smaller is self._batches else SelectedBatches(smaller, self._selection)

    def one_pass(self, number: int) -> Iterator[Batch]:
        """The kept rows, batch by batch."""
        kept = self._selection.begin(number)
        if bool(kept.all()):
            yield from self._batches.one_pass(number)
            return
        sizes, waiting, n_waiting = self._sizes(), list[Batch](), 0
        for batch in self._batches.one_pass(number):
            assert batch.index is not None
            waiting.append(batch.part(kept.to(batch.index.device)[batch.index]))
            n_waiting += len(waiting[-1].y)
            while n_waiting >= sizes[0]:
                rows = _joined(waiting)
                yield rows.part(slice(sizes[0]))
                waiting, n_waiting = [rows.part(slice(sizes[0], None))], n_waiting - sizes[0]
                sizes = sizes[1:] or sizes  # a sampler of torch may draw some rows more than once
        if n_waiting:
            yield _joined(waiting)

    def _sizes(self) -> list[int]:
        """The rows of each batch of the current pass."""
        n_kept, size = int(self._selection.kept.sum()), -(-self.n_rows // len(self._batches))
        return [len(part) for part in torch.empty(n_kept).tensor_split(-(-n_kept // size))]


def _joined(batches: Sequence[Batch]) -> Batch:
    """The rows of all batches in one."""

    def all_of(name: str) -> Tensor | None:
        parts = [getattr(batch, name) for batch in batches]
        return None if parts[0] is None else torch.cat(parts)

    y = all_of("y")
    assert y is not None
    return Batch(_joined_inputs([batch.x for batch in batches]), y, all_of("index"), all_of("weight"))


def _joined_inputs(parts: Sequence[Inputs]) -> Inputs:
    tensors = [torch.cat(part) for part in zip(*(named(x).values() for x in parts), strict=True)]
    first = parts[0]
    if isinstance(first, Tensor):
        return tensors[0]
    return tuple(tensors) if isinstance(first, tuple) else dict(zip(first, tensors, strict=True))
