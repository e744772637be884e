"""Timing alternatives fairly on a noisy machine: interleaved, best of several, as ratios."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch


def best_seconds(cases: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The shortest time of each case; all cases take turns, so that a busy moment hits them alike."""
    best = dict.fromkeys(cases, float("inf"))
    for case in cases.values():
        case()
    for _ in range(repeats):
        for name, case in cases.items():
            started = time.perf_counter()
            case()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def machine() -> dict[str, object]:
    """What the numbers were measured on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def machine_line() -> str:
    """The same in a line."""
    return ", ".join(f"{name} {value}" for name, value in machine().items())


def arguments(description: str) -> argparse.Namespace:
    """The options every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--repeats", type=int, default=15, help="how often each case is timed; the best counts"
    )
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    return parser.parse_args()


def write_json(path: Path | None, rows: list[dict[str, object]]) -> None:
    """Write the rows and the machine they were measured on."""
    if path is not None:
        path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
