"""Independent units of work in several processes, with the results of finished units on disk."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfcal._support.files import write_atomically
from selfcal._support.jobs import ATTEMPTS, completed_calls
from selfcal._support.progress import progress_bar
from selfcal.errors import ConfigError, DataError, WorkerError

Row = dict[str, Any]
Unit = tuple[Any, ...]
"""The key of a unit of work, such as a data set and a seed."""


@dataclass(frozen=True)
class Results:
    """Rows of numbers in one JSON file; the rows of a unit are written together.

    Attributes:
        path: The file.
        settings: What the rows depend on.
        replace: Replace rows for other settings, instead of an error.
        remedy: What to do about such rows, for the error.
    """

    path: Path
    settings: Mapping[str, Any]
    replace: bool = False
    remedy: str = "remove this one to start again"

    def rows(self) -> list[Row]:
        """Return the rows so far; none if there is no file yet."""
        if not self.path.exists():
            return []
        try:
            kept = json.loads(self.path.read_text())
            settings, rows = kept["settings"], kept["rows"]
        except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise DataError(
                f"{self.path} is not a results file ({error}). Move it away to start again."
            ) from None
        asked = json.loads(json.dumps(self.settings))
        if settings != asked and self.replace:
            return []
        if settings != asked:
            differing = sorted(k for k in {*settings, *asked} if settings.get(k) != asked.get(k))
            raise ConfigError(
                f"{self.path} holds results for other settings ({', '.join(differing)}). "
                f"Choose another --out folder, or {self.remedy}."
            )
        return list(rows)

    def write(self, rows: Sequence[Row]) -> None:
        """Replace the file."""
        content = {"settings": self.settings, "rows": list(rows)}
        write_atomically(self.path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def run_units(
    work: Callable[[Unit], list[Row]],
    units: Sequence[Unit],
    results: Results,
    *,
    jobs: int,
    title: str,
    key: Sequence[str] = ("dataset", "seed"),
    attempts: int = ATTEMPTS,
    progress: bool | None = None,
) -> list[Row]:
    """Run the units that are not yet in `results`, in `jobs` processes, and return all rows in their order.

    The values of `key` in a row identify its unit; `progress` is as in `progress_bar`. What `attempts` and a
    `joblib.parallel_config` do is in `completed_calls`.
    """
    rows = results.rows()
    unit_of = operator.itemgetter(*key)
    done = {unit_of(row) for row in rows}
    todo = [unit for unit in units if unit not in done]
    if todo:
        results.write(rows)  # fails now, not after an hour, if the folder is not writable
        calls = completed_calls(
            work, [(unit,) for unit in todo], n_jobs=min(jobs, len(todo)), isolated=True, attempts=attempts
        )
        with progress_bar(title, len(units), progress) as advance, closing(calls) as completed:
            advance(len(units) - len(todo), f"{len(units) - len(todo)} of {len(units)} done")
            for count, (place, found) in enumerate(completed, start=1):
                rows += found
                results.write(rows)
                at = len(units) - len(todo) + count
                advance(at, f"{at} of {len(units)} done, last {_named(todo[place], key)}")
    order = {unit: i for i, unit in enumerate(units)}
    wanted = [row for row in rows if unit_of(row) in order]
    return sorted(wanted, key=lambda row: order[unit_of(row)])


def run_all_units(
    work: Callable[[Unit], list[Row]],
    units: Sequence[Unit],
    results: Results,
    *,
    jobs: int,
    title: str,
    key: Sequence[str],
    progress: bool | None = None,
) -> list[Row]:
    """Like `run_units`, but a unit whose process dies becomes a row with the reason in `failed`."""

    def run(some: Sequence[Unit], jobs: int, attempts: int = ATTEMPTS) -> list[Row]:
        options = {} if attempts == ATTEMPTS else {"attempts": attempts}
        return run_units(work, some, results, jobs=jobs, title=title, key=key, progress=progress, **options)

    try:
        return run(units, jobs)
    except WorkerError:  # run one by one, so that the one that dies affects no other
        for unit in units:
            try:
                run([unit], 1, attempts=1)
            except WorkerError:
                died = {"failed": "The process died, perhaps for lack of memory."}
                results.write([*results.rows(), dict(zip(key, unit, strict=True)) | died])
        return run(units, 1)


def _named(unit: Unit, key: Sequence[str]) -> str:
    """A unit in words.

    >>> _named(("standard", 0), ("name", "seed"))
    'standard, seed 0'
    """
    return ", ".join(
        f"seed {value}" if name == "seed" else str(value) for name, value in zip(key, unit, strict=True)
    )
