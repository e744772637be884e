"""What is worth learning beside the networks? Cross-fitting with each of a few outer parameters, paired over seeds.

Generated sets have 1,000 rows and are judged on 100,000 fresh ones; with `--tables`, tables of a folder too (files
``tab_NAME.csv.gz``, the class in the last column; 60% to train on). All with the default perceptron and settings. A
negative difference to plain cross-fitting is a gain. Finished fits are kept in `--out`: a run can be interrupted.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split

from benchmarks._timing import best_seconds, write_json, write_section
from selfcal import SelfCalibratedClassifier, datasets, metrics, recipes
from selfcal._support.checks import Float, Int
from selfcal._support.parallel import Results, Row, Unit, run_units
from selfcal.ensembles import Ensemble
from selfcal.experiments._tables import mean_and_error
from selfcal.outer import LayerDecay
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.io import read_table
from selfcal.tabular.preprocessing import Preprocessor

GENERATED = ("blobs-1.3", "blobs-1.7", "spiral-2.5", "spiral-3.5")
TABLES = ("pima_diabetes", "vehicle", "german_credit", "segment")
PLAIN, FIXED = "nothing", "nothing, fixed decay 0.3"
NEVER = 10**9


def variants() -> dict[str, Ensemble]:
    """What is compared, by what is learned."""
    learned = {
        "decay": "decay",
        "smoothing": "smoothing",
        "gamma": "gamma",
        "noise": "noise",
        "temperature": "temperature",
        "weights": "weights",
        "decay, smoothing": ("decay", "smoothing"),
    }
    decay = recipes.crossfit(learn="decay")
    (network,) = decay.networks

    def changed(**parts: Any) -> Ensemble:
        return replace(decay, candidates=(replace(network, recipe=replace(network.recipe, **parts)),))

    return {
        PLAIN: recipes.crossfit(),
        FIXED: changed(inner_steps=NEVER),
        "decay that may also fall": changed(outer_model=LayerDecay(bounds=(1e-3, 10.0))),
        **{name: recipes.crossfit(learn=learn) for name, learn in learned.items()},
    }


def rows_of(name: str, seed: int, tables: str) -> tuple[Float, Int, Float, Int]:
    """Features and labels to train on, and to be judged on."""
    if name in GENERATED:
        source = datasets.paper_datasets()[name]
        return (*source.sample(1000, seed=seed), *source.sample(100_000, seed=987_654))
    table = read_table(Path(tables) / f"tab_{name}.csv.gz")
    target = table.columns[-1]
    y = np.unique(table[target].to_numpy().astype(str), return_inverse=True)[1]
    train, test = train_test_split(np.arange(len(y)), test_size=0.4, stratify=y, random_state=seed)
    schema = infer_schema(table[train], target=target)
    features = Preprocessor().fit(table[train], schema)
    return features.transform(table[train]), y[train], features.transform(table[test]), y[test]


def fitted(learned: str, X: Float, y: Int, **settings: Any) -> SelfCalibratedClassifier:
    """A classifier trained by the variant of that name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No outer step will be taken")  # that is how a decay stays fixed
        return SelfCalibratedClassifier(variants()[learned], network="mlp", **settings).fit(X, y)


def step_times(names: Sequence[str], repeats: int) -> dict[str, float]:
    """How long a training step takes, as a ratio to one of plain cross-fitting."""
    X, y = rows_of("blobs-1.7", 0, ".")[:2]
    settings = {"max_epochs": 50, "early_stopping": False, "random_state": 0}
    seconds = best_seconds({name: partial(fitted, name, X, y, **settings) for name in names}, repeats)
    return {name: seconds[name] / seconds[PLAIN] for name in names}


def scores_of_unit(unit: Unit) -> list[Row]:
    """The log loss of one variant on one set with one seed."""
    name, seed, learned, tables = unit
    X, y, X_test, y_test = rows_of(name, seed, tables)
    clf = fitted(learned, X, y, random_state=seed)
    return [
        {
            "dataset": name,
            "seed": seed,
            "learned": learned,
            "tables": tables,
            "log_loss": float(metrics.log_loss(y_test, clf.predict_proba(X_test))),
            "steps": clf.n_iter_,
            "outer": {key: np.asarray(value).tolist() for key, value in clf.outer_params_.items()},
        }
    ]


def compared(rows: Sequence[Row], base: str = PLAIN) -> list[Row]:
    """Per set and variant: the mean loss, and the paired difference to that of `base` ± standard error."""
    table = []
    for name in dict.fromkeys(row["dataset"] for row in rows):
        there = {row["seed"]: row for row in rows if (row["dataset"], row["learned"]) == (name, base)}
        for learned in dict.fromkeys(row["learned"] for row in rows):
            own = [row for row in rows if (row["dataset"], row["learned"]) == (name, learned)]
            pairs = [(row, there[row["seed"]]) for row in own if row["seed"] in there]
            if pairs:
                difference, error = mean_and_error([a["log_loss"] - b["log_loss"] for a, b in pairs])
                table.append(
                    {
                        "dataset": name,
                        "learned": learned,
                        "base": base,
                        "seeds": len(pairs),
                        "log_loss": float(np.mean([row["log_loss"] for row, _ in pairs])),
                        "difference": difference,
                        "error": error,
                        "steps": float(np.median([a["steps"] / b["steps"] for a, b in pairs])),
                    }
                )
    return table


def markdown(table: Sequence[Row], times: Mapping[str, float]) -> str:
    """One line a variant, one column a set."""
    base, names = table[0]["base"], list(dict.fromkeys(row["dataset"] for row in table))
    lines = [
        f"| learned | {' | '.join(names)} | mean | steps | time a step |",
        "|---" * (len(names) + 4) + "|",
    ]
    for learned in dict.fromkeys(row["learned"] for row in table):
        own = {row["dataset"]: row for row in table if row["learned"] == learned}
        cells = [_cell(own[name], plain=learned == base) if name in own else "" for name in names]
        mean = float(np.mean([row["log_loss" if learned == base else "difference"] for row in own.values()]))
        shown = "" if not all(cells) else f"{mean:.4f}" if learned == base else f"{1000 * mean:+.1f}"
        steps = float(np.median([row["steps"] for row in own.values()]))
        lines.append(f"| {learned} | {' | '.join(cells)} | {shown} | {steps:.1f}x | {times[learned]:.1f}x |")
    return "\n".join(lines)


def report(rows: Sequence[Row], times: Mapping[str, float]) -> str:
    """All variants against plain cross-fitting, and learned decay against a fixed one."""
    seeds = len({row["seed"] for row in rows})
    decays = [row for row in rows if row["learned"] in (FIXED, "decay", "decay that may also fall")]
    return "\n".join(
        [
            "Cross-fitted networks (five folds, default perceptron), log loss on test data. First line: the mean",
            f"over {seeds} seeds; below: the paired difference to it ± standard error, in thousandths (negative is",
            "better); **bold** where it is over two standard errors. Then how many steps training took, and how",
            "long one took, beside plain cross-fitting.",
            "",
            markdown(compared(rows), times),
            "",
            "Learned decay against the fixed one:",
            "",
            markdown(compared(decays, FIXED), times),
        ]
    )


def _cell(row: Row, *, plain: bool) -> str:
    if plain:
        return f"{row['log_loss']:.4f}"
    mark = "**" if abs(row["difference"]) > 2 * row["error"] else ""
    return f"{mark}{1000 * row['difference']:+.1f} ± {1000 * row['error']:.1f}{mark}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(GENERATED), choices=[*GENERATED, *TABLES])
    parser.add_argument("--tables", default=".", help="folder of the tables")
    parser.add_argument("--learned", nargs="+", default=list(variants()), choices=list(variants()))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/outer-parameters"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--results", type=Path, help="also write the table as Markdown")
    options = parser.parse_args()
    torch.set_num_threads(1)
    units = [
        (name, seed, learned, options.tables)
        for seed in range(options.seeds)
        for name in options.sets
        for learned in options.learned
    ]
    kept = Results(options.out / "results.json", {"variants": repr(variants())})
    key = ("dataset", "seed", "learned", "tables")
    rows = run_units(
        scores_of_unit, units, kept, jobs=options.jobs, title="Comparing outer parameters", key=key
    )
    text = report(rows, step_times(options.learned, repeats=3))
    print(text)
    write_json(options.json, compared(rows))
    write_section(options.results, "What is worth learning beside the networks", text)


if __name__ == "__main__":
    main()
