"""A progress bar on a terminal, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Reports how far the work has come."""

    def __call__(self, done: int, note: str = "") -> None: ...


@contextmanager
def progress_bar(title: str, total: int, show: bool | None = None) -> Iterator[Advance]:
    """Show done / total, a note and the time left; `show=None` means only on a terminal.

    Example:
        >>> with progress_bar("Training", total=3, show=False) as advance:
        ...     advance(1, "loss 0.5")
    """
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda done, note="": None
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
