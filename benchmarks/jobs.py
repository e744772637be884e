"""The time that `auto` and trials of `compare` take with one and two processes, and `auto` beside other work.

    python -m benchmarks.jobs --json runs/jobs.json --data FOLDER --results benchmarks/RESULTS.md

FOLDER holds tables `tab_NAME.csv.gz` with the label in the last column. Every finished cell is kept in the JSON file:
a run that was killed goes on where it stood. Run nothing else: the seconds are those of the clock, and the other
work on a busy machine is one process for each core, which this benchmark starts and ends itself.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks import _quality_sets as sets
from benchmarks._quality_methods import probabilities
from benchmarks._timing import write_section
from selfcal import SelfCalibratedClassifier, metrics
from selfcal._support.jobs import one_thread
from selfcal._support.locks import locked
from selfcal._support.parallel import Results, Row, Unit, run_all_units
from selfcal.errors import TimeBudgetWarning
from selfcal.tabular.io import read_table
from selfcal.workflows.comparison import Candidate, Task, run_trials

TITLE, KEY = "Processes", ("set", "case", "seed")
CORES, BUDGET, AMPLE = 2, 60.0, 900.0
CASES = ("one", "two", "usual", "busy", "plain", "trials-1", "trials-2")
ONE, TWO, USUAL, BUSY, PLAIN, TRIALS_1, TRIALS_2 = CASES
"""One and two processes with an ample budget; two with the usual one, without and with other work; trials in a loop
without joblib, and by one and two of its workers."""
TRIALS = (PLAIN, TRIALS_1, TRIALS_2)
TRIED, SEEDS = "crossfit", 6
"""The method of the trials, and how many there are."""
MOST_SECONDS, LEAST_SPEED_UP, MOST_LOSS = 40.0, 1.6, 0.01
"""The median of `USUAL` on tables of 5,000 rows, the ratio of `ONE` to `TWO`, and how much worse `BUSY` may be."""
LEAST_TRIALS_SPEED_UP, MOST_OVERHEAD = 1.7, 0.05
"""The ratio of `TRIALS_1` to `TRIALS_2`, and how much longer `TRIALS_1` may take than `PLAIN`."""


def work(folder: Path, scale: float, unit: Unit) -> list[Row]:
    """Train `auto` on one table in one case; a failure is a row that says so."""
    name, case, seed = unit
    row: Row = dict(zip(KEY, unit, strict=True)) | {"failed": None}
    try:
        if case in TRIALS:
            return [row | trials(folder / f"tab_{name}.csv.gz", case)]
        task = sets.load(name, seed, 0.0, folder, scale)
        model = SelfCalibratedClassifier(
            "auto",
            time_budget=BUDGET if case in (USUAL, BUSY) else AMPLE,
            n_jobs=1 if case == ONE else CORES,
            random_state=seed,
            standardize=False,
            verbose=False,
        )
        with other_work(CORES if case == BUSY else 0), warnings.catch_warnings():
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


def trials(path: Path, case: str) -> Row:
    """Run the trials, and measure how long all of them take; the bits are those of their scores."""
    task = Task(str(path), read_table(str(path)).columns[-1])
    tried = Candidate(TRIED, TRIED)
    started = time.perf_counter()
    if case == PLAIN:
        with one_thread():
            rows = [task.run(tried, seed) for seed in range(SEEDS)]
    else:
        with TemporaryDirectory() as name:
            jobs = 1 if case == TRIALS_1 else CORES
            kept = Path(name) / "results.json"
            rows = run_trials(task, [tried], seeds=SEEDS, results=kept, jobs=jobs, title=TITLE)
    seconds = time.perf_counter() - started
    if failed := [row["failed"] for row in rows if row["failed"] is not None]:
        raise RuntimeError(failed[0])
    scores = [row["log_loss"] for row in rows]
    bits = hashlib.sha256(np.array(scores).tobytes()).hexdigest()
    return {"seconds": seconds, "log_loss": float(np.mean(scores)), "probabilities": bits}


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


def markdown(rows: Sequence[Row]) -> str:
    """A table of all cases, and whether the targets are met."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["failed"] is None:
            found.setdefault(row["set"], {})[row["case"]] = row
    lines = [
        f"`auto`, in seconds: one and two processes with a budget of {AMPLE:.0f} s, two with {BUDGET:.0f} s, "
        f"and those beside {CORES} processes of other work (*busy*).",
        "",
        "| table | one | two | ratio | same bits | usual | busy | log loss, usual | busy | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, of in found.items():
        if not of.keys() - {*TRIALS}:
            continue
        one, two, usual, busy = (of.get(case) for case in (ONE, TWO, USUAL, BUSY))
        same = one and two and one["probabilities"] == two["probabilities"]
        cells = [
            *(f"{row['seconds']:.1f}" if row else "" for row in (one, two)),
            f"{one['seconds'] / two['seconds']:.2f}x" if one and two else "",
            ("yes" if same else "**no**") if one and two else "",
            *(f"{row['seconds']:.1f}" if row else "" for row in (usual, busy)),
            *(f"{row['log_loss']:.4f}" if row else "" for row in (usual, busy)),
            f"{busy['log_loss'] / usual['log_loss']:.4f}" if busy and usual else "",
        ]
        lines.append(f"| {' | '.join([name, *cells])} |")
    lines += ["", *_verdicts(found)]
    lines += [
        f"- {row['set']}, {row['case']} failed: `{row['failed']}`."
        for row in rows
        if row["failed"] is not None
    ]
    return "\n".join(lines)


def _verdicts(found: dict[str, dict[str, Row]]) -> Iterator[str]:
    def verdict(met: bool) -> str:
        return "met" if met else "**missed**"

    if seconds := [of[USUAL]["seconds"] for of in found.values() if USUAL in of]:
        median = float(np.median(seconds))
        yield (
            f"- Median of {len(seconds)} tables with the usual budget: {median:.0f} s, at most {MOST_SECONDS:.0f} "
            f"wanted; {verdict(median <= MOST_SECONDS)}."
        )
    if both := [of for of in found.values() if {ONE, TWO} <= of.keys()]:
        speed_up = sum(of[ONE]["seconds"] for of in both) / sum(of[TWO]["seconds"] for of in both)
        same = sum(of[ONE]["probabilities"] == of[TWO]["probabilities"] for of in both)
        yield (
            f"- Two processes are {speed_up:.2f} times as fast as one on the sum of {len(both)} tables, "
            f"{LEAST_SPEED_UP} wanted; {verdict(speed_up >= LEAST_SPEED_UP)}."
        )
        yield f"- Their probabilities are the same bits on {same} of {len(both)}; {verdict(same == len(both))}."
    if both := [of for of in found.values() if {TRIALS_1, TRIALS_2} <= of.keys()]:
        speed_up = sum(of[TRIALS_1]["seconds"] for of in both) / sum(of[TRIALS_2]["seconds"] for of in both)
        same = sum(of[TRIALS_1]["probabilities"] == of[TRIALS_2]["probabilities"] for of in both)
        yield (
            f"- {SEEDS} trials of `{TRIED}` are {speed_up:.2f} times as fast with two workers as with one on the sum "
            f"of {len(both)} tables, {LEAST_TRIALS_SPEED_UP} wanted; {verdict(speed_up >= LEAST_TRIALS_SPEED_UP)}. "
            f"Their scores are the same bits on {same} of {len(both)}; {verdict(same == len(both))}."
        )
    if both := [of for of in found.values() if {PLAIN, TRIALS_1} <= of.keys()]:
        more = sum(of[TRIALS_1]["seconds"] for of in both) / sum(of[PLAIN]["seconds"] for of in both) - 1
        yield (
            f"- One worker of joblib takes {100 * more:+.1f}% of the time of a plain loop more, at most "
            f"{100 * MOST_OVERHEAD:+.0f}% wanted; {verdict(more <= MOST_OVERHEAD)}."
        )
    if loaded := [of for of in found.values() if {USUAL, BUSY} <= of.keys()]:
        loss = float(np.mean([np.log(of[BUSY]["log_loss"] / of[USUAL]["log_loss"]) for of in loaded]))
        yield (
            f"- On a busy machine the log loss is {100 * loss:+.2f}% on the mean of {len(loaded)} tables, at most "
            f"{100 * MOST_LOSS:+.0f}% wanted; {verdict(loss <= MOST_LOSS)}."
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
    print(text := markdown(rows))
    write_section(asked.results, TITLE, text)


if __name__ == "__main__":
    main()
