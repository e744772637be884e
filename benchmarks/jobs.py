"""The time that `auto` and `tune` take with one and two processes, and `auto` beside other work.

    python -m benchmarks.jobs --json runs/jobs.json --data FOLDER --results benchmarks/RESULTS.md

FOLDER holds tables `tab_NAME.csv.gz` with the label in the last column. Every finished cell is kept in the JSON file:
a run that was killed goes on where it stood. Run nothing else: the seconds are those of the clock, and the other
work on a busy machine is one process for each core, which this benchmark starts and ends itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import joblib
import numpy as np

from benchmarks import _quality_sets as sets
from benchmarks._quality_methods import probabilities
from benchmarks._timing import write_section
from selfcal import SelfCalibratedClassifier, metrics
from selfcal._support.jobs import completed_calls, one_thread
from selfcal._support.locks import locked
from selfcal._support.parallel import Results, Row, Unit, run_all_units
from selfcal.errors import TimeBudgetWarning
from selfcal.tabular.io import read_table
from selfcal.workflows.comparison import Candidate, Task

TITLE, TITLE_OF_TRIALS, KEY = (
    "Processes",
    "Processes: trials, and one that is killed",
    ("set", "case", "seed"),
)
CORES, BUDGET, AMPLE = 2, 60.0, 900.0
CASES = ("one", "two", "killed", "usual", "busy", "trials", "tune-1", "tune-2")
ONE, TWO, KILLED, USUAL, BUSY, TRIALS, TUNE_1, TUNE_2 = CASES
"""One and two processes with an ample budget; three of a Dask cluster, one of which is killed; two with the usual
budget, without and with other work; trials in this process and in one worker of joblib, in turns; the command `tune`
with one and two."""
WORKERS = 3
TRIED, SEEDS = "crossfit", 6
"""The method of the trials, and how many there are."""
GRID = ("learning_rate=0.002,0.003,0.005,0.007,0.01,0.015,0.02,0.03", "--seeds", "3")
"""The 24 trials of `tune`, which then trains with the best settings."""
MOST_SECONDS, LEAST_SPEED_UP, MOST_LOSS = 40.0, 1.6, 0.01
"""The median of `USUAL` on tables of 5,000 rows, the ratio of `ONE` to `TWO`, and how much worse `BUSY` may be."""
LEAST_TUNE_SPEED_UP, MOST_OVERHEAD = 1.7, 0.05
"""The ratio of `TUNE_1` to `TUNE_2`, and how much longer trials may take in a worker, once that has started."""


def work(folder: Path, scale: float, unit: Unit) -> list[Row]:
    """Train `auto` on one table in one case; a failure is a row that says so."""
    name, case, seed = unit
    row: Row = dict(zip(KEY, unit, strict=True)) | {"failed": None}
    try:
        path = folder / f"tab_{name}.csv.gz"
        if case == TRIALS:
            return [row | trials(path)]
        if case in (TUNE_1, TUNE_2):
            return [row | tune(path, 1 if case == TUNE_1 else CORES)]
        task = sets.load(name, seed, 0.0, folder, scale)
        model = SelfCalibratedClassifier(
            "auto",
            time_budget=BUDGET if case in (USUAL, BUSY) else AMPLE,
            n_jobs=None if case == KILLED else 1 if case == ONE else CORES,
            random_state=seed,
            standardize=False,
            verbose=False,
        )
        around = killed_worker() if case == KILLED else other_work(CORES if case == BUSY else 0)
        with around, warnings.catch_warnings():
            warnings.simplefilter("ignore", TimeBudgetWarning)
            started = time.perf_counter()
            model.fit(task.X, task.y, feature_groups=task.groups)
            seconds = time.perf_counter() - started
        probs = probabilities(model, task.X_test, task.n_classes)
        return [
            row
            | {
                "seconds": seconds,
                "log_loss": metrics.log_loss(task.y_test, probs),
                "probabilities": hashlib.sha256(probs.tobytes()).hexdigest(),
                "cut": any(
                    one["networks"] < one["planned"] or one["out_of_time"] for one in model.selection_
                ),
            }
        ]
    except Exception as error:
        return [row | {"failed": f"{type(error).__name__}: {error}"}]


def load(module: str) -> None:
    """Import a module."""
    import_module(module)


def trials(path: Path) -> Row:
    """Run each trial here and in a worker, one after the other; the bits are those of their scores."""
    task = Task(str(path), read_table(str(path)).columns[-1])
    tried = Candidate(TRIED, TRIED)
    here: list[Row] = []
    there: list[Row] = []
    seconds = {"plain": 0.0, "seconds": 0.0}

    def timed(name: str, run: Callable[[], Row]) -> Row:
        started = time.perf_counter()
        found = run()
        seconds[name] += time.perf_counter() - started
        if found["failed"] is not None:
            raise RuntimeError(found["failed"])
        return found

    def in_worker(seed: int) -> Row:
        ((_, found),) = completed_calls(task.run, [(tried, seed)], n_jobs=1, isolated=True)
        return found

    start = -time.perf_counter()
    for _ in completed_calls(load, [("selfcal.estimators.classifier",)], n_jobs=1, isolated=True):
        start += time.perf_counter()
    for seed in range(SEEDS):
        with one_thread():
            here.append(timed("plain", partial(task.run, tried, seed)))
        there.append(timed("seconds", partial(in_worker, seed)))
    scores, others = ([row["log_loss"] for row in rows] for rows in (there, here))
    bits = hashlib.sha256(np.array(scores).tobytes()).hexdigest()
    return {**seconds, "start": start, "same": scores == others, "log_loss": scores[0], "probabilities": bits}


def tune(path: Path, jobs: int) -> Row:
    """Run the command, and measure how long it takes from its start to its end; the bits are those of its answer."""
    target = read_table(str(path)).columns[-1]
    with TemporaryDirectory() as out:
        command = [sys.executable, "-m", "selfcal", "tune", str(path), "--target", target, "--method", TRIED]
        command += ["--grid", *GRID, "--jobs", str(jobs), "--out", out, "--json"]
        started = time.perf_counter()
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds = time.perf_counter() - started
    found = json.loads(said)
    scores = [(one["name"], one["log_loss"], one["ece"]) for one in found["standings"]]
    bits = hashlib.sha256(json.dumps(scores).encode()).hexdigest()
    return {"seconds": seconds, "log_loss": scores[0][1], "probabilities": bits}


@contextmanager
def killed_worker() -> Iterator[None]:
    """A context in which joblib uses a Dask cluster, one of whose workers is killed while it trains."""
    from distributed import Client, LocalCluster  # an extra

    # in a worker of joblib, whose own way to start processes Dask does not know
    multiprocessing.set_start_method("spawn", force=True)
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        processes = client.run(os.getpid)
        killed = threading.Thread(target=_kill_one, args=(client, processes), daemon=True)
        killed.start()
        with joblib.parallel_config("dask"):
            yield
        killed.join(timeout=10)
        if client.run(os.getpid).keys() >= processes.keys():
            raise RuntimeError("No worker was killed.")


def _kill_one(client: Any, processes: dict[str, int]) -> None:
    time.sleep(10)  # by then they train
    while not (busy := [name for name, tasks in client.processing().items() if tasks]):
        time.sleep(0.1)
    os.kill(processes[busy[0]], signal.SIGKILL)


@contextmanager
def other_work(n_processes: int) -> Iterator[None]:
    """A context in which so many other processes compute without a pause."""
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_compute, daemon=True) for _ in range(n_processes)]
    for other in others:
        other.start()
    if others:
        time.sleep(1.0)  # until they have started
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def _compute() -> None:
    while True:
        sum(range(10_000))


def sections(rows: Sequence[Row]) -> dict[str, str]:
    """What was measured, by title: the seconds of `auto`, and trials and the bits after a worker is killed."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["failed"] is None:
            found.setdefault(row["set"], {})[row["case"]] = row
    failed = [
        f"- {row['set']}, {row['case']} failed: `{row['failed']}`."
        for row in rows
        if row["failed"] is not None
    ]
    cases = {row["case"] for row in rows}
    made = {}
    if cases & {USUAL, BUSY}:
        made[TITLE] = [*_seconds(found), "", *_verdicts(found), *failed]
    if cases & {KILLED, TRIALS, TUNE_1, TUNE_2}:
        made[TITLE_OF_TRIALS] = [*_verdicts_on_trials(found), *failed]
    return {title: "\n".join(lines) for title, lines in made.items()}


def _seconds(found: dict[str, dict[str, Row]]) -> Iterator[str]:
    yield (
        f"`auto`, in seconds: one and two processes with a budget of {AMPLE:.0f} s, two with {BUDGET:.0f} s, "
        f"and those beside {CORES} processes of other work (*busy*)."
    )
    yield ""
    yield "| table | one | two | ratio | same bits | usual | busy | log loss, usual | busy | ratio |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, of in found.items():
        one, two, usual, busy = (of.get(case) for case in (ONE, TWO, USUAL, BUSY))
        cells = [
            *(f"{row['seconds']:.1f}" if row else "" for row in (one, two)),
            f"{one['seconds'] / two['seconds']:.2f}x" if one and two else "",
            _same(one, two),
            *(f"{row['seconds']:.1f}" if row else "" for row in (usual, busy)),
            *(f"{row['log_loss']:.4f}" if row else "" for row in (usual, busy)),
            f"{busy['log_loss'] / usual['log_loss']:.4f}" if busy and usual else "",
        ]
        yield f"| {' | '.join([name, *cells])} |"


def _same(one: Row | None, other: Row | None) -> str:
    if one is None or other is None:
        return ""
    return "yes" if one["probabilities"] == other["probabilities"] else "**no**"


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def _verdicts(found: dict[str, dict[str, Row]]) -> Iterator[str]:
    if seconds := [of[USUAL]["seconds"] for of in found.values() if USUAL in of]:
        median = float(np.median(seconds))
        yield (
            f"- Median of {len(seconds)} tables with the usual budget: {median:.0f} s, at most {MOST_SECONDS:.0f} "
            f"wanted; {_verdict(median <= MOST_SECONDS)}."
        )
    yield from _two_processes(found)
    if loaded := [of for of in found.values() if {USUAL, BUSY} <= of.keys()]:
        loss = float(np.mean([np.log(of[BUSY]["log_loss"] / of[USUAL]["log_loss"]) for of in loaded]))
        yield (
            f"- On a busy machine the log loss is {100 * loss:+.2f}% on the mean of {len(loaded)} tables, at most "
            f"{100 * MOST_LOSS:+.0f}% wanted; {_verdict(loss <= MOST_LOSS)}."
        )


def _two_processes(found: dict[str, dict[str, Row]]) -> Iterator[str]:
    if both := [of for of in found.values() if {ONE, TWO} <= of.keys()]:
        speed_up = sum(of[ONE]["seconds"] for of in both) / sum(of[TWO]["seconds"] for of in both)
        same = sum(of[ONE]["probabilities"] == of[TWO]["probabilities"] for of in both)
        yield (
            f"- `auto` is {speed_up:.2f} times as fast with two processes as with one on the sum of {len(both)} "
            f"tables, {LEAST_SPEED_UP} wanted; {_verdict(speed_up >= LEAST_SPEED_UP)}."
        )
        yield f"- Its probabilities are the same bits on {same} of {len(both)}; {_verdict(same == len(both))}."


def _verdicts_on_trials(found: dict[str, dict[str, Row]]) -> Iterator[str]:
    yield f"On {', '.join(found)}."
    yield ""
    yield from _two_processes(found)
    if both := [of for of in found.values() if {ONE, KILLED} <= of.keys()]:
        same = sum(of[ONE]["probabilities"] == of[KILLED]["probabilities"] for of in both)
        yield (
            f"- `auto` on {WORKERS} processes of Dask, one of which is killed while it trains, gives the bits of one "
            f"process on {same} of {len(both)}; {_verdict(same == len(both))}."
        )
    if both := [of for of in found.values() if {TUNE_1, TUNE_2} <= of.keys()]:
        speed_up = sum(of[TUNE_1]["seconds"] for of in both) / sum(of[TUNE_2]["seconds"] for of in both)
        same = sum(of[TUNE_1]["probabilities"] == of[TUNE_2]["probabilities"] for of in both)
        yield (
            f"- `tune --method {TRIED}` with 24 trials is {speed_up:.2f} times as fast with two workers as with "
            f"one, start and last training included, {LEAST_TUNE_SPEED_UP} wanted; "
            f"{_verdict(speed_up >= LEAST_TUNE_SPEED_UP)}. Its scores are the same bits on {same} of {len(both)}; "
            f"{_verdict(same == len(both))}."
        )
    if tried := [of[TRIALS] for of in found.values() if TRIALS in of]:
        more = sum(row["seconds"] for row in tried) / sum(row["plain"] for row in tried) - 1
        yield (
            f"- Trials in one worker of joblib take {100 * more:+.1f}% of the time of those without more, at most "
            f"{100 * MOST_OVERHEAD:+.0f}% wanted; {_verdict(more <= MOST_OVERHEAD)}. Starting it takes "
            f"{max(row['start'] for row in tried):.1f} s once. Their scores are "
            f"{'the same bits' if all(row['same'] for row in tried) else '**others**'}."
        )


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True, help="keeps what is finished")
    parser.add_argument("--data", type=Path, required=True, help="folder with the tables")
    parser.add_argument("--sets", nargs="+", help="names of tables; all by default")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--seed", type=int, default=0, help="0 for reports; 100 and up for development")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of all rows, to try things out")
    parser.add_argument(
        "--results", type=Path, help="also write the table as a section of this Markdown file"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    asked = options().parse_args(arguments)
    tables = [name for name in sets.sets_in(asked.data) if sets.kind_of(name) == "table"]
    kept = Results(asked.json, {"experiment": "processes", "budgets": [BUDGET, AMPLE], "scale": asked.scale})
    units = [(name, case, asked.seed) for name in asked.sets or tables for case in asked.cases]
    with locked(asked.json.with_name(f".{asked.json.name}.lock")):
        train = partial(work, asked.data, asked.scale)
        rows = run_all_units(train, units, kept, jobs=1, title=TITLE, key=KEY)
    for title, text in sections(rows).items():
        print(f"{title}\n\n{text}\n")
        write_section(asked.results, title, text)


if __name__ == "__main__":
    main()
