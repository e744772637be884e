"""Handling of SIGINT and SIGTERM: stopping at a safe point."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM)

GRACE = 0.5
"""Seconds for cleaning up after a second signal."""


class Stopped(SystemExit):
    """A signal ended the command: the exit code is 128 plus its number, without a traceback."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """Within this context, the first SIGINT or SIGTERM is only recorded; a second one acts as usual.

    If the first signal was not polled, it acts at the end of the context. Signals are delivered to the main thread
    only: in other threads nothing changes, and the result is always None.

    Example:
        >>> with stop_requests() as asked:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     asked()
        15
    """
    received: list[int] = []
    polled: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before = {number: signal.getsignal(number) for number in STOPPING}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        restore()

    def asked() -> int | None:
        polled[:] = received
        return received[0] if received else None

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, note)
    try:
        yield asked
    finally:
        restore()
        if received != polled:  # also after an error, which the same signal to the workers may have caused
            signal.raise_signal(received[0])


def run_command(work: Callable[[], object]) -> None:
    """Run a command such that SIGINT and SIGTERM end it and its process cleanly.

    The first signal raises `Stopped`. After a second one the process ends within `GRACE` seconds, even during a long
    call into a library, which Python's own handlers would wait for.
    """
    received: list[int] = []
    watched = os.name == "posix"
    done = False

    def handle(number: int, frame: FrameType | None) -> None:
        if received and not watched:
            _end(number)
        if not received and not done:
            if _is_being_imported(
                "torch"
            ):  # its C++ code cannot pass the exception on, and nothing is in progress
                _end(number)
            received.append(number)
            raise Stopped(number)

    def unraisable(lost: Any) -> None:
        if isinstance(lost.exc_value, Stopped):  # raised in a destructor, say, where exceptions are ignored
            _end(lost.exc_value.number)
        sys.__unraisablehook__(lost)

    sys.unraisablehook = unraisable
    atexit.register(_ignore_signals)
    if watched:
        _start_watching()
    try:
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, handle)
        work()
    except BaseException as error:
        if not received:
            raise
        _release_workers()
        _end(received[0], silently=isinstance(error, SystemExit) and not isinstance(error, Stopped))
    finally:
        done = True


@contextmanager
def starting_workers() -> Iterator[None]:
    """Within this context, new processes are started without interruption, and ignore the SIGINT of a terminal.

    A terminal sends SIGINT to every process of a command. A signal in the meantime acts at the end, after the
    handlers are set again: polars replaces them by handlers that would not interrupt a wait for workers.
    """
    if os.name != "posix":
        yield
        return
    with stop_requests():
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_watching() -> None:
    """End the process after its second signal, from a thread that does not wait for the main one."""
    numbers, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)

    def watch() -> None:
        seen = 0
        while seen < 2:
            number = os.read(numbers, 1)[0]
            seen += number in STOPPING
        time.sleep(GRACE)
        _end(number)

    threading.Thread(target=watch, daemon=True).start()


def _is_being_imported(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _ignore_signals() -> None:
    """Called last before the interpreter shuts down, when a signal would kill the process."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def _release_workers() -> None:
    """Free the semaphores of workers, which outlive a process, as `multiprocessing` does at a normal exit."""
    workers: Any = sys.modules.get("multiprocessing.util")
    if workers is not None:
        workers._exit_function()


def _end(number: int, *, silently: bool = False) -> NoReturn:
    """Exit immediately: the shutdown of torch takes a second, in which a further signal would kill the process."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    if not silently:
        os.write(2, f"Stopped by {signal.Signals(number).name}.\n".encode())
    os._exit(128 + number)
