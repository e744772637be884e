"""Locks of folders, so that one process at a time uses them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from selfcal.errors import ConfigError, OutputError

LOCK = ".lock"
"""The lock file in a folder; it is removed when the lock is released."""

POLL_SECONDS = 0.2
"""Seconds between two attempts to get a lock that another process holds."""

_HELD: dict[tuple[int, str], object] = {}
"""Folders locked by this process: locks of the system belong to a process, not to a thread."""


@contextmanager
def locked(folder: str | os.PathLike[str], *, waiting: Callable[[], object] | None = None) -> Iterator[Path]:
    """Lock a folder; the lock is released with the process at the latest.

    The folder is created if it does not exist, and removed again if it stays empty. If another process has locked it,
    that is an error, unless `waiting` is given: it is called once, and the folder locked when it is free.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as name, locked(name) as folder:
        ...     [path.name for path in folder.iterdir()]
        ['.lock']
    """
    place = Path(folder)
    key, owner = (os.getpid(), os.path.realpath(place)), object()
    if _HELD.setdefault(key, owner) is not owner:
        raise _in_use(place, str(os.getpid()))
    missing = [path for path in (place, *place.parents) if not path.exists()]
    try:
        lock = _acquire(place, waiting)
        try:
            with suppress(OSError):  # only for the error message of other processes
                os.truncate(lock, 0)
                os.write(lock, str(os.getpid()).encode())
            yield place
        finally:
            with suppress(OSError):
                if _is_at(place / LOCK, lock):
                    os.unlink(place / LOCK)
                for path in missing:
                    path.rmdir()
            os.close(lock)
    finally:
        del _HELD[key]


def _acquire(place: Path, waiting: Callable[[], object] | None) -> int:
    """Open and lock the file; try again if its previous owner removed it in between."""
    waits = False
    while True:
        try:
            place.mkdir(parents=True, exist_ok=True)
            lock = os.open(place / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise OutputError(
                f"Could not write to the folder {place}: {error.strerror or error}. Choose another."
            ) from error
        if not _acquired(lock):
            holder = os.read(lock, 20).decode()
            os.close(lock)
            if waiting is None:
                raise _in_use(place, holder or "(unknown)")
            if not waits:
                waiting()
            waits = True
            time.sleep(POLL_SECONDS)
            continue
        if _is_at(place / LOCK, lock):
            return lock
        os.close(lock)


def _acquired(descriptor: int) -> bool:
    """Try to lock a file for this process; forked workers do not inherit the lock."""
    if os.name != "posix":
        return True
    import fcntl

    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one at this path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _in_use(place: Path, holder: str) -> ConfigError:
    return ConfigError(
        f"The folder {place} is in use by process {holder}. Wait for it to end, or choose another folder."
    )
