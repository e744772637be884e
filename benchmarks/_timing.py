"""Timing alternatives fairly on a noisy machine: interleaved, best of several, as ratios."""

from __future__ import annotations

import argparse
import json
import platform
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch


def best_seconds(
    cases: Mapping[str, Callable[[], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """The shortest time of each case; all cases take turns, so that a busy moment hits them alike.

    With `time.process_time` as the clock, which suits cases of one thread, time that other processes take is not
    counted.
    """
    best = dict.fromkeys(cases, float("inf"))
    for case in cases.values():
        case()
    for _ in range(repeats):
        for name, case in cases.items():
            started = clock()
            case()
            best[name] = min(best[name], clock() - started)
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


def parser(description: str | None, *, repeats: int) -> argparse.ArgumentParser:
    """The options every benchmark has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument(
        "--repeats", type=int, default=repeats, help="how often each case is timed; the best counts"
    )
    options.add_argument("--json", type=Path, help="also write the numbers to this file")
    options.add_argument("--results", type=Path, help="also write them as a section of this Markdown file")
    return options


def write_json(path: Path | None, rows: list[dict[str, object]]) -> None:
    """Write the rows and the machine they were measured on."""
    if path is not None:
        path.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


def write_section(path: Path | None, title: str, body: str) -> None:
    """Put a section with its machine into a Markdown file, in place of the one of the same title."""
    if path is None:
        return
    sections = dict(_sections(path.read_text() if path.exists() else ""))
    sections[title] = f"Measured with {machine_line()}.\n\n{body.strip()}\n"
    path.write_text("\n".join(f"# {name}\n\n{text}" for name, text in sections.items()))


def _sections(text: str) -> list[tuple[str, str]]:
    found = (part.partition("\n") for part in re.split(r"^# ", text, flags=re.MULTILINE)[1:])
    return [(title, body.strip() + "\n") for title, _, body in found]
