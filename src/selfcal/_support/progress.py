"""A progress bar on a terminal; elsewhere nothing, or a line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

SECONDS = 10.0
"""Seconds between two lines if there is no terminal."""


class Advance(Protocol):
    """Reports the progress."""

    def __call__(self, done: int, note: str = "") -> None: ...


@contextmanager
def progress_bar(title: str, total: int | None, show: bool | None = None) -> Iterator[Advance]:
    """Show done / total, a note and the time left.

    Args:
        title: The name of the work.
        total: Total amount of work; None if unknown.
        show: True shows a bar on a terminal and a plain line every ten seconds elsewhere; None shows a bar on a
            terminal only; False shows nothing. Only the main thread shows progress.

    Yields:
        A function to call with the amount of work done.

    Example:
        >>> with progress_bar("Training", total=3, show=False) as advance:
        ...     advance(1, "loss 0.5")
    """
    terminal = sys.stderr.isatty()
    if threading.current_thread() is not threading.main_thread():
        show = False  # several bars at once would overwrite one another
    if show is False or not (terminal or show):
        yield lambda done, note="": None
        return
    if not terminal:
        yield _Lines(title, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, note="")
        yield lambda done, note="": bar.update(task, completed=done, note=note)


class _Lines:
    """Progress for a log: one line every ten seconds."""

    def __init__(self, title: str, total: int | None) -> None:
        self.title, self.total = title, total
        self.started = self.last = time.monotonic()

    def __call__(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if now < self.last + SECONDS:
            return
        self.last = now
        of, left = "", ""
        if self.total is not None:
            seconds = (now - self.started) / max(done, 1) * (self.total - done)
            of, left = f"/{self.total:,}", f", at most {seconds:.0f} s left"
        print(f"{self.title} {done:,}{of} {note}".rstrip() + left, file=sys.stderr, flush=True)
