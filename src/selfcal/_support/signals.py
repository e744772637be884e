"""Being asked to stop, and stopping where it does no harm."""

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
"""Seconds that a command has to clean up after a second signal."""


class Stopped(SystemExit):
    """A signal ended the command: exit code 128 and its number, and no traceback wherever it was."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = number


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """Within it, the first SIGINT or SIGTERM only leaves its number; a second one does what it always does.

    So does the first one in the end, if nobody has asked for it. Signals reach the main thread alone: in any other
    thread nothing changes, and nothing is ever asked.

    Example:
        >>> with stop_requests() as asked:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     asked()
        15
    """
    received: list[int] = []
    told: list[int] = []
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
        told[:] = received
        return received[0] if received else None

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, note)
    try:
        yield asked
    finally:
        restore()
        if received != told:  # also where the work failed, perhaps because the same signal ended its workers
            signal.raise_signal(received[0])


def run_command(work: Callable[[], object]) -> None:
    """Do the work of a process so that SIGINT and SIGTERM end it cleanly, and the process after it.

    The first raises `Stopped`. After a second one the process has `GRACE` seconds left, also where it is in the
    middle of a long call into a library, which Python's own handlers wait for.
    """
    received: list[int] = []
    watched = os.name == "posix"
    done = False

    def handle(number: int, frame: FrameType | None) -> None:
        if received and not watched:
            _end(number)
        if not received and not done:
            received.append(number)
            raise Stopped(number)

    def unraisable(lost: Any) -> None:
        if isinstance(lost.exc_value, Stopped):  # raised where no exception gets out of, such as a destructor
            _end(lost.exc_value.number)
        sys.__unraisablehook__(lost)

    sys.unraisablehook = unraisable
    atexit.register(_ignore_signals)
    if watched:
        _watch_from_now_on()
    try:
        for number in STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(number, handle)
        work()
    except BaseException as error:
        if not received:
            raise
        _let_go_of_workers()
        _end(received[0], silently=isinstance(error, SystemExit) and not isinstance(error, Stopped))
    finally:
        done = True


@contextmanager
def starting_workers() -> Iterator[None]:
    """Within it, processes are started whole, and such that they do not receive the SIGINT of a terminal.

    A terminal sends it to every process of a command. What comes in the meantime acts in the end, with handlers set
    anew: after those that polars sets, a wait for workers would just go on.
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


def _watch_from_now_on() -> None:
    """End the process after its second signal, in a thread that need not wait for the main one."""
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


def _ignore_signals() -> None:
    """Called last before the interpreter is taken down, where a signal would kill the process."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def _let_go_of_workers() -> None:
    """Free the semaphores of workers, which outlive a process; it is what `multiprocessing` does at a usual exit."""
    workers: Any = sys.modules.get("multiprocessing.util")
    if workers is not None:
        workers._exit_function()


def _end(number: int, *, silently: bool = False) -> NoReturn:
    """End here and now: taking torch down takes a second, in which a further signal would kill the process."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    if not silently:
        os.write(2, f"Stopped by {signal.Signals(number).name}.\n".encode())
    os._exit(128 + number)
