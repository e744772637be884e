"""Where a study of Optuna is kept: a journal on a shared disk, or a database."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from selfcal._support.checks import shorten
from selfcal.errors import ConfigError, DataError, OutputError, SelfcalError

SECONDS_FOR_A_LINE = 15
"""How long the lock of a journal may be held: after this, its holder is taken for dead."""
BUSY_SECONDS = 60
"""How long to wait for other writers of an SQLite file."""
ATTEMPTS = 5
"""How often to try to make the tables of a database, which others may be making."""


def check_installed() -> None:
    """Refuse to go on without Optuna."""
    try:
        import optuna  # noqa: F401 # only whether it is there
    except ImportError as error:
        raise ConfigError(
            f"--study needs optuna; {error}. Run: pip install 'selfcal[search]' on each machine."
        ) from None


def open_storage(place: str) -> Any:
    """The storage: a database for a URL, else a journal file, which is made if there is none."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return _database(place) if "://" in place else _journal(place)


def without_password(place: str) -> str:
    """The place, to show it.

    >>> without_password("postgresql://me:secret@host/db"), without_password("study.journal")
    ('postgresql://me:***@host/db', 'study.journal')
    """
    scheme, separator, rest = place.partition("://")
    user, at, host = rest.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}:***@{host}" if separator and at and ":" in user else place


@contextmanager
def storage_errors(place: str) -> Iterator[None]:
    """A context in which errors of the storage are typed."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SelfcalError:
        raise
    except (StorageInternalError, SQLAlchemyError, OSError) as error:
        raise OutputError(
            f"Could not use the study {without_password(place)}: {shorten(error.__cause__ or error, 300)}. "
            "Check that it can be reached and written to, and run the same command again."
        ) from error
    except json.JSONDecodeError as error:
        raise _no_journal(place, error) from None


def _no_journal(place: str, error: Exception) -> DataError:
    return DataError(
        f"--study must be the journal of a study, or a new file; {place} is none, or is damaged "
        f"({shorten(error, 200)}). Choose another, or move it away to start again."
    )


def _journal(place: str) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    path = os.path.abspath(place)

    class Lock(JournalFileOpenLock):
        """Whoever gets the lock removes the line that a process was killed in the middle of."""

        def acquire(self) -> bool:
            got = super().acquire()
            try:
                _remove_unfinished_line(path)
            except BaseException:
                self.release()
                raise
            return got

    try:
        with open(path, "ab+") as file:
            file.seek(0)
            start = file.read(1)
        if start not in (b"", b"{"):
            raise ValueError("it does not begin with {")
        return JournalStorage(JournalFileBackend(path, lock_obj=Lock(path, SECONDS_FOR_A_LINE)))
    except OSError as error:
        raise OutputError(
            f"Could not write the study {place}: {error.strerror or error}. Check that its folder exists and is "
            "writable on this machine."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _no_journal(place, error) from None


def _remove_unfinished_line(path: str) -> None:
    """Cut off what comes after the last line break."""
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        keep, block = end, 4096
        while keep:
            start = max(0, keep - block)
            file.seek(start)
            found = file.read(keep - start).rfind(b"\n")
            keep = start + found + 1 if found >= 0 else start
            if found >= 0:
                break
        if keep < end:
            file.truncate(keep)


def _database(place: str) -> Any:
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    patient = {"connect_args": {"timeout": BUSY_SECONDS}} if place.startswith("sqlite") else {}
    with storage_errors(place):
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return RDBStorage(place, engine_kwargs=patient)
            except (ImportError, ArgumentError, ValueError, RuntimeError) as error:
                raise ConfigError(
                    "--study must be a file or the URL of a database with its driver, such as sqlite:///study.db or "
                    f"postgresql://user@host/name; got {without_password(place)} ({shorten(error, 200)})."
                ) from None
            except SQLAlchemyError:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(random.random())
    raise AssertionError
