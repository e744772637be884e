"""Candidates trained on the same splits of a table: to compare methods, or to choose settings."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from selfcal._support import checks
from selfcal._support.parallel import Results, Row, Unit, run_all_units
from selfcal.errors import ConfigError, TrainingError
from selfcal.tabular.io import read_table
from selfcal.workflows.table_model import HELD_OUT, TableModel

SCORES = ("log_loss", "accuracy", "ece", "brier_score")


@dataclass(frozen=True)
class Candidate:
    """A way to train: a name for it, the method, and settings of the classifier."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """A table in a file, and how to read and divide it.

    Attributes:
        data: The file.
        target: The column with the labels.
        reading: Options of `read_table`.
        fitting: Options of `TableModel.fit`.
        settings: Settings of the classifier, common to all candidates.
        method: The method of candidates that are named after their other settings only.
        within: If given, rows that `TableModel(seed=within)` would hold out are left out, so that a choice made here
            can be evaluated there.
    """

    data: str
    target: str
    reading: Mapping[str, Any] = field(default_factory=dict)
    fitting: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    method: str | None = None
    within: int | None = None

    def identity(self) -> dict[str, Any]:
        """The data and settings that stored results depend on."""
        with open(self.data, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        fitting = {name: value for name, value in self.fitting.items() if value}
        shared = {"target": self.target, "fitting": fitting, "settings": dict(self.settings)}
        method = {} if self.method is None else {"method": self.method}
        return {"data": digest, **shared, **method, "within": self.within}

    def run(self, candidate: Candidate, seed: int) -> Row:
        """Train and evaluate once; a failure is recorded in the row."""
        row: Row = {"name": candidate.name, "seed": seed, "failed": None}
        try:
            table = read_table(self.data, **self.reading)
            if self.within is not None:
                outer = TableModel(seed=self.within).parts(table, self.target, **self.fitting)
                table = table.filter(table[self.target].is_not_null())[
                    np.union1d(outer.train, outer.validation)
                ]
            settings = {**self.settings, **candidate.settings, "verbose": False}
            model = TableModel(candidate.method, seed=seed, **settings)
            started = time.perf_counter()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                model.fit(table, self.target, **self.fitting)
            seconds = time.perf_counter() - started
        except ConfigError:
            raise  # the same for every trial: raised once
        except Exception as error:
            return row | {"failed": f"{type(error).__name__}: {error}"}
        judged = model.report.methods[0]
        scores = {name: getattr(judged, name).value for name in SCORES}
        noise = {"noise_floor": judged.noise_floor.mean, "rows": model.report.rows}
        notes = list(
            dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning))
        )
        return row | scores | noise | {"seconds": seconds, "notes": notes}


def run_trials(
    task: Task,
    candidates: Sequence[Candidate],
    *,
    seeds: int,
    results: Path,
    jobs: int,
    title: str,
    replace: bool = False,
    progress: bool | None = None,
) -> list[Row]:
    """Run every candidate with every seed; what `results` has is not run again, and what fails is a row, too.

    Args:
        task: The table.
        candidates: The ways to train.
        seeds: Number of seeds, from 0 on.
        results: The file that keeps the rows.
        jobs: Processes to use.
        title: The title of the progress bar.
        replace: Replace results of another task, instead of an error.
        progress: Show the progress, as in `progress_bar`.

    Returns:
        The rows.
    """
    kept = Results(results, task.identity(), replace=replace, remedy="add --force to replace them")
    units = list(product([c.name for c in candidates], range(seeds)))
    work = partial(_work, task, {c.name: c for c in candidates})
    return run_all_units(work, units, kept, jobs=jobs, title=title, key=("name", "seed"), progress=progress)


def _work(task: Task, candidates: Mapping[str, Candidate], unit: Unit) -> list[Row]:
    name, seed = unit
    return [task.run(candidates[name], seed)]


@dataclass(frozen=True)
class Standing:
    """The results of one candidate: means over seeds, and the difference to the lowest log loss.

    Attributes:
        name: The candidate.
        scores: Means over the seeds that did not fail.
        behind: Log loss minus the best one's, mean over seeds; 0 for the best.
        low: Lower end of its interval; NaN for the best, and with a single seed.
        high: Upper end.
        failures: Error messages, by seed.
        notes: Warnings of the training, with the seeds that had them.
    """

    name: str
    scores: Mapping[str, float]
    behind: float
    low: float
    high: float
    failures: Mapping[int, str]
    notes: Mapping[str, Sequence[int]]


def standings(rows: Sequence[Row], *, level: float = 0.95, held_out: float = HELD_OUT) -> list[Standing]:
    """Candidates from best to worst; the intervals are paired, seed by seed.

    Splits of one table overlap, which makes the plain interval too short; the variance is multiplied by
    `1 / n + test / train` instead of `1 / n`.

    Args:
        rows: The rows, as `run_trials` returns them.
        level: The level of the intervals.
        held_out: The fraction of rows that were held out.

    Returns:
        The candidates; those that failed with every seed come last.

    Example:
        >>> rows = [
        ...     {"name": n, "seed": s, "failed": None, "log_loss": 0.5 + 0.1 * (n == "b") + 0.01 * s}
        ...     for n in "ba" for s in range(3)
        ... ]
        >>> [(one.name, round(one.behind, 3)) for one in standings(rows)]
        [('a', 0.0), ('b', 0.1)]

    Reference: Nadeau and Bengio, Inference for the Generalization Error, Machine Learning 52 (2003).
    """
    by_name: dict[str, dict[int, Row]] = {}
    for row in rows:
        by_name.setdefault(row["name"], {})[row["seed"]] = row
    good = {name: {s: r for s, r in of.items() if r["failed"] is None} for name, of in by_name.items()}
    means = {name: float(np.mean([r["log_loss"] for r in of.values()])) for name, of in good.items() if of}
    if not means:
        raise TrainingError(f"Every trial failed; the first error was: {rows[0]['failed']}")
    best = min(means, key=lambda name: means[name])
    found = []
    for name in sorted(by_name, key=lambda name: means.get(name, np.inf)):
        common = sorted(good[name].keys() & good[best].keys())
        differences = np.array([good[name][s]["log_loss"] - good[best][s]["log_loss"] for s in common])
        low, high = _interval(differences, level, held_out) if name != best else (np.nan, np.nan)
        numbers = [
            key for key, value in next(iter(good[name].values()), {}).items() if isinstance(value, float)
        ]
        scores = {key: float(np.mean([r[key] for r in good[name].values()])) for key in numbers}
        failures = {s: r["failed"] for s, r in by_name[name].items() if r["failed"] is not None}
        behind = float(differences.mean()) if len(differences) else np.nan
        notes: dict[str, list[int]] = {}
        for seed, row in sorted(by_name[name].items()):
            for text in row.get("notes", ()):  # which earlier versions did not store
                notes.setdefault(text, []).append(seed)
        found.append(Standing(name, scores, behind, low, high, failures, notes))
    return found


def _interval(differences: Any, level: float, held_out: float) -> tuple[float, float]:
    n = len(differences)
    if n < 2:
        return np.nan, np.nan
    checks.in_range("held_out", held_out, 0.01, 0.9)
    error = np.sqrt(differences.var(ddof=1) * (1 / n + held_out / (1 - held_out)))
    half = float(stdtrit(n - 1, (1 + level) / 2) * error)
    return float(differences.mean()) - half, float(differences.mean()) + half


def grid(options: Mapping[str, Sequence[Any]], method: str) -> list[Candidate]:
    """Every combination of settings, as candidates named after them.

    Example:
        >>> [one.name for one in grid({"learning_rate": [0.01], "hidden": [(64, 64), (256,)]}, "standard")]
        ['learning_rate=0.01 hidden=64x64', 'learning_rate=0.01 hidden=256']
    """
    found = []
    for values in product(*options.values()):
        settings = dict(zip(options, values, strict=True))
        name = " ".join(f"{key}={written(value)}" for key, value in settings.items())
        found.append(Candidate(name, str(settings.pop("method", method)), settings))
    return found


def written(value: Any) -> str:
    """The value of a setting as at the command line.

    >>> written((64, 64)), written(0.01)
    ('64x64', '0.01')
    """
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
