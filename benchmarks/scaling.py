"""What several workers cost besides the work: a call, a trial of a shared search, a step of one network.

    python -m benchmarks.scaling --json runs/scaling.json --results benchmarks/RESULTS.md

Calls do nothing, trials give their own number, and the network is tiny: all of the time is overhead. Each is measured
at several sizes, and extrapolated to 10,000 trials and 64 processes by the slope between the largest ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks._timing import parser, write_json, write_section
from selfcal import optimizers, recipes, train
from selfcal._support.jobs import end_idle_workers, run_calls
from selfcal.workflows.comparison import Candidate
from selfcal.workflows.shared_search import SharedSearch

TITLE = "What several workers cost"
CALLS, MEGABYTES = 200, 10
WORKERS = (1, 2, 4)
TRIALS, MANY_TRIALS = (100, 300, 1000), 10_000
PROCESSES, MANY_PROCESSES = (1, 2, 4, 8), 64
STEPS = 200

Row = dict[str, Any]


def nothing(number: int, data: np.ndarray) -> int:
    return number


def call(workers: int) -> Row:
    """The seconds of each of many calls that get the same array; the first ones, apart, start workers."""
    end_idle_workers()
    data = np.zeros(MEGABYTES * 2**17)

    def seconds() -> float:
        started = time.perf_counter()
        for _ in run_calls(nothing, ((number, data) for number in range(CALLS)), n_jobs=workers):
            pass
        return time.perf_counter() - started

    first = seconds()
    return {"case": "call", "size": workers, "seconds": seconds() / CALLS, "first": first}


@dataclass
class Numbered:
    """A task whose log loss is the number in the name of the settings."""

    def identity(self) -> Mapping[str, Any]:
        return {"data": "none"}

    def run(self, candidate: Candidate, seed: int) -> Row:
        return {"name": candidate.name, "seed": seed, "failed": None, "log_loss": float(candidate.name)}


def trial(trials: int) -> Row:
    """The seconds of each trial of a search on a journal file, by one worker."""
    candidates = [Candidate(str(number), "standard") for number in range(trials)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "study.journal"
        search: Any = SharedSearch(Numbered(), candidates, {"hidden": (1, 2)}, 1, str(place))  # type: ignore[arg-type]
        started = time.perf_counter()
        found = search.run(jobs=1, progress=False)
        seconds = time.perf_counter() - started
        assert len(found) == trials
        return {"case": "trial", "size": trials, "seconds": seconds / trials, "bytes": place.stat().st_size}


def step(processes: int) -> Row:
    """The seconds of a step of a tiny network with an outer level, in several processes of torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    ran = subprocess.run(
        [*command, __file__, "--steps"],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
        check=True,
        capture_output=True,
        text=True,
    )
    return {"case": "step", "size": processes, "seconds": float(ran.stdout.split()[-1])}


def take_steps() -> None:
    """In each process: print what a step took, without the start."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(600, 20, generator=generator), torch.randint(0, 3, (600,), generator=generator)
    seconds = []
    for steps in (STEPS // 4, STEPS // 4, STEPS):  # the first loads what torch loads late
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
        started = time.perf_counter()
        train(
            module,
            (x[:400], y[:400]),
            (x[400:], y[400:]),
            recipe=recipes.bo4sc(),
            optimizer=optimizers.Adam(lr=0.01),
            batch_size=100,
            max_steps=steps,
        )
        seconds.append(time.perf_counter() - started)
    if os.environ.get("RANK", "0") == "0":
        print((seconds[2] - seconds[1]) / (STEPS - STEPS // 4))


def slope(rows: Sequence[Row]) -> float:
    """By which power of the size the seconds grow between the two largest sizes."""
    (small, few), (large, many) = ((row["size"], row["seconds"]) for row in rows[-2:])
    return float(np.log(many / few) / np.log(large / small))


def extrapolated(rows: Sequence[Row], size: float) -> float:
    """The seconds at a larger size, by that slope, if it is positive."""
    last = rows[-1]
    return float(last["seconds"] * (size / last["size"]) ** max(0.0, slope(rows)))


def markdown(rows: Sequence[Row]) -> str:
    """A table of what was measured, and the extrapolations."""
    of = {case: [row for row in rows if row["case"] == case] for case in ("call", "trial", "step")}
    lines = ["| what | size | milliseconds each |", "|---|---|---|"]
    for case, unit in (("call", "workers"), ("trial", "trials"), ("step", "processes")):
        lines += [f"| {case} | {row['size']:,} {unit} | {1000 * row['seconds']:.2f} |" for row in of[case]]
    started = max((row["first"] - row["seconds"] * CALLS for row in of["call"]), default=0.0)
    at_trials, at_processes = extrapolated(of["trial"], MANY_TRIALS), extrapolated(of["step"], MANY_PROCESSES)
    last = of["trial"][-1]
    return "\n".join(
        [
            *lines,
            "",
            f"- Starting workers takes {started:.1f} s once, with the first call that gets {MEGABYTES} MB.",
            f"- A trial takes longer the more there are: slope {slope(of['trial']):.2f}, and by that "
            f"{1000 * at_trials:.0f} ms each at {MANY_TRIALS:,} trials, "
            f"{at_trials * MANY_TRIALS / (1 + max(0.0, slope(of['trial']))) / 60:.0f} minutes together. "
            f"The journal takes {last['bytes'] / last['size'] / 1000:.1f} kB a trial.",
            f"- A step takes longer the more processes share {os.cpu_count()} cores: slope "
            f"{slope(of['step']):.2f}, and by that {1000 * at_processes:.0f} ms at {MANY_PROCESSES}; with a core "
            "each, less.",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser(__doc__, repeats=3)
    options.add_argument("--steps", action="store_true", help="take the steps; for the processes of torchrun")
    asked = options.parse_args(arguments)
    if asked.steps:
        take_steps()
        return
    rows: list[Row] = []
    for measure, sizes in ((call, WORKERS), (trial, TRIALS), (step, PROCESSES)):
        for size in sizes:
            repeated = [measure(size) for _ in range(asked.repeats)]
            rows.append(min(repeated, key=lambda row: row["seconds"]))
            print(json.dumps(rows[-1]), flush=True)
    print(text := markdown(rows))
    write_json(asked.json, rows)
    write_section(asked.results, TITLE, text)


if __name__ == "__main__":
    main()
