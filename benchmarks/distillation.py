"""Is the estimated cost of one network instead of an ensemble the true one? On generated sets, over several seeds.

    python -m benchmarks.distillation --json runs/distillation.json --jobs 2

`distilled_["cost"]` is compared with the difference in log loss, on many fresh rows, between the network that
predicts and the ensemble of the same seed. About two minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks._timing import write_section
from selfcal import SelfCalibratedClassifier, metrics, recipes
from selfcal._support.locks import locked
from selfcal._support.parallel import Results, Row, Unit, run_all_units
from selfcal.datasets import Blobs, Spirals

TITLE, KEY = "Cost of one network", ("set", "seed")
SETS = {"blobs-1.7": Blobs(std=1.7), "spiral-2.5": Spirals(std=2.5)}
ROWS, TEST_ROWS, TEST_SEED = 500, 20_000, 1_000_003
CANDIDATES = ("mlp", "discriminant", "linear")
MOST_ERRORS = 3.0
"""Standard errors of the mean that the mean difference may be."""


def work(unit: Unit) -> list[Row]:
    """The estimated and the true cost for one seed."""
    name, seed = unit
    X, y = SETS[name].sample(ROWS, seed=seed)
    X_test, y_test = SETS[name].sample(TEST_ROWS, seed=TEST_SEED)
    settings = {"random_state": seed, "time_budget": 600.0, "verbose": False}
    one, whole = (
        SelfCalibratedClassifier(
            recipes.auto(candidates=CANDIDATES, repeats=1), n_networks=n, **settings
        ).fit(X, y)
        for n in (1, None)
    )
    losses = [metrics.log_loss(y_test, model.predict_proba(X_test)) for model in (one, whole)]
    found = one.distilled_
    row: Row = {"set": name, "seed": seed, "failed": None, "true": losses[0] - losses[1]}
    return [row | {"estimated": found["cost"], "standard_error": found["standard_error"]}]


def markdown(rows: Sequence[Row]) -> str:
    """A line for each set: mean costs, and whether the estimates are biased or their standard errors wrong."""
    lines = [
        f"Log loss of one network minus that of its ensemble: estimated by `fit` on a fifth of {ROWS:,} rows, and "
        f"true, on {TEST_ROWS:,} fresh rows. Means over seeds, with the standard error of the mean.",
        "",
        "| set | seeds | estimated | true | difference | spread of the difference / its standard error | |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["set"] for row in rows):
        own = [row for row in rows if row["set"] == name and row["failed"] is None]
        if len(own) < 2:
            continue
        estimated, true, error = (
            np.array([row[key] for row in own]) for key in ("estimated", "true", "standard_error")
        )
        off = estimated - true
        of_mean = off.std(ddof=1) / len(own) ** 0.5
        agrees = abs(off.mean()) <= MOST_ERRORS * of_mean
        spread = off.std(ddof=1) / np.sqrt((error**2).mean())
        lines.append(
            f"| {name} | {len(own)} | {estimated.mean():+.4f} | {true.mean():+.4f} | {off.mean():+.4f} "
            f"± {of_mean:.4f} | {spread:.2f} | {'agrees' if agrees else '**biased**'} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, required=True, help="keeps what is finished")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument(
        "--results", type=Path, help="also write the table as a section of this Markdown file"
    )
    asked = parser.parse_args(arguments)
    kept = Results(
        asked.json, {"experiment": "distillation", "rows": [ROWS, TEST_ROWS], "candidates": CANDIDATES}
    )
    units = list(product(asked.sets, range(asked.seeds)))
    with locked(asked.json.with_name(f".{asked.json.name}.lock")):
        rows = run_all_units(work, units, kept, jobs=asked.jobs, title=TITLE, key=KEY)
    print(text := markdown(rows))
    write_section(asked.results, TITLE, text)


if __name__ == "__main__":
    main()
