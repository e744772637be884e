"""What self-calibrated training costs: time and memory of every hypergradient beside plain training.

One unit is an outer iteration of the BO4SC problem: T inner steps of Adam on 700 rows and, but for plain training,
one hypergradient on 300 rows and one outer step. Times are interleaved in one process, one thread, best of several;
peak memory is measured in a process of its own for each case, above what stood before the first step.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torchopt
from torch.nn import functional as F

from benchmarks._memory import peak_megabytes
from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal import BilevelStep, hypergradients, optimizers, recipes
from selfcal.models import mlp
from selfcal.objectives import ConfidenceBCE
from selfcal.training.types import Batch, Output

ROWS, OUTER_ROWS, FEATURES, CLASSES = 700, 300, 2, 5
WIDTHS, STEPS = (64, 256, 1024), (10, 20, 100)
Case = Callable[[], object]


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, x_outer = (torch.randn(n, FEATURES, generator=generator) for n in (ROWS, OUTER_ROWS))
    y, y_outer = (torch.randint(CLASSES, (n,), generator=generator) for n in (ROWS, OUTER_ROWS))
    return x, y, x_outer, y_outer


def network(width: int) -> torch.nn.Module:
    torch.manual_seed(0)
    return mlp(FEATURES, CLASSES, hidden=(width, width))


def plain_adam(width: int, steps: int) -> Case:
    x, y, *_ = data()
    module = network(width)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.001)

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimizer.step()

    return run


def ours(recipe: recipes.Recipe) -> Callable[[int, int], Case]:
    def build(width: int, steps: int) -> Case:
        x, y, x_outer, y_outer = data()
        every = replace(recipe, inner_steps=steps)
        step = BilevelStep(network(width), optimizers.Adam(lr=0.001), every, n_train=ROWS)
        rows = Batch(x, y, torch.arange(ROWS))

        def run() -> None:
            for _ in range(steps):
                step(rows, (x_outer, y_outer))

        return run

    return build


def torchopt_meta_adam(width: int, steps: int) -> Case:
    x, y, x_outer, y_outer = data()
    module = network(width)
    optimizer = torchopt.MetaAdam(module, lr=0.001, eps_root=1e-8)  # NaN with ReLU otherwise
    weight = torch.full((ROWS,), 0.5, requires_grad=True)
    objective = ConfidenceBCE()

    def run() -> None:
        for _ in range(steps):
            loss = (weight * F.cross_entropy(module(x), y, reduction="none")).mean()
            optimizer.step(loss)
        value = objective(Output(module(x_outer)), Batch(x_outer, y_outer))
        (grad,) = torch.autograd.grad(value, weight)
        with torch.no_grad():
            weight.sub_(0.003 * grad / grad.abs().mean()).clamp_(0, 1)
        torchopt.stop_gradient(module)
        torchopt.stop_gradient(optimizer)

    return run


CASES: dict[str, Callable[[int, int], Case]] = {
    "plain torch.optim.Adam": plain_adam,
    "standard": ours(recipes.standard()),
    "OneStep": ours(recipes.bo4sc(hypergradient=hypergradients.OneStep())),
    "Unrolled": ours(recipes.bo4sc(hypergradient=hypergradients.Unrolled())),
    "Unrolled(recompute=True)": ours(recipes.bo4sc(hypergradient=hypergradients.Unrolled(recompute=True))),
    "ConjugateGradient": ours(recipes.bo4sc(hypergradient=hypergradients.ConjugateGradient())),
    "Neumann": ours(recipes.bo4sc(hypergradient=hypergradients.Neumann())),
    "torchopt MetaAdam": torchopt_meta_adam,
}
PLAIN, TORCHOPT = "plain torch.optim.Adam", "torchopt MetaAdam"


def peak_in_own_process(case: str, width: int, steps: int) -> float:
    """Peak memory of one outer iteration above what stood before it, in a process of its own."""
    call = [sys.executable, "-m", "benchmarks.hypergradient", "--memory-of", case, str(width), str(steps)]
    return float(subprocess.run(call, capture_output=True, text=True, check=True).stdout)


def own_peak(case: str, width: int, steps: int) -> float:
    CASES[case](8, 2)()  # loads the code it needs
    return peak_megabytes(CASES[case](width, steps))


def measure(widths: list[int], steps: list[int], repeats: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    print(f"{'width':>5} {'T':>4} {'case':<26} {'ms':>9} {'to plain':>9} {'to torchopt':>12} {'peak MB':>8}")
    for width in widths:
        for count in steps:
            times = best_seconds({name: build(width, count) for name, build in CASES.items()}, repeats)
            for name, seconds in times.items():
                row = {
                    "width": width,
                    "steps": count,
                    "case": name,
                    "seconds": seconds,
                    "to_plain": seconds / times[PLAIN],
                    "to_torchopt": seconds / times[TORCHOPT],
                    "peak_mb": peak_in_own_process(name, width, count),
                }
                rows.append(row)
                print(
                    f"{width:>5} {count:>4} {name:<26} {1000 * seconds:>9.1f} {row['to_plain']:>9.2f} "
                    f"{row['to_torchopt']:>12.2f} {row['peak_mb']:>8.0f}",
                    flush=True,
                )
    return rows


def growth(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line through the hypergradient's own cost (beyond `standard`) against T, for each width."""
    fits = []
    for width in sorted({row["width"] for row in rows}):
        at = {(r["case"], r["steps"]): r["seconds"] for r in rows if r["width"] == width}
        counts = sorted({count for _, count in at})
        for case in ("OneStep", "Unrolled"):
            extra = [at[case, count] - at["standard", count] for count in counts]
            step = at["standard", counts[0]] / counts[0]
            slope, start = np.polyfit(counts, extra, 1) if len(counts) > 1 else (float("nan"), extra[0])
            fits.append({"width": width, "case": case, "per_step": slope / step, "fixed": start / step})
    return fits


def markdown(rows: list[dict[str, Any]], fits: list[dict[str, Any]]) -> str:
    lines = [
        "An outer iteration is T Adam steps on 700 rows and one hypergradient on 300; times are the best of several,",
        "interleaved; peak memory is above what stood before the first step, each case in its own process.",
        "",
        "| width | T | case | ms | to plain Adam | to torchopt | peak MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['width']} | {r['steps']} | {r['case']} | {1000 * r['seconds']:.1f} | {r['to_plain']:.2f} | "
            f"{r['to_torchopt']:.2f} | {r['peak_mb']:.0f} |"
        )
    lines += [
        "",
        "Cost of the hypergradient alone, as a line over T, in units of one `standard` step:",
        "",
        "| width | case | for each inner step | fixed |",
        "|---|---|---|---|",
    ]
    lines += [f"| {f['width']} | {f['case']} | {f['per_step']:.3f} | {f['fixed']:.1f} |" for f in fits]
    return "\n".join(lines) + "\n"


def main() -> None:
    arguments = parser(__doc__, repeats=5)
    arguments.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    arguments.add_argument("--steps", type=int, nargs="+", default=list(STEPS))
    arguments.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        case, width, steps = options.memory_of
        print(own_peak(case, int(width), int(steps)))
        return
    rows = measure(options.widths, options.steps, options.repeats)
    fits = growth(rows)
    for f in fits:
        print(
            f"width {f['width']}, {f['case']}: {f['per_step']:.3f} steps per inner step + {f['fixed']:.1f} steps"
        )
    write_json(options.json, [*rows, *fits])
    write_section(options.results, "Hypergradients: time and memory", markdown(rows, fits))


if __name__ == "__main__":
    main()
