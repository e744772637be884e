"""Does the cheap hypergradient lose anything? BO4SC with `OneStep` against exact `Unrolled`, paired over seeds.

Twice: each strategy tuned on validation rows as in the reproduction of the paper, and both with the default
settings and early stopping. Judged on 100,000 fresh rows of the five sets of the paper. A positive difference
means that `OneStep` is worse. Finished rows are kept in `--out`, so that a run can be interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks._timing import write_json, write_section
from selfcal import SelfCalibratedClassifier, datasets, hypergradients, metrics, recipes
from selfcal._support.parallel import Results, Row, Unit, run_units
from selfcal.datasets import ThreeWaySplit
from selfcal.experiments import bo4sc
from selfcal.reporting.predictions import Predictions
from selfcal.training.interfaces import Hypergradient

STRATEGIES = {"OneStep": hypergradients.OneStep(), "Unrolled": hypergradients.Unrolled()}
SCORES = ("log_loss", "calibration_error")
FRESH_ROWS = 100_000


def tuned(strategy: Hypergradient, parts: ThreeWaySplit, seed: int) -> SelfCalibratedClassifier:
    candidates = [recipes.bo4sc(outer_lr=rate, hypergradient=strategy) for rate in bo4sc.OUTER_LEARNING_RATES]
    return bo4sc.tuned_bilevel(candidates, parts, seed)


def default(strategy: Hypergradient, parts: ThreeWaySplit, seed: int) -> SelfCalibratedClassifier:
    recipe = recipes.bo4sc(hypergradient=strategy)
    return bo4sc.fitted(recipe, parts, seed, max_epochs=bo4sc.EPOCHS, patience=20)


SETTINGS: dict[str, Callable[[Hypergradient, ThreeWaySplit, int], SelfCalibratedClassifier]] = {
    "tuned": tuned,
    "default": default,
}


def scores_of_unit(unit: Unit) -> list[Row]:
    """The scores of every strategy and setting on one set and seed."""
    name, seed = unit
    source = datasets.paper_datasets()[name]
    X, y = source.sample(FRESH_ROWS, seed=bo4sc.LARGE_TEST_SEED)
    posterior = source.posterior(X)
    rows = []
    for settings, fit in SETTINGS.items():
        for strategy, hypergradient in STRATEGIES.items():
            judged = Predictions.of(fit(hypergradient, bo4sc.paper_split(name, seed), seed), X, y)
            right = posterior[np.arange(len(y)), judged.chosen]
            rows.append(
                {
                    "dataset": name,
                    "seed": seed,
                    "settings": settings,
                    "strategy": strategy,
                    "log_loss": judged.scores()["log_loss"],
                    "calibration_error": metrics.confidence_calibration_error(right, judged.confidence),
                }
            )
    return rows


def compared(rows: list[Row]) -> list[dict[str, Any]]:
    """Means and paired differences per setting, set and score."""
    table = []
    for settings in SETTINGS:
        for name in dict.fromkeys(row["dataset"] for row in rows):
            for score in SCORES:
                values = {
                    strategy: np.array(
                        [
                            row[score]
                            for row in rows
                            if (row["settings"], row["dataset"], row["strategy"])
                            == (settings, name, strategy)
                        ]
                    )
                    for strategy in STRATEGIES
                }
                difference = values["OneStep"] - values["Unrolled"]
                error = float(difference.std(ddof=1) / np.sqrt(len(difference)))
                table.append(
                    {
                        "settings": settings,
                        "dataset": name,
                        "score": score,
                        **{strategy: float(v.mean()) for strategy, v in values.items()},
                        "difference": float(difference.mean()),
                        "error": error,
                        "no_worse": bool(difference.mean() <= error),
                    }
                )
    return table


def markdown(table: list[dict[str, Any]], seeds: int) -> str:
    lines = [
        f'The same data over {seeds} seeds, evaluated on new rows. "Tuned": outer step, learning rate and number of',
        "steps chosen on validation rows for each strategy by itself, as in the reproduction of the paper.",
        '"Default": the default settings with early stopping. A positive difference means that `OneStep` is worse.',
        "",
        "| settings | set | score | OneStep | Unrolled | difference ± standard error | worse by more than that |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in table:
        lines.append(
            f"| {row['settings']} | {row['dataset']} | {row['score'].replace('_', ' ')} | {row['OneStep']:.4f} | "
            f"{row['Unrolled']:.4f} | {row['difference']:+.4f} ± {row['error']:.4f} | "
            f"{'no' if row['no_worse'] else 'yes'} |"
        )
    for settings in SETTINGS:
        held = [
            f"{sum(r['no_worse'] for r in table if (r['settings'], r['score']) == (settings, score))} "
            f"({score.replace('_', ' ')})"
            for score in SCORES
        ]
        sets = len({row["dataset"] for row in table})
        lines += ["", f"{settings.capitalize()}: not worse on {' and '.join(held)} of {sets} sets."]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/hypergradient-quality"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--results", type=Path, help="also write the table as Markdown")
    options = parser.parse_args()
    torch.set_num_threads(1)
    units = [(name, seed) for seed in range(options.seeds) for name in datasets.paper_datasets()]
    kept = Results(options.out / "results.json", bo4sc.protocol())
    rows = run_units(scores_of_unit, units, kept, jobs=options.jobs, title="Comparing hypergradients")
    table = compared(rows)
    print(markdown(table, options.seeds))
    write_json(options.json, table)
    write_section(options.results, "Hypergradients: quality", markdown(table, options.seeds))


if __name__ == "__main__":
    main()
