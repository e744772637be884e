"""Does one bilevel training find the hyperparameter that a grid of trainings finds?

    python -m benchmarks.one_run --json benchmarks/one_run.json --data FOLDER

For each of seven hyperparameters, a grid of seven values, each trained to early stopping and the best chosen by its
log loss on the held-out rows, against one run that learns the value, and against the better of it and a restart with
what it has learned.
`FOLDER` has the tables (``tab_NAME.csv.gz``) and ``fashion_mnist.npz``. Finished units are kept in the file: a run
can be interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import _one_run_cases as cases
from benchmarks._one_run_sets import GENERATED, IMAGES, TABLES, parts_of
from benchmarks._timing import write_section
from selfcal._support.parallel import Results, Row, Unit, run_units
from selfcal.experiments._tables import mean_and_error

REPORTED = ("blobs-1.7", "spiral-2.5", "vehicle", "german_credit", "satellite", "fashion")
KEY = ("learned", "dataset", "seed", "part")
GRID, LEARNED, TIME = PARTS = ("grid", "learned", "time")
ONE_RUN, RESTARTED = "one run", "one run, restarted"
WEIGHTS = ("free weights", "a weight for each class")
COSTS = ("time", "steps")
SCORES = ("log_loss", "ece", "accuracy")
METHODS = (ONE_RUN, RESTARTED)
LIMITS = {ONE_RUN: 1.5, RESTARTED: 2.5}
"""The cost that each may have, in trainings."""


def rows_of_unit(unit: Unit, folder: Path) -> list[Row]:
    """The grid, or the one run and its restart, for one hyperparameter on one draw of a set."""
    torch.set_num_threads(1)
    learned, dataset, seed, part = unit
    case = cases.CASES[learned]
    parts = case.prepare(parts_of(dataset, seed, folder), seed)
    if part == TIME:
        rows = [{"method": TIME, "ratio": cases.step_time(case, parts)}]
    else:
        rows = (
            [*cases.grid(case, parts, seed), *cases.baselines(case, parts, seed)]
            if part == GRID
            else cases.one_run(case, parts, seed)
        )
    own = dict(zip(KEY, unit, strict=True))
    return [{**own, **_rounded(row)} for row in rows]


def _rounded(row: Row) -> Row:
    """Numbers that the file has room for."""

    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(part) for part in value]
        if isinstance(value, dict):
            return {name: short(part) for name, part in value.items()}
        return round(value, 5) if isinstance(value, float) else value

    return {name: short(value) for name, value in row.items()}


def by_draw(rows: Iterable[Row], ratio: float) -> list[dict[str, Row]]:
    """For each draw the rows by method, with the best of the grid and its median, and costs in trainings.

    A training has the mean number of steps of those of the grid. In `time`, a step that learns counts `ratio` times.
    The grid also has the cost of what its trainings share, such as out-of-fold predictions.
    """
    draws: dict[int, list[Row]] = {}
    for row in rows:
        draws.setdefault(row["seed"], []).append(row)
    found = []
    for own in draws.values():
        grid = [row for row in own if row["method"] == "grid"]
        others = {row["method"]: row for row in own if row["method"] != "grid"}
        if not grid or ONE_RUN not in others:
            continue
        plain = others.pop(cases.PLAIN, grid[0])
        steps = float(np.mean([row["steps"] for row in grid])) + plain["steps"] - grid[0]["steps"]
        best = min(grid, key=lambda row: row["validation"])
        median = {name: float(np.median([row[name] for row in grid])) for name in SCORES}
        learning = others[ONE_RUN]["steps"]
        again = others[RESTARTED]["steps"] - learning
        others[RESTARTED] = min((others[name] for name in METHODS), key=lambda row: row["validation"])
        taken = {
            "best": sum(row["steps"] for row in grid),
            "median": steps,
            **{name: row["steps"] for name, row in others.items()},
            RESTARTED: learning + again,
        }
        slower = dict.fromkeys((*METHODS, *WEIGHTS), (ratio - 1) * learning)
        of_method = {"best": best, "median": median, **others}
        found.append(
            {
                name: {
                    **row,
                    "steps": taken[name] / steps,
                    "time": (taken[name] + slower.get(name, 0.0)) / steps,
                }
                for name, row in of_method.items()
            }
        )
    return found


def compared(rows: Sequence[Row]) -> list[Row]:
    """For each hyperparameter, set and method: means, and the paired difference to the best of the grid."""
    ratios = {row["learned"]: row["ratio"] for row in rows if row["part"] == TIME}
    table = []
    for learned, dataset in dict.fromkeys((row["learned"], row["dataset"]) for row in rows):
        own = [row for row in rows if (row["learned"], row["dataset"]) == (learned, dataset)]
        ratio = ratios.get(learned.split(",")[0], 1.0)
        draws = by_draw((row for row in own if row["part"] != TIME), ratio)
        for method in draws[0] if draws else ():
            pairs = [(draw[method]["log_loss"], draw["best"]["log_loss"]) for draw in draws]
            difference, error = mean_and_error([one - best for one, best in pairs])
            spread = mean_and_error([best for _, best in pairs])[1]
            means = {
                name: float(np.mean([draw[method][name] for draw in draws])) for name in (*SCORES, *COSTS)
            }
            table.append(
                {
                    "learned": learned,
                    "dataset": dataset,
                    "method": method,
                    "seeds": len(draws),
                    **means,
                    "difference": difference,
                    "error": error,
                    "spread": spread,
                }
            )
    return table


def reaches(row: Row) -> bool:
    """Whether the log loss is within one standard error of the grid's best, or better."""
    return bool(row["difference"] <= row["error"])


def verdicts(table: Sequence[Row]) -> list[Row]:
    """For each hyperparameter and method: the number of sets where it reaches the grid's best, and its cost."""
    found = []
    for learned, method in dict.fromkeys((row["learned"], row["method"]) for row in table):
        own = [row for row in table if (row["learned"], row["method"]) == (learned, method)]
        found.append(
            {
                "learned": learned,
                "method": method,
                "sets": len(own),
                "reached": sum(map(reaches, own)),
                "near": sum(row["difference"] <= row["spread"] for row in own),
                **{
                    name: float(np.mean([row[name] for row in own]))
                    for name in ("difference", *SCORES, *COSTS)
                },
            }
        )
    return found


def summary(table: Sequence[Row]) -> str:
    """One line for each hyperparameter and method."""
    lines = [
        "| hyperparameter | method | within one s.e. of the difference | within one s.e. of the grid's best "
        "| log loss − that of the grid's best | ECE | accuracy | steps, in trainings | time, in trainings |",
        "|---" * 9 + "|",
    ]
    rows = verdicts(table)
    for learned in dict.fromkeys(row["learned"] for row in rows):
        own = {row["method"]: row for row in rows if row["learned"] == learned}
        for method in [
            "best",
            *METHODS,
            *(m for m in own if m not in ("best", "median", *METHODS)),
            "median",
        ]:
            row = own[method]
            counts = ["" if method == "best" else f"{row[k]} of {row['sets']}" for k in ("reached", "near")]
            difference = "" if method == "best" else f"{row['difference']:+.4f}"
            cells = (
                learned,
                NAMES.get(method, method),
                *counts,
                difference,
                f"{100 * row['ece']:.1f}%",
                f"{100 * row['accuracy']:.1f}%",
                f"{row['steps']:.1f}",
                f"{row['time']:.1f}",
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


NAMES = {"best": "grid, best", "median": "grid, median"}


def details(table: Sequence[Row], method: str) -> str:
    """The paired difference of a method to the grid's best, one column a set."""
    sets = list(dict.fromkeys(row["dataset"] for row in table))
    lines = [f"| hyperparameter | {' | '.join(sets)} |", "|---" * (len(sets) + 1) + "|"]
    for learned in dict.fromkeys(row["learned"] for row in table):
        own = {row["dataset"]: row for row in table if (row["learned"], row["method"]) == (learned, method)}
        cells = (_cell(own[name]) if name in own else "" for name in sets)
        lines.append(f"| {learned} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: Row) -> str:
    mark = "**" if reaches(row) else ""
    return f"{mark}{1000 * row['difference']:+.1f} ± {1000 * row['error']:.1f}{mark}"


def report(rows: Sequence[Row]) -> str:
    """The verdicts, and the differences behind them."""
    everything = compared(rows)
    table = [row for row in everything if row["learned"] in cases.HYPERPARAMETERS]
    further = [row for row in everything if row not in table]

    def won(method: str, reached: str) -> str:
        own = [row for row in verdicts(table) if row["method"] == method]
        fit = sum(3 * row[reached] >= 2 * row["sets"] and row["time"] <= LIMITS[method] for row in own)
        return f"{fit} of {len(own)} hyperparameters"

    seeds = max(row["seeds"] for row in table)
    return "\n".join(
        [
            f"Means over {seeds} seeds and all sets.",
            "",
            *(
                f"- **{NAMES.get(method, method).capitalize()}**, in at most {LIMITS[method]} times the time of one "
                "training: on at least two thirds of the sets within one standard error of the grid's best, or "
                f"better, {won(method, 'near')}; within one standard error of the paired difference, which is "
                f"smaller, {won(method, 'reached')}."
                for method in METHODS
            ),
            "",
            summary(table),
            *(
                f"\nLog loss of {NAMES.get(method, method)} minus that of the grid's best, in thousandths ± standard "
                "error of the paired difference; **bold** where it is within one standard error, or better:\n\n"
                + details(table, method)
                for method in (RESTARTED, ONE_RUN, "median")
            ),
            *(["", "Other fractions of wrong labels:", "", summary(further)] if further else []),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the tables and images")
    parser.add_argument("--json", type=Path, default=Path("runs/one-run.json"))
    parser.add_argument("--sets", nargs="+", default=list(REPORTED), choices=[*GENERATED, *TABLES, *IMAGES])
    parser.add_argument("--learned", nargs="+", default=list(cases.CASES), choices=list(cases.CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(1, 6)))
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument(
        "--results", type=Path, help="also write the tables as a section of this Markdown file"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    units = [
        (learned, name, seed, part)
        for seed in options.seeds
        for part in options.parts
        for learned in options.learned
        for name in (options.sets if part != TIME else options.sets[:1])
        if part != TIME or seed == options.seeds[0]
    ]
    kept = Results(options.json, {"steps": cases.STEPS, "width": cases.WIDTH, "wrong": cases.WRONG})
    rows = run_units(
        partial(rows_of_unit, folder=options.data),
        units,
        kept,
        jobs=1,
        title="One run against a grid",
        key=KEY,
    )
    text = report(rows)
    print(text)
    write_section(options.results, "One run against a grid", text)


if __name__ == "__main__":
    main()
