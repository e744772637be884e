"""Atomic writing of files and folders."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from selfcal.errors import OutputError

Content = bytes | bytearray | str


def write_atomically(path: str | os.PathLike[str], content: Content, *, make_folder: bool = True) -> Path:
    """Write a file through a temporary one next to it, so that readers never see a partial file.

    When this returns, the file and its name have been flushed to disk.
    """
    write_together({Path(path): content}, make_folder=make_folder)
    return Path(path)


def write_together(files: Mapping[Path, Content], *, make_folder: bool = True) -> None:
    """Write files that belong together: each is written atomically, and none before all fit on the disk."""
    contents = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
    temporary = {path: path.with_name(f".{path.name}.{os.getpid()}.tmp") for path in files}
    target = next(iter(files))
    try:
        for target, data in contents.items():
            if make_folder:
                target.parent.mkdir(parents=True, exist_ok=True)
            _write(temporary[target], data)
        for target in files:
            os.replace(temporary[target], target)
        for folder in {path.parent for path in files}:
            _flush_folder(folder)
    except BaseException as error:
        for path in temporary.values():
            with suppress(OSError):
                path.unlink()
        if isinstance(error, OSError) and not isinstance(error, OutputError):
            raise write_error(target, f"{len(contents[target]):,} bytes", error) from error
        raise


def write_folder_atomically(
    path: str | os.PathLike[str], files: Mapping[str, bytes], *, replaces: Collection[str] = ()
) -> Path:
    """Write a folder of files through a temporary one next to it, which replaces it once it is complete.

    Python cannot swap two folders in one step: for a moment neither has the name, and readers must look at
    `previous`. A folder with files of other names than these and those in `replaces` is never replaced.
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
        if isinstance(error, OSError) and not isinstance(error, OutputError):
            raise write_error(target, f"{sum(map(len, files.values())):,} bytes", error) from error
        raise
    return target


def previous(path: str | os.PathLike[str]) -> Path:
    """Return where the folder that is being replaced is found after a crash between the two renames."""
    target = Path(os.path.realpath(path))
    return target.with_name(f".{target.name}.old")


def is_temporary(name: str) -> bool:
    """Whether a file has the name of one that is being written, or was when its process died.

    >>> is_temporary(".results.json.4711.tmp"), is_temporary("results.json")
    (True, False)
    """
    return re.fullmatch(r"\..+\.\d+\.tmp", name) is not None


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that died while writing."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def _write(path: Path, data: bytes | bytearray) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    """Flush the names in a folder to disk, where the system supports it."""
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
    if not target.is_dir():
        raise OutputError(
            f"{target} is not replaced: it is a file, and a model is a folder. Choose another name."
        )
    others = sorted({*os.listdir(target)} - names)
    if others:
        raise OutputError(
            f"{target} is not replaced: it holds {others[0]!r}"
            + (f" and {len(others) - 1} more" if len(others) > 1 else "")
            + ", which would be lost. Choose a folder that is new, empty, or holds only a model."
        )


def write_error(target: Path, size: str, error: Exception) -> OutputError:
    """Return the error for a file or folder that could not be written."""
    reason = getattr(error, "strerror", None) or error
    return OutputError(
        f"Could not write {target} ({size}): {reason}. Check that the folder is writable and the disk has space."
    )
