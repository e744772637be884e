"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from selfcal.errors import OutputError


def write_atomically(
    path: str | os.PathLike[str], content: bytes | bytearray | str, *, make_folder: bool = True
) -> Path:
    """Write a file through a temporary neighbour, so that a reader never sees half of it.

    When this returns, the file and its name are on the disk to stay.
    """
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        _write(temporary, data)
        os.replace(temporary, target)
        _flush_folder(target.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            _explain(target, len(data), error)
        raise
    return target


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that died while they wrote."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def _write(path: Path, data: bytes | bytearray) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    """Make sure that the names in a folder are on the disk, as far as the system lets one ask for it."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _explain(target: Path, size: int, error: OSError) -> NoReturn:
    raise OutputError(
        f"Could not write {target} ({size:,} bytes): {error.strerror or error}. "
        "Check that the folder can be written to and has room."
    ) from error
