"""Files and folders that appear whole or not at all, and folders that belong to one process at a time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from selfcal.errors import ConfigError, OutputError


def write_atomically(path: str | os.PathLike[str], content: bytes | str, *, make_folder: bool = True) -> Path:
    """Write a file through a temporary neighbour, so that a reader never sees half of it.

    It lasts: when this returns, the file and its name are on the disk.
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
        if not isinstance(error, OSError):
            raise
        _explain(target, len(data), error)
    return target


def write_folder_atomically(
    path: str | os.PathLike[str], files: Mapping[str, bytes], *, replaces: Collection[str] = ()
) -> Path:
    """Write a folder of files through a temporary neighbour; what had its place goes only when it is whole.

    No file system swaps two folders in one step that Python could ask for: for a moment there is none. Whoever reads
    must then look at `previous`. A folder that holds anything but files of these names, or of those in `replaces`,
    is left alone.
    """
    target = Path(os.path.realpath(path))
    new, old = target.with_name(f".{target.name}.new"), previous(target)
    try:
        check_folder(target, {*files, *replaces})
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        for name, data in files.items():
            _write(new / name, data)
        _flush_folder(new)
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.rename(target, old)
        os.rename(new, target)
        _flush_folder(target.parent)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:
        shutil.rmtree(new, ignore_errors=True)
        if old.exists() and not target.exists():
            with suppress(OSError):
                os.rename(old, target)
        if isinstance(error, OSError):
            _explain(target, sum(map(len, files.values())), error)
        raise
    return target


def previous(path: str | os.PathLike[str]) -> Path:
    """Where the folder lies that is being replaced, should a crash fall between the two renames."""
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.old")


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that died while they wrote."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


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


def _write(path: Path, data: bytes) -> None:
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


def check_folder(target: Path, names: set[str]) -> None:
    """Refuse to replace a folder that holds files of other names than these."""
    if not target.exists():
        return
    others = sorted({*os.listdir(target)} - names) if target.is_dir() else [target.name]
    if others:
        raise OutputError(
            f"{target} is not replaced: it holds {others[0]!r}"
            + (f" and {len(others) - 1} more" if len(others) > 1 else "")
            + ", which would be lost. Give a folder that is new, empty, or holds a model and nothing else."
        )


def _explain(target: Path, size: int, error: OSError) -> NoReturn:
    if isinstance(error, OutputError):
        raise error
    raise OutputError(
        f"Could not write {target} ({size:,} bytes): {error.strerror or error}. "
        "Check that the folder can be written to and has room."
    ) from error
