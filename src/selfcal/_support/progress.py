"""A progress bar on a terminal that only moves forward; elsewhere nothing, or a line every few seconds."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.table import Table

SECONDS = 10.0
"""Seconds between two lines if there is no bar."""
MIN_SECONDS, MIN_FRACTION = 2.0, 0.02
"""What must be over before the time left is estimated."""
BAR_WIDTH, MARGIN = 24, 3
"""Columns of the bar, and those to the right of its line for a ^C, which would otherwise move to the next line."""


class Advance(Protocol):
    """Reports what is done, a note on what comes now, and how much of the total the work inside that comes is."""

    def __call__(self, done: float, note: str = "", size: float = 1) -> None: ...


@contextmanager
def progress_bar(
    title: str,
    total: float | None,
    show: bool | None = None,
    *,
    ends_early: bool = False,
    time_budget: float | None = None,
    started: float | None = None,
) -> Iterator[Advance]:
    """Show how much is done, what is being done, and the time left, or used of a budget.

    Work inside other work is shown as a part of it: there is one bar for both, and it only moves forward.

    Args:
        title: The name of the work.
        total: Total amount of work; None if unknown.
        show: True shows a bar on a terminal and a plain line every ten seconds elsewhere; None shows a bar on a
            terminal only; False shows nothing. Only the main thread of the first process shows
            progress.
        ends_early: Whether the work may end before all of it is done.
        time_budget: Seconds after which it ends, whatever is done then.
        started: When they began, in seconds since the epoch; now by default.

    Yields:
        A function to call with the amount of work done.

    Example:
        >>> with progress_bar("Training", total=3, show=False) as advance:
        ...     advance(1, "loss 0.5")
    """
    terminal = sys.stderr.isatty()
    outer = _INNERMOST.get()
    alone = threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None
    # several bars at once would overwrite one another
    if not alone or show is False or (outer is None and not (terminal or show)):
        yield unseen
        return
    work = _Work(title, total, ends_early, time_budget, time.time() if started is None else started)
    token = _INNERMOST.set(work)
    try:
        if outer is not None:
            outer.inner, work.report = work, outer.report
            yield work.advance
        elif terminal and os.environ.get("TERM") not in ("dumb", "unknown"):
            with _bar(work):
                yield work.advance
        else:
            work.report = _Lines(work)
            yield work.advance
    finally:
        _INNERMOST.reset(token)
        if outer is not None:
            outer.inner = None


def unseen(done: float, note: str = "", size: float = 1) -> None:
    """Takes the place of a function that shows the progress."""


class _Work:
    """How much of some work is done, and the work inside it that is being done."""

    def __init__(
        self, title: str, total: float | None, ends_early: bool, time_budget: float | None, begin: float
    ) -> None:
        self.title, self.total, self.ends_early = title, total, ends_early
        self.time_budget, self.begin = time_budget, begin
        self.done, self.note, self.size = 0.0, "", 0.0
        self.inner: _Work | None = None
        self.report: Callable[[], object] = lambda: None
        self._first: float | None = None
        self._over = 0.0

    def advance(self, done: float, note: str = "", size: float = 1) -> None:
        self.done, self.note, self.size = done, note, size
        if self._first is None:
            self._first = done / self.total if self.total else 0.0
        self.report()

    def fraction(self) -> float:
        """The part that is over, by work or by time; never less than it was."""
        if self.total:
            inside = 0.0 if self.inner is None else self.size * self.inner.fraction()
            self._over = max(self._over, min(1.0, (self.done + inside) / self.total))
        if self.time_budget is not None:
            self._over = max(self._over, min(1.0, self._seconds() / self.time_budget))
        return self._over

    def doing(self) -> str:
        """What is being done, from the whole to its parts."""
        parts = (self.note, "" if self.inner is None else self.inner.doing())
        return ", ".join(part for part in parts if part)

    def clock(self) -> str:
        """The time used of a budget, or the time left, or else the time used."""
        work: _Work | None = self
        while work is not None:
            if work.time_budget is not None:
                used = min(work._seconds(), work.time_budget)
                return f"{used:.0f} of {work.time_budget:g} s"
            work = work.inner
        seconds, first = self._seconds(), self._first or 0.0
        here = self.fraction() - first  # not what an earlier run has done
        if seconds < MIN_SECONDS or here < MIN_FRACTION:
            return f"{seconds:.0f} s"
        left = seconds / here * (1 - self._over)
        return f"{'at most' if self.ends_early else 'about'} {_duration(left)} left"

    def _seconds(self) -> float:
        return max(0.0, time.time() - self.begin)


_INNERMOST: ContextVar[_Work | None] = ContextVar("the work that is being done", default=None)


def _duration(seconds: float) -> str:
    """A time to read at a glance.

    >>> _duration(9.4), _duration(200), _duration(9000)
    ('9 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def _bar(work: _Work) -> Iterator[None]:
    """A context with one line at the bottom of the terminal; what else is printed appears above it."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)

    def line() -> Table:
        return _line(work, console.width)

    with Live(console=console, get_renderable=line, transient=True, redirect_stdout=False):
        yield


def _line(work: _Work, width: int) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    known = work.total is not None
    over = work.fraction()
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.width = max(1, width - MARGIN)
    for ratio in (None, None, None, 1, None):
        grid.add_column(ratio=ratio, no_wrap=True, overflow="ellipsis")
    bar = ProgressBar(1.0, over, width=max(4, min(BAR_WIDTH, width // 5)), pulse=not known)
    percent = f"{int(100 * over)}%" if known else ""
    grid.add_row(Text(work.title), bar, Text(percent), Text(work.doing()), Text(work.clock()))
    return grid


class _Lines:
    """Progress for a log: one line every ten seconds."""

    def __init__(self, work: _Work) -> None:
        self._work, self._last = work, time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now < self._last + SECONDS:
            return
        self._last, work = now, self._work
        percent = "" if work.total is None else f" {int(100 * work.fraction())}%"
        words = "; ".join(part for part in (work.doing(), work.clock()) if part)
        print(f"{work.title}{percent}: {words}", file=sys.stderr, flush=True)
