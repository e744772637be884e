"""Evaluating predictions in many Parquet files: rows per second, memory of each process, and a kill in the middle.

    python -m benchmarks.parts --rows 1e6 1e7 1e8 --csv 2e7 --results benchmarks/RESULTS.md

Each size is written as 50 files of ten float32 probabilities and a label, into a folder that is removed afterwards
(4 GB for 1e8 rows), and evaluated by `selfcal evaluate` four times: by one process, by two, by two that are killed
after half of the files, and resumed. The time of 1e9 rows is extrapolated from all sizes as Parquet. The speed of one
process is compared with that of polars reading the same columns with one thread; both take turns, by the clock and in
processor time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl

from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal.workflows.parts import evaluate_parts

TITLE = "Predictions in many files"
FILES, CLASSES, JOBS = 50, 10, 2
PARQUET, CSV = ".parquet", ".csv"
BILLION = 1e9
LEAST_SPEED, LEAST_SPEED_UP, MOST_MEGABYTES = 0.6, 1.7, 500.0
BLOCK = 500_000
"""Rows that are drawn at a time."""

Row = dict[str, Any]


def make_parts(folder: Path, rows: int, suffix: str, *, seed: int = 0) -> list[Path]:
    """Write calibrated predictions as files of equal length."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"part-{number:03}{suffix}" for number in range(FILES)]
    bounds = np.linspace(0, rows, FILES + 1).astype(int)
    for number, path in enumerate(paths):
        rng = np.random.default_rng([seed, number])
        wanted = int(bounds[number + 1] - bounds[number])
        drawn = [_draw(rng, min(BLOCK, wanted - start)) for start in range(0, wanted, BLOCK)]
        table = pl.concat(drawn)
        (table.write_parquet if suffix == PARQUET else table.write_csv)(path)
    return paths


def _draw(rng: np.random.Generator, n: int) -> pl.DataFrame:
    scores = np.exp(2 * rng.standard_normal((CLASSES, n), dtype=np.float32))
    probs = scores / scores.sum(axis=0)
    label = (probs.cumsum(axis=0) < rng.random(n, dtype=np.float32)).sum(axis=0).clip(0, CLASSES - 1)
    return pl.DataFrame(
        {"y": label.astype(np.int16), **{f"prob_{code}": column for code, column in enumerate(probs)}}
    )


def speed(paths: Sequence[Path], repeats: int) -> Row:
    """Evaluating files in one process beside merely reading them, in rows per second."""
    columns = ["y", *(f"prob_{code}" for code in range(CLASSES))]

    def read() -> None:
        for path in paths:
            pl.read_parquet(path, columns=columns)

    cases = {"read": read, "evaluate": lambda: evaluate_parts([str(path) for path in paths], "y")}
    rows = pl.scan_parquet(paths).select(pl.len()).collect().item()
    found: Row = {"case": "speed", "rows": rows}
    for name, clock in (("by the clock", time.perf_counter), ("in processor time", time.process_time)):
        best = best_seconds(cases, repeats, clock=clock)
        found[name] = {case: rows / seconds for case, seconds in best.items()}
    return found


def whole_runs(folder: Path, rows: int, suffix: str) -> Row:
    """Evaluate all files four times: by one process, by several, killed after half of them, and resumed."""
    alone, seconds_alone, _ = _run(folder, folder / "sums-1", jobs=1)
    undisturbed, seconds, megabytes = _run(folder, folder / "sums-2")
    sums = folder / "sums-3"
    started = time.perf_counter()
    with _started(folder, sums) as process:
        while len(_finished(sums)) < FILES // 2 and process.poll() is None:
            time.sleep(0.01)
    killed_after, kept = time.perf_counter() - started, len(_finished(sums))
    resumed, resumed_seconds, _ = _run(folder, sums)
    reused = resumed.pop("files")["reused"]
    for found in (alone, undisturbed):
        found.pop("files")
    return {
        "case": "whole",
        "files": suffix,
        "rows": rows,
        "seconds_of_one": seconds_alone,
        "seconds": seconds,
        "rows_per_second": rows / seconds,
        "megabytes_per_process": megabytes,
        "killed_after_seconds": killed_after,
        "files_kept": kept,
        "files_reused": reused,
        "resumed_seconds": resumed_seconds,
        "same_numbers": resumed == undisturbed == alone,
        "accuracy": undisturbed["methods"][0]["accuracy"],
        "ece": undisturbed["methods"][0]["ece"],
    }


def _run(folder: Path, sums: Path, jobs: int = JOBS) -> tuple[Row, float, float]:
    """The result of the command, its seconds, and the peak memory of the largest process in megabytes."""
    started, peak = time.perf_counter(), 0.0
    with tempfile.TemporaryFile("w+") as output, _started(folder, sums, output, jobs) as process:
        while process.poll() is None:
            peak = max([peak, *(_peak(pid) for pid in _family(process.pid))])
            time.sleep(0.05)
        seconds = time.perf_counter() - started
        if process.returncode:
            raise RuntimeError(f"the command ended with exit code {process.returncode}")
        output.seek(0)
        return json.load(output), seconds, peak


@contextmanager
def _started(
    folder: Path, sums: Path, output: Any = subprocess.DEVNULL, jobs: int = JOBS
) -> Iterator[subprocess.Popen[bytes]]:
    """A context with the command, which is killed at its end, with its workers, if it still runs."""
    words = ["evaluate", str(folder / "part-*.*"), "--target", "y", "--jobs", str(jobs)]
    process = subprocess.Popen(
        [sys.executable, "-m", "selfcal", *words, "--sums", str(sums), "--json"],
        stdout=output,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _finished(sums: Path) -> list[Path]:
    return list(sums.glob("part-*.json"))


def _family(pid: int) -> list[int]:
    """A process and all that it has started."""
    found = [pid]
    for parent in found:
        with suppress(OSError):
            found += map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())
    return found


def _peak(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    return 0.0


def extrapolated(rows: Sequence[Row]) -> tuple[float, float]:
    """The seconds for 1e9 rows, and the slope of log seconds over log rows between the two largest sizes.

    The seconds are a start-up plus a time for each row, weighted such that all sizes count equally.
    """
    n = np.array([row["rows"] for row in rows], dtype=float)
    seconds = np.array([row["seconds"] for row in rows])
    if len(n) == 1:
        return float(seconds[0] * BILLION / n[0]), float("nan")
    fit = np.linalg.lstsq(np.column_stack([1 / seconds, n / seconds]), np.ones(len(n)), rcond=None)[0]
    order = np.argsort(n)[-2:]
    slope = np.diff(np.log(seconds[order])) / np.diff(np.log(n[order]))
    return float(fit[0] + fit[1] * BILLION), float(slope[0])


def markdown(rows: Sequence[Row]) -> str:
    """A table of all sizes, and whether the targets are met."""
    whole = [row for row in rows if row["case"] == "whole"]
    lines = [
        f"`selfcal evaluate --jobs {JOBS}` on {FILES} files of {CLASSES} float32 columns and a label.",
        "",
        "| files | rows | one | two | ratio | rows/s | MB per process | killed after | files kept | resumed "
        "| same numbers |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {row['files']} | {row['rows']:.0e} | {row['seconds_of_one']:.1f} s | {row['seconds']:.1f} s | "
            f"{row['seconds_of_one'] / row['seconds']:.2f}x | {row['rows_per_second']:,.0f} | "
            f"{row['megabytes_per_process']:.0f} | {row['killed_after_seconds']:.1f} s | {row['files_reused']} | "
            f"{row['resumed_seconds']:.1f} s | {'yes' if row['same_numbers'] else '**no**'} |"
            for row in whole
        ),
        "",
    ]
    for row in (row for row in rows if row["case"] == "speed"):
        for how in ("by the clock", "in processor time"):
            ratio = row[how]["evaluate"] / row[how]["read"]
            lines.append(
                f"- One process evaluates {row[how]['evaluate']:,.0f} rows per second {how}, {ratio:.2f} of the "
                f"{row[how]['read']:,.0f} that polars merely reads; {LEAST_SPEED} wanted; "
                f"{_verdict(ratio >= LEAST_SPEED)}."
            )
    for row in {row["files"]: row for row in whole}.values():
        speed_up = row["seconds_of_one"] / row["seconds"]
        lines.append(
            f"- {JOBS} processes are {speed_up:.2f} times as fast as one on {row['rows']:.0e} rows in {row['files']} "
            f"files, {LEAST_SPEED_UP} wanted; {_verdict(speed_up >= LEAST_SPEED_UP)}."
        )
    if whole:
        most = max(row["megabytes_per_process"] for row in whole)
        lines.append(
            f"- Peak memory of a process: {most:.0f} MB, less than {MOST_MEGABYTES:.0f} MB wanted; "
            f"{_verdict(most < MOST_MEGABYTES)}."
        )
    if parquet := [row for row in whole if row["files"] == PARQUET]:
        seconds, slope = extrapolated(parquet)
        lines.append(
            f"- Extrapolated to 1e9 rows of Parquet: {seconds / 60:.1f} minutes; slope {slope:.2f} between the "
            "largest sizes."
        )
    return "\n".join(lines)


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__, repeats=5)
    options.add_argument(
        "--rows", type=float, nargs="+", default=[1e6, 1e7], help="numbers of rows, as Parquet"
    )
    options.add_argument("--csv", type=float, nargs="*", default=[], help="numbers of rows, as CSV")
    options.add_argument("--folder", type=Path, help="where the files are written for a while")
    asked = options.parse_args(arguments)
    sizes = [(int(size), PARQUET) for size in asked.rows] + [(int(size), CSV) for size in asked.csv]
    rows: list[Row] = []
    for size, suffix in sizes:
        with tempfile.TemporaryDirectory(dir=asked.folder) as name:
            paths = make_parts(Path(name), size, suffix)
            rows.append(whole_runs(Path(name), size, suffix))
            if (size, suffix) == (int(asked.rows[-1]), PARQUET):
                rows.append(speed(paths, asked.repeats))
        print(json.dumps(rows[-1]), flush=True)
    print(text := markdown(rows))
    write_json(asked.json, rows)
    write_section(asked.results, TITLE, text)


if __name__ == "__main__":
    main()
