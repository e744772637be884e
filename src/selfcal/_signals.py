"""Being asked to stop, and stopping where it does no harm."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """Within it, the first SIGINT or SIGTERM only leaves its number; a second one does what it always does.

    Signals reach the main thread alone: in any other thread nothing changes, and nothing is ever asked.

    Example:
        >>> with stop_requests() as asked:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     asked()
        15
    """
    received: list[int] = []
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

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, note)
    try:
        yield lambda: received[0] if received else None
    finally:
        restore()
