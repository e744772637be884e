"""Training in several processes: each passes its part of every batch through the network, all see the whole loss.

torch's `DistributedDataParallel` cannot be differentiated twice, which an outer level needs. Here every process has
all parameters and a part of the rows of each batch. Logits and labels are put together, so that losses and
objectives, also those that compare rows, are those of the whole batch. Two operations are enough for that, and each
is the derivative of the other, to any order: `copied` gives a value that all have to the part of each process, and
`summed` adds up the parts. Without `torchrun` or a process group, they return their argument.
"""

from __future__ import annotations

import atexit
import datetime
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.functional import pad

from selfcal.errors import ConfigError, TrainingError
from selfcal.training.batches import Batches
from selfcal.training.types import Batch

TIMEOUT = datetime.timedelta(minutes=10)
"""A process that gives no answer for so long ends the training of all."""


def start(device: torch.device) -> None:
    """Join the processes that `torchrun` started, unless the caller has already set up a process group.

    The backend is gloo on the CPU and nccl on GPUs. For another backend or time limit, call
    `torch.distributed.init_process_group` before training.
    """
    if not dist.is_available() or dist.is_initialized() or not dist.is_torchelastic_launched():
        return
    if int(os.environ["WORLD_SIZE"]) == 1:
        return
    # its default arguments are the process group at the time of import, which they would keep until after the exit
    import_module("torch.distributed.nn")
    store, own_rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    # the store outlives a restart, and with it the addresses of processes that have ended
    store = PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=own_rank, world_size=size, timeout=TIMEOUT)
    atexit.register(_leave)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def n_processes() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process among them, from 0."""
    return dist.get_rank() if n_processes() > 1 else 0


def copied(value: Tensor) -> Tensor:
    """A value that is equal in all processes, for the part of this process: its gradient is the sum of all parts."""
    return value if n_processes() == 1 else _Copy.apply(value)


def summed(value: Tensor) -> Tensor:
    """The sum of the values of all processes; each gets the gradient of the sum."""
    return value if n_processes() == 1 else _Sum.apply(value)


def averaged(value: Tensor) -> Tensor:
    """The mean of the values of all processes; of equal values, one of which counts in the gradient."""
    return value if n_processes() == 1 else summed(value / n_processes())


def gathered(rows: Tensor, n_rows: int) -> Tensor:
    """The rows of all processes, `n_rows` together, in the order of the processes."""
    if n_processes() == 1:
        return rows
    own = _part(n_rows)
    return summed(pad(rows, [0, 0] * (rows.ndim - 1) + [own.start, n_rows - own.stop]))


def whole(batch: Batch) -> Batch:
    """The batch with labels, indices, weights and hyperparameters of all rows; `x` stays the part of this process.

    The parts must be equal but for one row, the larger ones first.
    """
    if n_processes() == 1:
        return batch
    own = len(batch.y)
    sizes = of_each(torch.tensor(own)).tolist()
    n_rows = sum(sizes)
    if sizes != [len(part) for part in torch.empty(n_rows).tensor_split(n_processes())]:
        raise ConfigError(
            "Each process must pass an equal part of the batch, the first ones one row more if the number of rows "
            f"is not divisible; got parts of {', '.join(map(str, sizes))} rows. Split a batch by tensor_split."
        )

    def every(values: Tensor) -> Tensor:
        return gathered(values if values.ndim else values.expand(own), n_rows)

    return replace(
        batch,
        y=every(batch.y),
        index=None if batch.index is None else every(batch.index),
        weight=None if batch.weight is None else every(batch.weight),
        hyper={name: every(values) for name, values in batch.hyper.items()},
    )


def from_first(value: Tensor) -> Tensor:
    """The value of the first process."""
    if n_processes() > 1:
        value = value.clone()
        _call(dist.broadcast, value, src=0)
    return value


def bytes_from_first(content: bytes) -> bytes:
    """The bytes of the first process, of any length."""
    if n_processes() == 1:
        return content
    length = from_first(torch.tensor(len(content), device=_device()))
    data = torch.zeros(int(length), dtype=torch.uint8, device=_device())
    if rank() == 0:
        data = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(data)
    return from_first(data).cpu().numpy().tobytes()


def of_each(value: Tensor) -> Tensor:
    """The values of all processes, stacked, on the CPU."""
    values = torch.zeros(n_processes(), *value.shape, dtype=value.dtype, device=_device())
    values[rank()] = value
    return summed(values).cpu()


def largest(values: list[int]) -> list[int]:
    """The largest of the processes' values, one by one: what all of them then act upon."""
    if n_processes() == 1:
        return values
    together = torch.tensor(values, dtype=torch.long, device=_device())
    _call(dist.all_reduce, together, op=dist.ReduceOp.MAX)
    found: list[int] = together.tolist()
    return found


def own_part(batches: Batches) -> Batches:
    """The same batches, of which each holds the part of this process; a loader reads only that part."""
    if n_processes() == 1:
        return batches
    redrawn = getattr(batches, "redrawn", None)
    return _Parts(batches) if redrawn is None else _Loaded(redrawn(_OwnRows))


class _Loaded:
    """Batches that cannot be halved if memory runs out, since it may run out in one process only."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self.n_rows = batches.n_rows
        self.generators = getattr(batches, "generators", list)

    def __len__(self) -> int:
        return len(self._batches)

    def one_pass(self, number: int) -> Iterator[Batch]:
        """The batches of a pass."""
        return self._batches.one_pass(number)


class _Parts(_Loaded):
    """A part of every batch."""

    def one_pass(self, number: int) -> Iterator[Batch]:
        """The parts of the batches of a pass, in their order."""
        return (batch.part(_part(len(batch.y))) for batch in self._batches.one_pass(number))


class _OwnRows:
    """A batch sampler: the batches that the first process draws, of which each process takes its part."""

    def __init__(self, sampler: Collection[list[int]]) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[list[int]]:
        drawn = iter(self._sampler if rank() == 0 else ())
        while True:
            rows = torch.tensor(next(drawn, []), dtype=torch.long, device=_device())
            length = int(from_first(torch.tensor(len(rows), device=_device())))
            if not length:
                return
            rows = from_first(rows if rank() == 0 else rows.new_zeros(length))
            yield rows[_part(length)].tolist() or [-1 - int(rows[0])]


def _part(n_rows: int) -> slice:
    """The rows of this process, as `Tensor.tensor_split` splits them."""
    least, further = divmod(n_rows, n_processes())
    start = rank() * least + min(rank(), further)
    return slice(start, start + least + (rank() < further))


def _device() -> torch.device:
    """The device that the processes exchange values on."""
    return torch.device("cuda" if n_processes() > 1 and dist.get_backend() == "nccl" else "cpu")


def _call(collective: Any, *args: Any, **keywords: Any) -> None:
    try:
        collective(*args, **keywords)
    except RuntimeError as error:
        raise TrainingError(
            f"Process {rank()} of {n_processes()} lost the others: one of them has ended, or gave no answer in time "
            f"({str(error).splitlines()[0][:200]}). Look at their messages; with a checkpoint "
            "folder, a restarted job continues from the last checkpoint."
        ) from error


class _Copy(torch.autograd.Function):
    """Identity; its derivative sums."""

    @staticmethod
    def forward(value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _Sum.apply(grad)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return _Copy.apply(tangent)


class _Sum(torch.autograd.Function):
    """The sum over the processes; its derivative is the identity."""

    @staticmethod
    def forward(value: Tensor) -> Tensor:
        value = value.detach().clone(memory_format=torch.contiguous_format)
        _call(dist.all_reduce, value)
        return value

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _Copy.apply(grad)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return _Sum.apply(tangent)
