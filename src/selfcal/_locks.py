"""Folders that belong to one process at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from selfcal.errors import ConfigError, OutputError


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Keep other processes out of a folder, which is made if need be; the lock ends with the process at the latest.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as name, locked(name) as folder:
        ...     [path.name for path in folder.iterdir()]
        ['.lock']
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = os.open(place / ".lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise OutputError(
            f"Could not write to the folder {place}: {error.strerror or error}. Choose another."
        ) from error
    try:
        if not _acquired(lock):
            raise ConfigError(
                f"The folder {place} is in use by process {os.read(lock, 20).decode() or '(unknown)'}. "
                "Wait for it to end, or choose another folder."
            )
        with suppress(OSError):  # only for the message above
            os.truncate(lock, 0)
            os.write(lock, str(os.getpid()).encode())
        yield place
    finally:
        os.close(lock)


def _acquired(descriptor: int) -> bool:
    """Lock a file for this process alone, if nobody else has it; forked workers do not inherit the lock."""
    if os.name != "posix":
        return True
    import fcntl

    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
