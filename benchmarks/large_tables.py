"""Tables of their full size: log loss, seconds to fit, and rows predicted in a second, beside boosted trees.

    python -m benchmarks.large_tables --json runs/large.json --data FOLDER --results benchmarks/RESULTS.md

FOLDER holds `tab_adult.csv.gz` and `tab_letter.csv.gz`; without it, only generated tables are run. Every finished
cell is kept in the JSON file: a run that was killed goes on where it stood. `--again` runs methods anew. All methods
fit on two cores and predict on one thread; run nothing else meanwhile, since the seconds are those of the clock.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks._quality_methods import METHODS, Fitted, probabilities
from benchmarks._quality_sets import Task, table_file, table_task, task_from
from benchmarks._timing import best_seconds, write_section
from benchmarks.quality import available
from selfcal import SelfCalibratedClassifier, metrics
from selfcal._support.checks import Float, Int
from selfcal._support.locks import locked
from selfcal._support.parallel import Results, Row, Unit, run_all_units
from selfcal.errors import TimeBudgetWarning

TITLE, KEY = "Large tables", ("case", "method", "seed")
TABLES = ("adult", "letter")
HELD_OUT, CORES, REPEATS = 0.25, 2, 3
BUDGETS = {"auto-60": 60.0, "auto-10": 10.0}
PEERS = ("sklearn-hgb", "catboost")
DISTILLED = "auto-one"
"""`auto` with the larger budget, and then one network distilled from it, for fast predictions."""
OURS = (*BUDGETS, DISTILLED)
LABELS = {name: f"auto, {seconds:.0f} s" for name, seconds in BUDGETS.items()} | {
    DISTILLED: "auto, 60 s, one network",
    **{name: METHODS[name].label for name in PEERS},
}
COLUMNS, SPEED_ROWS = 30, (10_000, 100_000)
"""Of the generated tables, and the rows of that for speed: to train on, and to predict."""

BUDGET_ROWS = (5_000, 50_000, 400_000)
TOLERANCE = 1.1
"""How many times its time budget a fit may take."""


def cells(methods: Sequence[str], *, with_tables: bool, seed: int) -> list[Unit]:
    """Every case with the methods it is run with."""
    compared = [f"table {name}" for name in TABLES] * with_tables + ["speed"]
    budgets = [f"budget {rows}" for rows in BUDGET_ROWS]
    return [
        (case, method, seed)
        for case in compared + budgets
        for method in methods
        if case in compared or method in BUDGETS
    ]


def load(case: str, seed: int, folder: Path | None, scale: float) -> Task:
    """The rows to train on and to predict."""
    kind, _, name = case.partition(" ")
    if kind == "table":
        assert folder is not None  # otherwise there would be no such case
        everything = 10**9 if scale == 1 else round(scale * 20_000)
        return table_task(table_file(folder, name), seed, everything, 1 - HELD_OUT)
    n_train, n_test = SPEED_ROWS if kind == "speed" else (int(name), 1_000)
    X, y = generated(round(scale * n_train) + (rows := round(scale * n_test)), seed)
    return task_from((X[rows:], y[rows:]), (X[:rows], y[:rows]))


def generated(rows: int, seed: int) -> tuple[Float, Int]:
    """Thirty numbers, of which some tell one of three classes, alone and in pairs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, COLUMNS))
    logits = np.stack([X[:, 0] + X[:, 1] * X[:, 2], np.sin(2 * X[:, 3]) + X[:, 4], X[:, 5] * X[:, 6]], axis=1)
    return X, (2 * logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def fit(method: str, task: Task, seed: int) -> Fitted:
    """Train on two cores."""
    if method in OURS:
        return _auto(method, task, seed)
    procedure: Any = METHODS[method].fit
    return replace(procedure, threads=CORES)(task.table, task.y, seed)


def _auto(method: str, task: Task, seed: int) -> Fitted:
    model = SelfCalibratedClassifier(
        "auto",
        time_budget=BUDGETS.get(method, max(BUDGETS.values())),
        n_networks=1 if method == DISTILLED else None,
        n_jobs=CORES,
        random_state=seed,
        standardize=False,
        verbose=False,
    )
    with threads(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", TimeBudgetWarning)
        return model.fit(task.X, task.y, feature_groups=task.groups)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch and the libraries of scikit-learn use that many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


def work(folder: Path | None, scale: float, unit: Unit) -> list[Row]:
    """Train one method on one table, and judge it; a failure is a row that says so."""
    case, method, seed = unit
    row: Row = dict(zip(KEY, unit, strict=True)) | {"failed": None}
    try:
        task = load(case, seed, folder, scale)
        started = time.perf_counter()
        model = fit(method, task, seed)
        row |= {"seconds": time.perf_counter() - started, "train_rows": len(task.y), "cores": CORES}
        X = task.X_test if method in OURS else task.table_test
        with threads(1):
            took = best_seconds({method: lambda: model.predict_proba(X)}, REPEATS)[method]
            probs = probabilities(model, X, task.n_classes)
        scores = {"log_loss": metrics.log_loss(task.y_test, probs), "rows_per_second": len(X) / took}
        return [row | scores | {"accuracy": metrics.accuracy(task.y_test, probs), "test_rows": len(X)}]
    except Exception as error:
        return [row | {"failed": f"{type(error).__name__}: {error}"}]


def markdown(rows: Sequence[Row]) -> str:
    """Tables of what was compared, and whether the time budgets were kept."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["failed"] is None:
            found.setdefault(row["case"], {})[row["method"]] = row
    lines = []
    for case, of in found.items():
        if not case.startswith("budget"):
            lines += _compared(case, of)
    lines += ["**Seconds that a fit took, as a multiple of its time budget**", ""]
    lines += [
        f"- {row['train_rows']:,} rows, {LABELS[method]}: {(ratio := row['seconds'] / BUDGETS[method]):.2f} times, "
        f"at most {TOLERANCE} wanted; {'met' if ratio <= TOLERANCE else '**missed**'}."
        for of in found.values()
        for method, row in of.items()
        if method in BUDGETS
    ] or ["Not measured."]
    failed = [row for row in rows if row["failed"] is not None]
    lines += [f"- {row['case']}, {LABELS[row['method']]} failed: `{row['failed']}`." for row in failed]
    return "\n".join(lines)


def _compared(case: str, of: dict[str, Row]) -> list[str]:
    """A table of one case, with ratios to the first of the peers."""
    peer = next((of[name] for name in PEERS if name in of), None)
    first = next(iter(of.values()))
    name = case.removeprefix("table ") if case.startswith("table") else f"generated, {COLUMNS} columns"
    lines = [
        f"**{name}: {first['train_rows']:,} rows to train on, {first['test_rows']:,} to predict**",
        "",
        "| method | log loss | accuracy | fit, s | ratio | predicted rows a second | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for method, row in of.items():
        fit_ratio, speed_ratio = (
            f"{row[name] / peer[name]:.2f}x" if peer is not None else ""
            for name in ("seconds", "rows_per_second")
        )
        scores = f"{row['log_loss']:.4f} | {row['accuracy']:.4f}"
        speeds = f"{row['seconds']:.1f} | {fit_ratio} | {row['rows_per_second']:,.0f} | {speed_ratio}"
        lines.append(f"| {LABELS[method]} | {scores} | {speeds} |")
    return [*lines, ""]


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True, help="keeps what is finished")
    parser.add_argument("--data", type=Path, help="folder with the tables")
    parser.add_argument("--methods", nargs="+", choices=list(LABELS), default=list(LABELS), metavar="METHOD")
    parser.add_argument("--seed", type=int, default=0, help="0 for reports; 100 and up for development")
    parser.add_argument(
        "--again", nargs="+", choices=list(LABELS), default=[], metavar="METHOD", help="run these anew"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of all rows, to try things out")
    parser.add_argument(
        "--results", type=Path, help="also write the tables as a section of this Markdown file"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    asked = options().parse_args(arguments)
    kept = Results(
        asked.json,
        {
            "experiment": "large tables",
            "held_out": HELD_OUT,
            "generated": [COLUMNS, *SPEED_ROWS, *BUDGET_ROWS],
            "scale": asked.scale,
        },
    )
    units = cells(available(asked.methods), with_tables=asked.data is not None, seed=asked.seed)
    with locked(asked.json.with_name(f".{asked.json.name}.lock")):
        if asked.again and kept.path.exists():
            kept.write([row for row in kept.rows() if row["method"] not in asked.again])
        train = partial(work, asked.data, asked.scale)
        rows = run_all_units(train, units, kept, jobs=1, title=TITLE, key=KEY)
    print(text := markdown(rows))
    write_section(asked.results, TITLE, text)


if __name__ == "__main__":
    main()
