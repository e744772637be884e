"""How fast metrics and the temperature fit are: beside bare NumPy, and beside the peers that are installed.

All cases of a task work on the same arrays, in one process, on one thread, and take turns; the best of several
counts. Peak memory is above the input, each case in a process of its own. A bar is what we promise to keep.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from threadpoolctl import threadpool_limits

from benchmarks import _metric_cases as cases
from benchmarks._memory import peak_megabytes
from benchmarks._metric_cases import OURS, Case, Data
from benchmarks._timing import best_seconds, parser, write_json, write_section


@dataclass(frozen=True)
class Bar:
    """Ours must need at most `limit`: times another case, seconds, or megabytes."""

    limit: float
    of: str = ""
    unit: Literal["x", "s", "MB"] = "x"

    def __str__(self) -> str:
        return f"at most {self.limit:g}{self.unit}" + (f" of {self.of}" if self.of else "")

    def measured(self, seconds: dict[str, float], peaks: dict[str, float]) -> float | None:
        """What is compared with the limit, or None where the other case was left out."""
        if self.unit == "MB":
            return peaks[OURS]
        if self.unit == "s":
            return seconds[OURS]
        return seconds[OURS] / seconds[self.of] if self.of in seconds else None


@dataclass(frozen=True)
class Task:
    """What is timed, on how many rows and columns, and what we promise."""

    data: Callable[[int, int], Data]
    cases: dict[str, Callable[[Data], Case]]
    bars: tuple[Bar, ...]
    rows: int
    columns: int = 10

    def at(self, scale: float) -> Data:
        return self.data(max(200, int(scale * self.rows)), self.columns)

    @property
    def with_memory(self) -> bool:
        return any(bar.unit == "MB" for bar in self.bars)


TASKS: dict[str, Task] = {
    "top-label ECE, 1e7 x 10 float32": Task(
        cases.predictions,
        cases.TOP_LABEL,
        (Bar(0.5, "bare numpy"), Bar(50, unit="MB")),
        rows=10_000_000,
    ),
    "classwise ECE, 1e6 x 10 float32": Task(
        cases.predictions, cases.CLASSWISE, (Bar(1.0, "numpy loop over classes"),), rows=1_000_000
    ),
    "temperature fit, 1e5 x 100": Task(
        cases.logits,
        cases.TEMPERATURE,
        (Bar(0.5, "scipy.minimize_scalar"), Bar(0.25, "scikit-learn")),
        rows=100_000,
        columns=100,
    ),
    "smECE, 1e6": Task(cases.confidences, cases.SMOOTH, (Bar(0.5, "relplot"),), rows=1_000_000, columns=2),
    "SECE, 1e6": Task(cases.confidences, cases.SECE, (Bar(3, unit="s"),), rows=1_000_000, columns=2),
    "MMCE, 1e6": Task(cases.confidences, cases.MMCE, (Bar(3, unit="s"),), rows=1_000_000, columns=2),
    "accumulator, 1e6 x 10 float32": Task(
        cases.predictions, cases.STREAMING, (Bar(1.2, "one batch call"),), rows=1_000_000
    ),
}


def measure(
    titles: list[str], repeats: int, scale: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Time every case of the tasks; return the rows of the cases and those of the bars."""
    rows: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = []
    for title in titles:
        task = TASKS[title]
        names = [name for name in task.cases if cases.is_installed(name)]
        data = task.at(scale)
        seconds = best_seconds({name: task.cases[name](data) for name in names}, repeats)
        del data
        peaks = {name: peak_in_own_process(title, name, scale) for name in names} if task.with_memory else {}
        reference = next(name for name in names if name != OURS) if len(names) > 1 else OURS
        for name in names:
            ratio = seconds[name] / seconds[reference]
            rows.append(
                {
                    "task": title,
                    "case": name,
                    "seconds": seconds[name],
                    "ratio": ratio,
                    "reference": reference,
                    "peak_mb": peaks.get(name),
                }
            )
            print(f"{title:<34} {name:<26} {seconds[name]:>9.4f} s {ratio:>7.2f}x", flush=True)
        for bar in task.bars:
            value = bar.measured(seconds, peaks)
            verdict = "not measured" if value is None else "met" if value <= bar.limit else "missed"
            kept.append(
                {"task": title, "bar": str(bar), "measured": value, "unit": bar.unit, "verdict": verdict}
            )
            print(f"{title:<34} {bar}: {shown(value, bar.unit)}, {verdict}", flush=True)
    return rows, kept


def peak_in_own_process(title: str, case: str, scale: float) -> float:
    """Peak memory of one call above its input, in a process of its own."""
    call = [sys.executable, "-m", "benchmarks.metrics", "--scale", str(scale), "--memory-of", title, case]
    return float(subprocess.run(call, capture_output=True, text=True, check=True).stdout)


def own_peak(title: str, case: str, scale: float) -> float:
    build = TASKS[title].cases[case]
    build(TASKS[title].at(0))()  # loads the code it needs
    return peak_megabytes(build(TASKS[title].at(scale)))


def shown(value: float | None, unit: str) -> str:
    return (
        "-"
        if value is None
        else f"{value:.0f} MB"
        if unit == "MB"
        else f"{value:.2f} {unit}".replace(" x", "x")
    )


def markdown(rows: list[dict[str, Any]], bars: list[dict[str, Any]]) -> str:
    lines = [
        "One thread; the cases of a task take turns on the same arrays, the best time counts; ratios are to the case",
        "with 1.00x. Peak memory is above the input, each case in its own process.",
        "",
        "| task | bar for selfcal | measured | |",
        "|---|---|---|---|",
        *(f"| {b['task']} | {b['bar']} | {shown(b['measured'], b['unit'])} | {b['verdict']} |" for b in bars),
        "",
        "| task | case | seconds | ratio | peak MB |",
        "|---|---|---|---|---|",
    ]
    for r in rows:
        peak = "" if r["peak_mb"] is None else f"{r['peak_mb']:.0f}"
        lines.append(f"| {r['task']} | {r['case']} | {r['seconds']:.4f} | {r['ratio']:.2f}x | {peak} |")
    if cases.missing():
        lines += ["", f"Not installed, and so left out: {', '.join(cases.missing())}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    arguments = parser(__doc__, repeats=3)
    arguments.add_argument("--only", nargs="+", default=[""], help="words in the titles of the tasks to run")
    arguments.add_argument("--scale", type=float, default=1.0, help="fraction of the rows to use")
    arguments.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if options.memory_of:
            print(own_peak(*options.memory_of, options.scale))
            return
        titles = [title for title in TASKS if any(word in title for word in options.only)]
        rows, bars = measure(titles, options.repeats, options.scale)
    write_json(options.json, [*rows, *bars])
    write_section(options.results, "Metrics", markdown(rows, bars))


if __name__ == "__main__":
    main()
