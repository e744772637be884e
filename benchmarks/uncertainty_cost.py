"""What uncertainty scores cost: seconds beside those of the network's own prediction, and memory with many rows.

    python -m benchmarks.uncertainty_cost --json runs/uncertainty_cost.json --results benchmarks/RESULTS.md

Every score of `selfcal.uncertainty`, with its default settings, is fitted on 100,000 training rows. The network is
the default perceptron for tables. Probabilities, logits and predicted classes are there when a score is timed.
"""

from __future__ import annotations

import argparse
import inspect
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks._memory import peak_megabytes
from benchmarks._timing import best_seconds, parser, write_json, write_section
from selfcal import SelfCalibratedClassifier, uncertainty
from selfcal._support.checks import Float, Int
from selfcal.uncertainty import FeatureScore, LogitScore, MemberScore, UncertaintyScore

TITLE = "Uncertainty scores: time and memory"
COLUMNS, TRAINING_ROWS, NEW_ROWS = 20, 100_000, 1_000_000
NETWORK_ROWS, EPOCHS, MEMBERS = 10_000, 20, 5
N_CLASSES = (3, 10, 26)
NETWORK = "the network's prediction"
LIMIT, WITHOUT_LIMIT = 3.0, ("Reconstruction",)
"""How many times the seconds of the network's prediction a score may take."""

MEMORY_LIMIT, MEMORY_NEW_ROWS = 1000.0, 10_000
MEMORY: dict[str, Callable[[], FeatureScore]] = {
    "KNearestNeighbors": uncertainty.KNearestNeighbors,
    "KNearestNeighbors, all training rows": partial(uncertainty.KNearestNeighbors, max_rows=None),
    "TrustScore": uncertainty.TrustScore,
    "TrustScore, all training rows": partial(uncertainty.TrustScore, max_rows=None),
}


def family() -> dict[str, type[UncertaintyScore]]:
    """Every score by name."""
    members = {name: getattr(uncertainty, name) for name in uncertainty.__all__}
    return {name: kind for name, kind in members.items() if not inspect.isabstract(kind)}


def rows(n: int, n_classes: int, seed: int) -> tuple[Float, Int]:
    """Rows and their classes, which a linear function of the columns tells."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, COLUMNS))
    directions = np.random.default_rng(n_classes).normal(size=(COLUMNS, n_classes))
    directions *= 4 / np.linalg.norm(directions, axis=0)  # no class is rare
    return X, (X @ directions + rng.gumbel(size=(n, n_classes))).argmax(axis=1)


@dataclass(frozen=True)
class World:
    """A network, the training rows of the scores, and new rows with what the network says of them."""

    network: SelfCalibratedClassifier
    X: Float
    y: Int
    new: Float
    logits: Float
    probs: Float
    predicted: Int

    @classmethod
    def of(cls, n_classes: int, scale: float) -> World:
        X, y = rows(int(scale * TRAINING_ROWS), n_classes, seed=0)
        new, _ = rows(int(scale * NEW_ROWS), n_classes, seed=1)
        network = SelfCalibratedClassifier("standard", max_epochs=EPOCHS, random_state=0, verbose=False)
        network.fit(X[:NETWORK_ROWS], y[:NETWORK_ROWS])
        probs = network.predict_proba(new)
        return cls(network, X, y, new, network.logits(new), probs, probs.argmax(axis=1))

    def scoring(self, kind: type[UncertaintyScore]) -> Callable[[], Float]:
        """The call that scores the new rows, by a score that is fitted."""
        score: Any = kind()
        if isinstance(score, FeatureScore):
            score.fit(self.X, self.y)
            return lambda: score.score(self.new, predicted=self.predicted)
        if isinstance(score, LogitScore):
            score.fit(self.network.logits(self.X), self.y)
            return lambda: score.score(self.logits)
        given = np.stack([self.probs] * MEMBERS) if isinstance(score, MemberScore) else self.probs
        return lambda: score.score(given)


def measure(n_classes: int, repeats: int, scale: float) -> Iterator[dict[str, Any]]:
    """Time the network and every score; ratios are to the network."""
    world = World.of(n_classes, scale)
    cases = {NETWORK: partial(world.network.predict_proba, world.new)}
    cases |= {name: world.scoring(kind) for name, kind in family().items()}
    seconds = best_seconds(cases, repeats, time.process_time)
    for name, took in seconds.items():
        ratio = took / seconds[NETWORK]
        met = None if name in (NETWORK, *WITHOUT_LIMIT) else ratio <= LIMIT
        yield {"case": name, "classes": n_classes, "seconds": took, "ratio": ratio, "met": met}


def memory(scale: float) -> Iterator[dict[str, Any]]:
    """Peak memory of fitting and scoring, for the scores that keep training rows; each in its own process."""
    for name in MEMORY:
        call = [
            sys.executable,
            "-m",
            "benchmarks.uncertainty_cost",
            "--scale",
            str(scale),
            "--memory-of",
            name,
        ]
        done = subprocess.run(call, capture_output=True, text=True, check=True)
        peak = float(done.stdout)
        yield {"case": name, "peak_mb": peak, "met": peak <= MEMORY_LIMIT}


def own_peak(name: str, scale: float) -> float:
    """Peak memory above the rows themselves."""
    few, many = (rows(int(n), 3, seed=0) for n in (200, scale * TRAINING_ROWS))
    new, predicted = rows(int(scale * MEMORY_NEW_ROWS), 3, seed=1)

    def run(X: Float, y: Int) -> None:
        MEMORY[name]().fit(X, y).score(new, predicted=predicted)

    run(*few)  # loads the code it needs
    return peak_megabytes(partial(run, *many))


def markdown(timed: list[dict[str, Any]], peaks: list[dict[str, Any]]) -> str:
    """Ratios to the network's prediction, and the peaks of memory."""
    of = {(row["case"], row["classes"]): row for row in timed}
    numbers = sorted({row["classes"] for row in timed})

    def shown(case: str, n_classes: int) -> str:
        row = of[case, n_classes]
        return f"{row['seconds']:.2f} s" if case == NETWORK else f"{row['ratio']:.2f}x"

    cases = dict.fromkeys(row["case"] for row in timed)
    missed = [f"{row['case']} with {row['classes']} classes" for row in timed if row["met"] is False]
    missed += [row["case"] for row in peaks if not row["met"]]
    lines = [
        f"{NEW_ROWS:,} new rows of {COLUMNS} columns, {TRAINING_ROWS:,} training rows, one thread; the cases take",
        "turns, the least processor time counts. Ratios are to the network's prediction; for scores of several",
        f"answers, {MEMBERS} of them, to that of one network.",
        "",
        "| score | " + " | ".join(f"{n} classes" for n in numbers) + " |",
        "|---" * (1 + len(numbers)) + "|",
        *(f"| {case} | " + " | ".join(shown(case, n) for n in numbers) + " |" for case in cases),
        "",
        f"Peak memory above the rows, fitted on {TRAINING_ROWS:,} of them and scoring {MEMORY_NEW_ROWS:,}:",
        "",
        "| score | MB |",
        "|---|---|",
        *(f"| {row['case']} | {row['peak_mb']:.0f} |" for row in peaks),
        "",
        f"Wanted: at most {LIMIT:g}x for all but {' and '.join(WITHOUT_LIMIT)}, and {MEMORY_LIMIT:,.0f} MB; "
        + (f"missed by {', '.join(missed)}." if missed else "met."),
    ]
    return "\n".join(lines)


def main() -> None:
    arguments = parser(__doc__, repeats=3)
    arguments.add_argument("--scale", type=float, default=1.0, help="fraction of the rows to use")
    arguments.add_argument("--memory-of", choices=MEMORY, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        if options.memory_of:
            print(own_peak(options.memory_of, options.scale))
            return
        timed = [row for n in N_CLASSES for row in measure(n, options.repeats, options.scale)]
        peaks = list(memory(options.scale))
    print(text := markdown(timed, peaks))
    write_json(options.json, [*timed, *peaks])
    write_section(options.results, TITLE, text)


if __name__ == "__main__":
    main()
