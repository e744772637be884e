"""Independent units of work in several processes, with the results of finished units on disk."""

from __future__ import annotations

import json
import multiprocessing
import operator
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import torch

from selfcal._support.files import write_atomically
from selfcal._support.progress import progress_bar
from selfcal._support.signals import starting_workers
from selfcal.errors import ConfigError, DataError

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
    progress: bool | None = None,
) -> list[Row]:
    """Run the units that are not yet in `results`, in `jobs` processes, and return all rows in their order.

    The values of `key` in a row identify its unit; `progress` is as in `progress_bar`.
    """
    rows = results.rows()
    unit_of = operator.itemgetter(*key)
    done = {unit_of(row) for row in rows}
    todo = [unit for unit in units if unit not in done]
    if todo:
        results.write(rows)  # fails now, not after an hour, if the folder is not writable
        with progress_bar(title, len(units), progress) as advance, _pool(min(jobs, len(todo))) as pool:
            advance(len(units) - len(todo), f"{len(units) - len(todo)} of {len(units)} done")
            try:
                with starting_workers():
                    futures = {pool.submit(work, unit): unit for unit in todo}
                for count, future in enumerate(as_completed(futures), start=1):
                    rows += future.result()
                    results.write(rows)
                    at = len(units) - len(todo) + count
                    advance(at, f"{at} of {len(units)} done, last {_named(futures[future], key)}")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in multiprocessing.active_children():
                    worker.terminate()  # after an interrupt, do not wait for unfinished units
                raise
    place = {unit: i for i, unit in enumerate(units)}
    wanted = [row for row in rows if unit_of(row) in place]
    return sorted(wanted, key=lambda row: place[unit_of(row)])


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

    def run(some: Sequence[Unit], jobs: int) -> list[Row]:
        return run_units(work, some, results, jobs=jobs, title=title, key=key, progress=progress)

    try:
        return run(units, jobs)
    except BrokenProcessPool:  # run one by one, so that the one that dies affects no other
        for unit in units:
            try:
                run([unit], 1)
            except BrokenProcessPool:
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


def _pool(jobs: int) -> ProcessPoolExecutor:
    _start_tracker()
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_prepare_worker)


def _start_tracker() -> None:
    """Start the process that frees resources of workers, without its warning about workers stopped while loading."""
    before = os.environ.get("PYTHONWARNINGS")
    quiet = "ignore:resource_tracker:UserWarning"
    os.environ["PYTHONWARNINGS"] = quiet if not before else f"{before},{quiet}"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


def _prepare_worker() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End a worker whose parent was killed, which would otherwise wait for work forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
