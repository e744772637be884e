"""Checkpoints: training saves its state, so that another process can resume it.

A checkpoint is one safetensors file. Its tensors are the file's tensors; all else is JSON in the file's metadata,
beside a SHA-256 over every byte of the file (its own bytes counted as zeros). The last two are kept, so that a
damaged one costs only the time between them. Nothing in a file is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from selfcal import __version__
from selfcal._support.checks import in_range, plain
from selfcal._support.files import remove_leftovers, write_atomically
from selfcal._support.locks import locked
from selfcal._support.signals import stop_requests
from selfcal.errors import CheckpointError, Interrupted, ModelFormatError, RecoveryWarning
from selfcal.training.batches import Batches, data_fingerprint
from selfcal.training.distributed import bytes_from_first, largest, n_processes, rank
from selfcal.training.step import BilevelStep

FORMAT = 4
MAX_GENERATIONS = 2
MAX_SAVING_FRACTION = 0.02
"""Of the training time; if saving takes long, it happens less often."""

_NO_DIGEST = b"0" * 64
_DIGEST = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_TENSOR = "$tensor"
_NAME = re.compile(r"checkpoint-\d{8}\.safetensors")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Resumable(Protocol):
    """Work that can be stopped and resumed."""

    @property
    def can_be_saved(self) -> bool:
        """Whether `state` is complete at this moment."""

    def state(self) -> dict[str, Any]:
        """Everything that changes: tensors and plain values, by name."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state`."""


def identity(
    step: BilevelStep, settings: Mapping[str, object], **data: Batches | None
) -> dict[str, dict[str, object]]:
    """Values that must match to resume from a checkpoint (``exactly``), and for bit-identical results (``bits``)."""
    module, device = step.problem.module, step.device
    with step.random.restored():
        prints = {f"{name} data": None if d is None else data_fingerprint(d) for name, d in data.items()}
    exactly = {
        "recipe": described(step.recipe),
        "optimizer": described(step.optimizer),
        "network": described(module),
        "shapes": [[name, *value.shape, str(value.dtype)] for name, value in module.named_parameters()],
        "device": device.type,
        **settings,
        **prints,
    }
    return identified(exactly)


def identified(exactly: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """An `identity` of these values and the versions, all of which must match."""
    versions = {"selfcal version": __version__, "torch version": torch.__version__}
    bits: dict[str, object] = {"threads": torch.get_num_threads(), "processes": n_processes()}
    return {"exactly": {**exactly, **versions}, "bits": bits}


def described(value: object) -> str:
    """The repr of a value, the same in every process.

    Example:
        >>> described(object())
        '<object object>'
    """
    return _ADDRESS.sub("", repr(value))


@contextmanager
def checkpointed(
    run: Resumable,
    path: str | os.PathLike[str] | None,
    identify: Callable[[], dict[str, dict[str, object]]],
    *,
    seconds: float,
) -> Iterator[Callable[[], None]]:
    """Resume the run from the folder, or start it; yields a function to call after each step, and saves at the end.

    Without a folder nothing is saved. Of several processes that train together, the first one reads and writes the
    folder, and a request to any of them to stop stops all.
    """
    if path is None:
        yield lambda: None
        return
    in_range("checkpoint_seconds", seconds, 0)
    first = rank() == 0
    with locked(path) if first else nullcontext(Path(path)) as folder, stop_requests() as requested:
        store = Generations(folder, identify()) if first else None
        state = _state_of_first(None if store is None else store.newest())
        due, unsaved = time.monotonic() + seconds, False

        def save() -> None:
            nonlocal due, unsaved
            started, state = time.monotonic(), run.state()
            if store is not None:
                store.save(state)
            ended, unsaved = time.monotonic(), False
            due = ended + max(seconds, (ended - started) / MAX_SAVING_FRACTION)

        def agreed() -> tuple[int, bool]:
            """The signal that any process was sent, and whether it is time to save."""
            number, late = largest([requested() or 0, time.monotonic() >= due])
            return number, bool(late)

        def stop(number: int) -> None:
            raise Interrupted(
                f"Stopped by {signal.Signals(number).name}; the checkpoint is in {folder}. Repeat the call or "
                "command to resume.",
                number,
            )

        def after_step() -> None:
            nonlocal unsaved
            unsaved = True
            if run.can_be_saved:
                number, late = agreed()
                if number or late:
                    save()
                if number:
                    stop(number)

        if state is None:
            save()  # so that a full disk is an error before training, not after it
        else:
            run.load_state(state)
        yield after_step
        if unsaved:
            save()
        number, _ = agreed()
        if number:
            stop(number)


def _state_of_first(state: dict[str, Any] | None) -> dict[str, Any] | None:
    """The state that the first process has read, in all of them."""
    if n_processes() == 1:
        return state
    content = bytes_from_first(bytes(packed({"state": state})))
    found: dict[str, Any] | None = unpacked(content)["state"]
    return found


class Generations:
    """The checkpoints of one run in a folder, the newest two of them.

    Args:
        folder: The folder.
        identity: Identifies the run; a checkpoint of another run is refused.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Mapping[str, object]]) -> None:
        self.folder = folder
        self._identity = json.loads(json.dumps(identity, default=plain))
        self._intact: list[Path] = []
        remove_leftovers(folder)
        self._number = max((int(path.stem[-8:]) for path in self.files()), default=0)

    def files(self) -> list[Path]:
        """The existing files, newest first."""
        return sorted((path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)

    def save(self, state: Mapping[str, Any]) -> Path:
        """Write a new generation, then remove the oldest."""
        path = self.folder / f"checkpoint-{self._number + 1:08d}.safetensors"
        content = packed({"format": FORMAT, "identity": self._identity, "state": state})
        write_atomically(path, content, make_folder=False)
        self._number += 1
        self._intact = [path, *self._intact][:MAX_GENERATIONS]
        for old in self.files():
            if old not in self._intact:
                with suppress(OSError):
                    old.unlink()
        return path

    def newest(self) -> dict[str, Any] | None:
        """The state to resume from, that of the newest intact file; None if there is no file."""
        damaged: list[str] = []
        for path in self.files():
            try:
                state = self._checked(path, unpacked(path.read_bytes()))
            except CheckpointError:
                raise
            except (ModelFormatError, OSError) as error:
                damaged.append(f"{path} cannot be used: {error}")
                continue
            self._intact.append(path)
            if damaged:
                warnings.warn(
                    f"{' '.join(damaged)} Resuming from {path.name}, which was saved before it.",
                    RecoveryWarning,
                    stacklevel=2,
                )
            return state
        if damaged:
            raise CheckpointError(
                f"{' '.join(damaged)} No intact checkpoint is left in {self.folder}. Remove the folder to start "
                "again."
            )
        return None

    def _checked(self, path: Path, tree: dict[str, Any]) -> dict[str, Any]:
        """The state, if this run has saved it; otherwise an error that lists the differences."""
        if tree.get("format") != FORMAT:
            raise CheckpointError(
                f"{path} has format {tree.get('format')}; this version of selfcal reads format {FORMAT}. Resume "
                "with the version that wrote it, or remove the folder to start again."
            )
        try:
            state, exactly, bits = tree["state"], tree["identity"]["exactly"], tree["identity"]["bits"]
            changed = _differences(exactly, self._identity["exactly"])
            inexact = _differences(bits, self._identity["bits"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ModelFormatError("It is not the checkpoint of a training run.") from error
        if changed:
            raise CheckpointError(
                f"{path} belongs to another run: {'; '.join(changed)}. Use the same settings and data, or another "
                "folder."
            )
        if inexact:
            warnings.warn(
                f"{path} was saved with other settings: {'; '.join(inexact)}. Training is resumed, but its last bits "
                "may differ from those of an uninterrupted run.",
                RecoveryWarning,
                stacklevel=2,
            )
        return dict(state)


def _differences(theirs: Mapping[str, object], ours: Mapping[str, object]) -> list[str]:
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    return [f"{name} was {_short(theirs.get(name))} and is {_short(ours.get(name))}" for name in names]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:48]} ... {text[-48:]}"


def packed(tree: Mapping[str, Any]) -> bytearray:
    """A tree of dictionaries, lists, tensors and plain values as the bytes of a checkpoint file.

    Example:
        >>> import torch
        >>> unpacked(packed({"a": [torch.arange(2), None], "b": 0.5}))
        {'a': [tensor([0, 1]), None], 'b': 0.5}
    """
    tensors: dict[str, Tensor] = {}
    names: dict[int, str] = {}

    def leaf(value: object) -> object:
        if not isinstance(value, Tensor):
            raise TypeError(f"cannot save a {type(value).__name__}")
        if id(value) not in names:  # the same tensor in two places is one in the file
            names[id(value)] = f"{len(names)}"
            tensors[names[id(value)]] = value.detach().contiguous()
        return {_TENSOR: names[id(value)]}

    text = json.dumps(tree, default=leaf)
    data = bytearray(safetensors.torch.save(tensors, {"sha256": _NO_DIGEST.decode(), "tree": text}))
    found = _DIGEST.search(data, 0, _header_end(data))
    assert found is not None
    data[slice(*found.span(1))] = _digest(data)
    return data


def unpacked(data: bytes | bytearray) -> dict[str, Any]:
    """The inverse of `packed`; raises `ModelFormatError` for anything else."""
    found = _DIGEST.search(data, 0, _header_end(data))
    if found is None:
        raise ModelFormatError("It is not a checkpoint of selfcal, or its beginning is damaged.")
    view = memoryview(data)
    if found[1] != _digest(view[: found.start(1)], _NO_DIGEST, view[found.end(1) :]):
        raise ModelFormatError("It is damaged: its content does not match its SHA-256.")
    try:
        header = json.loads(data[8 : _header_end(data)])
        tensors = safetensors.torch.load(bytes(data))
        tree = json.loads(
            header["__metadata__"]["tree"],
            object_hook=lambda node: tensors[node[_TENSOR]] if set(node) == {_TENSOR} else node,
        )
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelFormatError(f"It is not a checkpoint of selfcal: {error}.") from error
    if not isinstance(tree, dict):
        raise ModelFormatError(f"It is not a checkpoint of selfcal but holds a {type(tree).__name__}.")
    return tree


def _header_end(data: bytes | bytearray) -> int:
    return min(8 + int.from_bytes(data[:8], "little"), len(data))


def _digest(*parts: bytes | bytearray | memoryview) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode()
