"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from selfcal.errors import OutputError


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Write a file through a temporary neighbour, so that a reader never sees half of it."""
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise OutputError(
            f"Could not write {target} ({len(data):,} bytes): {error.strerror or error}. "
            "Check that the folder can be written to and has room."
        ) from error
    return target
