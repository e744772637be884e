"""Random streams: a training run has its own, and does not use torch's global generator.

The global generator is shared by all threads of a process, so that runs in several threads would affect each other. A
run therefore has its own generators. `Dropout` and other parts of selfcal use the stream of their thread; for code
that only uses torch's global generator, calls without a generator are redirected to the stream.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

_in_use = threading.local()


class RandomStream:
    """Random numbers for the CPU, and for another device if there is one.

    Args:
        device: The device.
        seed: Seeds generators of the stream's own; None stands for torch's global ones.

    Example:
        >>> stream = RandomStream(torch.device("cpu"), seed=0)
        >>> rewind = stream.mark()
        >>> with stream.in_use(), redirected():
        ...     first = torch.rand(2)
        ...     rewind()
        ...     bool((torch.rand(2) == first).all())
        True
    """

    def __init__(self, device: torch.device, seed: int | None = None) -> None:
        devices = [torch.device("cpu"), *([] if device.type == "cpu" else [device])]
        if seed is None:
            self._generators = {each.type: _global_generator(each) for each in devices}
        else:
            self._generators = {each.type: torch.Generator(each).manual_seed(seed) for each in devices}

    def generator(self, device: torch.device) -> torch.Generator | None:
        """Return the generator for a device; None for torch's global one."""
        return self._generators.get(device.type)

    def state(self) -> tuple[Tensor, ...]:
        """Return the state of all generators."""
        return tuple(generator.get_state() for generator in self._generators.values())

    def load_state(self, state: tuple[Tensor, ...]) -> None:
        """Restore the state of all generators."""
        for generator, place in zip(self._generators.values(), state, strict=True):
            generator.set_state(place)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore the state of the stream at the end of the context."""
        before = self.state()
        try:
            yield
        finally:
            self.load_state(before)

    def mark(self) -> Callable[[], None]:
        """Return a function that restores the present state."""
        return functools.partial(self.load_state, self.state())

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within this context, parts of selfcal and `redirected` code draw from this stream on this thread."""
        before = getattr(_in_use, "stream", None)
        _in_use.stream = self
        try:
            yield
        finally:
            _in_use.stream = before


def stream_in_use(device: torch.device) -> RandomStream:
    """The stream in use on this thread; torch's global one if there is none."""
    stream: RandomStream | None = getattr(_in_use, "stream", None)
    return RandomStream(device) if stream is None else stream


def generator(device: torch.device) -> torch.Generator | None:
    """The generator of the stream in use on this thread; None for torch's global one."""
    stream: RandomStream | None = getattr(_in_use, "stream", None)
    return None if stream is None else stream.generator(device)


@contextmanager
def redirected(needed: bool = True) -> Iterator[None]:
    """Within this context, calls without a generator draw from the stream in use on this thread, if there is one.

    It adds a few microseconds to every operation, and is not needed for code that passes `generator`.
    """
    stream: RandomStream | None = getattr(_in_use, "stream", None)
    if stream is None or not needed:
        yield
        return
    with _Redirected(stream):
        yield


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within this context, everything that this thread draws on the CPU is determined by the seed.

    Example:
        >>> with seeded(0):
        ...     first = nn.Linear(2, 2).weight
        >>> with seeded(0):
        ...     bool((nn.Linear(2, 2).weight == first).all())
        True
    """
    with RandomStream(torch.device("cpu"), seed).in_use(), redirected():
        yield


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` that draws from the stream in use."""

    def forward(self, x: Tensor) -> Tensor:
        """In training, zero values at random and scale the others up; otherwise return the input."""
        if not self.training or not self.p:
            return x
        kept = torch.empty_like(x).bernoulli_(1 - self.p, generator=generator(x.device))
        return x * kept.div_(1 - self.p)


def draws_globally(*parts: object) -> bool:
    """Whether a network or another part of a method may draw from torch's global generator.

    Deterministic layers of torch, and everything in selfcal, which passes `generator`, do not.

    Example:
        >>> draws_globally(nn.Linear(2, 2)), draws_globally(nn.Sequential(nn.Dropout(0.1)))
        (False, True)
    """
    pieces = [
        piece for part in parts for piece in (part.modules() if isinstance(part, nn.Module) else [part])
    ]
    return any(
        isinstance(piece, _DRAWING) or not type(piece).__module__.startswith(_KNOWN)
        for piece in pieces
        if piece is not None and not isinstance(piece, Dropout)
    )


_KNOWN = ("torch.nn.modules.", "selfcal.")
_DRAWING = (
    nn.modules.dropout._DropoutNd,
    nn.RReLU,
    nn.RNNBase,
    nn.MultiheadAttention,
    nn.FractionalMaxPool2d,
    nn.FractionalMaxPool3d,
)


class _Redirected(TorchDispatchMode):
    """Passes the generator of a stream to every random operation without one."""

    def __init__(self, stream: RandomStream) -> None:
        super().__init__()
        self._stream = stream

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: to skip it, torch would import its compiler at the first operation, which takes a second or two."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            drawing = _with_generator(func)
            if drawing is not None and kwargs.get("generator") is None:
                device = args[0].device if args and isinstance(args[0], Tensor) else kwargs.get("device")
                kwargs = {**kwargs, "generator": self._stream.generator(device or torch.device("cpu"))}
                func = drawing
        return func(*args, **kwargs)


def _with_generator(func: Any) -> Any:
    """Return the overload of an operation that takes a generator; None if there is none."""
    if any(argument.name == "generator" for argument in func._schema.arguments):
        return func
    wanted = {argument.name for argument in func._schema.arguments} | {"generator"}
    for name in func.overloadpacket.overloads():
        overload = getattr(func.overloadpacket, name)
        if {argument.name for argument in overload._schema.arguments} == wanted:
            return overload
    return None


def _global_generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    generators = torch.get_device_module(device).default_generators
    return generators[device.index or 0]
