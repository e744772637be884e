"""The command line on a long table: seconds, processor seconds and peak memory of whole processes.

The bars: `evaluate` of ten million rows and nine columns in less than 500 MB, `predict` at 200,000 rows a second and
more in memory that does not grow with the rows, `fit` within what `--memory` says or refused before it starts, and
`selfcal --help` in less than half a second. A machine that does other things too stretches the seconds; the processor
seconds tell how much.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks._timing import parser, write_json, write_section

COLUMNS, PART = 8, 1_000_000
# a process of its own, since a child starts with the peak of whoever started it
_MEASURE = """
import json, os, resource, subprocess, sys, time
started = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
seconds = time.perf_counter() - started
print(json.dumps({"seconds": seconds, "processor": used.ru_utime + used.ru_stime, "MB": used.ru_maxrss / 1024,
                  "code": done.returncode, "said": done.stderr}))
"""


def write_data(path: Path, rows: int) -> None:
    """Eight numbers and a class that three of them tell, not quite."""
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        for start in range(0, rows, PART):
            x = rng.normal(size=(min(PART, rows - start), COLUMNS)).round(4)
            y = np.where(x[:, :3].sum(axis=1) + rng.normal(size=len(x)) > 0, "yes", "no")
            table = pl.DataFrame({**{f"x{i}": x[:, i] for i in range(COLUMNS)}, "y": y})
            file.write(table.write_csv(include_header=start == 0).encode())


def write_predictions(path: Path, rows: int) -> None:
    """A class and the probabilities of eight, which are true."""
    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        for start in range(0, rows, PART):
            parts = rng.exponential(size=(min(PART, rows - start), COLUMNS)) ** 2
            probs = (parts / parts.sum(axis=1, keepdims=True)).round(6)
            y = (rng.random((len(probs), 1)) > probs.cumsum(axis=1)[:, :-1]).sum(axis=1)
            table = pl.DataFrame({"y": y, **{f"prob_{i}": probs[:, i] for i in range(COLUMNS)}})
            file.write(table.write_csv(include_header=start == 0).encode())


def measured(*args: object, repeats: int = 1, code: int = 0) -> dict[str, object]:
    """What the fastest of several runs of a command took."""
    command = [sys.executable, "-c", _MEASURE, sys.executable, "-m", "selfcal", *map(str, args)]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    runs = []
    for _ in range(repeats):
        printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment).stdout
        runs.append(json.loads(printed))
        if runs[-1]["code"] != code:
            raise RuntimeError(runs[-1]["said"])
    return {"case": args[0], **min(runs, key=lambda run: run["seconds"])}


def measure(folder: Path, rows: int, repeats: int, *, fit: bool) -> list[dict[str, object]]:
    """Every case, with so many rows."""
    data, small, predictions = folder / "data.csv", folder / "small.csv", folder / "predictions.csv"
    write_data(data, rows)
    write_data(small, max(100, rows // 500))
    target, quick = ("--target", "y"), ("--method", "temperature", "--max-epochs", 1)
    cases = [measured("--help", repeats=5 * repeats)]
    measured("fit", small, *target, "--out", folder / "model", "--method", "temperature", "--max-epochs", 10)
    answers = folder / "answers.csv"
    for table in (small, data):
        case = measured("predict", folder / "model", table, "--out", answers, "--force", repeats=repeats)
        cases.append(case | {"case": f"predict, {rows if table == data else max(100, rows // 500):,} rows"})
    answers.unlink()
    write_predictions(predictions, rows)
    case = measured("evaluate", predictions, *target, repeats=repeats)
    cases.append(case | {"case": f"evaluate, {rows:,} rows"})
    predictions.unlink()
    case = measured("fit", data, *target, "--memory", f"{rows / 1e7}GB", code=3)
    cases.append(case | {"case": f"fit, {rows:,} rows, too little `--memory`"})
    if fit:
        case = measured("fit", data, *target, "--out", folder / "whole", *quick)
        cases.append(case | {"case": f"fit, {rows:,} rows, one pass"})
    return cases


def markdown(cases: list[dict[str, object]], rows: int) -> str:
    """The cases as a table."""
    lines = [
        "| command | s | processor s | rows a second | rows a processor second | peak MB |",
        "|---|---|---|---|---|---|",
    ]
    for case in cases:
        times = [float(str(case[name])) for name in ("seconds", "processor")]
        long = f" {rows:,} rows" in str(case["case"]) and case["code"] == 0
        cells = [f"{s:.2f}" for s in times] + [f"{rows / s:,.0f}" if long else "" for s in times]
        lines.append(f"| {case['case']} | {' | '.join(cells)} | {case['MB']:.0f} |")
    refused = next(str(case["said"]) for case in cases if case["code"] == 3).strip()
    return "\n".join([*lines, "", "The error, before any work starts:", "", "```text", refused, "```"])


def main() -> None:
    options = parser(__doc__, repeats=2)
    options.add_argument("--rows", type=int, default=10_000_000, help="rows of the long table")
    options.add_argument(
        "--folder", type=Path, help="where to put the tables, two gigabytes; temporary by default"
    )
    options.add_argument("--without-fit", action="store_true", help="leave the longest case out")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        cases = measure(Path(folder), chosen.rows, chosen.repeats, fit=not chosen.without_fit)
    busy = f"On {os.cpu_count()} cores; {os.getloadavg()[2]:.1f} processes were runnable, over a quarter of an hour."
    text = f"{busy}\n\n{markdown(cases, chosen.rows)}".replace(f"{folder}/", "")
    print(text)
    write_json(chosen.json, cases)
    write_section(chosen.results, "Long tables", text)


if __name__ == "__main__":
    main()
