"""Peak memory of a call above what stood before it; Linux, in a process that does nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def peak_megabytes(run: Callable[[], object]) -> float:
    """Run it and return how far resident memory rose meanwhile."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is used now
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1024


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])
