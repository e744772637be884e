"""Does the cheap hypergradient lose anything? BO4SC with `OneStep` against exact `Unrolled`, paired over seeds.

The same data, network, settings and early stopping; judged on 100,000 fresh rows of the five sets of the paper. A
positive difference means that `OneStep` is worse.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks._timing import write_json, write_section
from selfcal import datasets, hypergradients, metrics, recipes
from selfcal.experiments.bo4sc import fitted, paper_split
from selfcal.predictions import Predictions

STRATEGIES = {"OneStep": hypergradients.OneStep(), "Unrolled": hypergradients.Unrolled(recompute=True)}
SCORES = ("log_loss", "calibration_error")


def scores(name: str, seed: int, strategy: str, fresh: tuple[Any, Any, Any]) -> dict[str, float]:
    recipe = recipes.bo4sc(hypergradient=STRATEGIES[strategy])
    clf = fitted(recipe, paper_split(name, seed), seed, max_epochs=1000, patience=20)
    X, y, posterior = fresh
    judged = Predictions.of(clf, X, y)
    right = posterior[np.arange(len(y)), judged.chosen]
    return {
        "log_loss": judged.scores()["log_loss"],
        "calibration_error": metrics.confidence_calibration_error(right, judged.confidence),
    }


def measure(seeds: int, rows: int) -> list[dict[str, Any]]:
    table = []
    for name, source in datasets.paper_datasets().items():
        X, y = source.sample(rows, seed=1_000_003)
        fresh = X, y, source.posterior(X)
        found = {s: [scores(name, seed, s, fresh) for seed in range(seeds)] for s in STRATEGIES}
        for score in SCORES:
            values = {s: np.array([row[score] for row in found[s]]) for s in STRATEGIES}
            difference = values["OneStep"] - values["Unrolled"]
            error = difference.std(ddof=1) / np.sqrt(seeds)
            table.append(
                {
                    "dataset": name,
                    "score": score,
                    **{s: float(v.mean()) for s, v in values.items()},
                    "difference": float(difference.mean()),
                    "error": float(error),
                    "no_worse": bool(difference.mean() <= error),
                }
            )
            print(markdown_row(table[-1]), flush=True)
    return table


def markdown_row(row: dict[str, Any]) -> str:
    return (
        f"| {row['dataset']} | {row['score'].replace('_', ' ')} | {row['OneStep']:.4f} | {row['Unrolled']:.4f} | "
        f"{row['difference']:+.4f} ± {row['error']:.4f} | {'no' if row['no_worse'] else 'yes'} |"
    )


def markdown(table: list[dict[str, Any]], seeds: int) -> str:
    head = [
        f"The same data, settings and early stopping over {seeds} seeds, judged on fresh rows; a positive",
        "difference means that `OneStep` is worse.",
        "",
        "| set | score | OneStep | Unrolled | difference ± standard error | worse by more than the error |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *map(markdown_row, table)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rows", type=int, default=100_000, help="fresh test rows")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--results", type=Path, help="also write the table as Markdown")
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = measure(options.seeds, options.rows)
    write_json(options.json, table)
    write_section(options.results, "Hypergradients: quality", markdown(table, options.seeds))


if __name__ == "__main__":
    main()
