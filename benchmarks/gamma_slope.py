"""Which way the one-step hypergradient pushes γ in the course of a training with a fixed γ.

An outer level that stands still watches the training of the narrow profile of the meta-regularisation paper: every
few steps it takes the slope of an objective on one outer batch in γ, through the last training step, as an outer step
would. Beside the confidence minus the accuracy on held-out rows, in points, it is shown as its mean over the steps of
a phase divided by the standard deviation: below 0, outer steps raise γ, and near 0 they wander. Where the network is
over-confident (above 0), it should be negative.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks._timing import parser, write_json, write_section
from selfcal import Batch, Output, Recipe, datasets, losses, train
from selfcal.experiments import images, meta_regularization
from selfcal.experiments._images import _Data, optimizer_of, predictions
from selfcal.hypergradients import OneStep
from selfcal.objectives import MMCE, NLL, SECE
from selfcal.optimizers import SGD
from selfcal.outer import Gamma
from selfcal.training.engine import TrainingEvent
from selfcal.training.interfaces import Hypergradient, Objective, Problem, Trajectory
from selfcal.training.types import OuterParams

GAMMAS = (0.0, 0.5, 1.0, 2.0)
OBJECTIVES: dict[str, Objective] = {"MMCE": MMCE(), "SECE": SECE(bandwidth=0.1), "NLL": NLL()}
PHASES = ("step size 0.1", "0.01", "0.001")
EVERY = 4


@dataclass(frozen=True)
class InTurn(Objective):
    """Another of the objectives at each call."""

    objectives: tuple[Objective, ...]
    calls: list[int] = field(default_factory=lambda: [0])

    def __call__(self, output: Output, batch: Batch) -> torch.Tensor:
        """The value of the one whose turn it is."""
        self.calls[0] += 1
        return self.objectives[(self.calls[0] - 1) % len(self.objectives)](output, batch)


@dataclass(frozen=True)
class Noted(Hypergradient):
    """`OneStep` that keeps the slope in γ and the number of the step."""

    slopes: list[tuple[int, float]] = field(default_factory=list)
    horizon = 1

    def __call__(
        self, problem: Problem, trajectory: Trajectory, outer: OuterParams, batch: Batch
    ) -> tuple[torch.Tensor, OuterParams]:
        """What `OneStep` returns."""
        value, slope = OneStep()(problem, trajectory, outer, batch)
        self.slopes.append((trajectory.steps[-1].count, float(slope["gamma"])))
        return value, slope


def watched(gamma: float, data_dir: Path, *, seed: int, profile: str = "narrow") -> list[dict[str, Any]]:
    """One training with that γ: the mean gap, and the signal of each objective, in each phase."""
    size = replace(images.profile_of("meta-regularization", profile), runs=())
    experiment = meta_regularization.experiment(size, data_dir)
    data = _Data.of(size, datasets.load_images(size.dataset, data_dir), seed)
    noted, n_steps = Noted(), len(data.train) * size.epochs
    optimizer, falls = optimizer_of(size, len(data.train))
    gaps: list[tuple[int, float]] = []

    def watch(event: TrainingEvent) -> None:
        y, probs = predictions(event.step.problem.module, data.selection)
        gaps.append(
            (event.n_steps, 100 * float(probs.max(axis=1).mean() - (probs.argmax(axis=1) == y).mean()))
        )

    train(
        experiment._module(next(iter(size.networks)), data, seed),
        data.train,
        data.outer,
        recipe=Recipe(
            name="watched",
            loss=losses.focal,
            outer_model=Gamma(start=gamma),
            objective=InTurn(tuple(OBJECTIVES.values())),
            hypergradient=noted,
            outer_optimizer=SGD(lr=1e-30),  # γ stays as it is
            inner_steps=EVERY,
        ),
        optimizer=optimizer,
        max_steps=n_steps,
        evaluate_every=max(1, n_steps // 28),
        callback=watch,
        seed=seed,
        progress=False,
    )
    rows = []
    for phase, (start, end) in zip(PHASES, zip((0, *falls), (*falls, n_steps), strict=True), strict=True):
        row: dict[str, Any] = {"gamma": gamma, "seed": seed, "phase": phase}
        row["gap"] = float(np.mean([gap for at, gap in gaps if start < at <= end]))
        for turn, name in enumerate(OBJECTIVES):
            own = np.array(
                [slope for at, slope in noted.slopes[turn :: len(OBJECTIVES)] if start < at <= end]
            )
            row[name] = float(own.mean() / own.std(ddof=1))
        rows.append(row)
    return rows


def table_of(rows: list[dict[str, Any]]) -> str:
    """A row for each γ, the phases side by side."""
    columns = [(phase, name) for phase in PHASES for name in ("gap", *OBJECTIVES)]
    heads = [f"{phase}: gap" if name == "gap" else name for phase, name in columns]
    lines = ["| γ | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    for gamma in dict.fromkeys(row["gamma"] for row in rows):
        by_phase = {row["phase"]: row for row in rows if row["gamma"] == gamma}
        cells = [f"{by_phase[phase][name]:+.{1 if name == 'gap' else 2}f}" for phase, name in columns]
        lines.append(f"| {gamma:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    arguments = parser(__doc__, repeats=1)
    arguments.add_argument("--data-dir", type=Path, required=True, help="folder with the image files")
    arguments.add_argument("--seed", type=int, default=100)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for gamma in GAMMAS:
        rows += watched(gamma, options.data_dir, seed=options.seed)
        print(table_of(rows), flush=True)
    write_json(options.json, rows)
    write_section(options.results, "The slope in gamma", table_of(rows))


if __name__ == "__main__":
    main()
