"""The random streams that passes through a network draw from: the CPU's, and the accelerator's if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def stream_states(device: torch.device) -> tuple[Tensor, ...]:
    """Where the streams stand."""
    if device.type == "cpu":
        return (torch.get_rng_state(),)
    return torch.get_rng_state(), torch.get_device_module(device).get_rng_state(device)


def set_streams(states: tuple[Tensor, ...], device: torch.device) -> None:
    """Put the streams where they stood."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.get_device_module(device).set_rng_state(state, device)


@contextmanager
def streams_restored(device: torch.device, seed: int | None = None) -> Iterator[None]:
    """Whatever is drawn within, from `seed` on if given, the streams go on as if it had not been."""
    before = stream_states(device)
    try:
        if seed is not None:
            torch.manual_seed(seed)
        yield
    finally:
        set_streams(before, device)
