"""How well wrong labels are found, and whether as many flags are false alarms as was promised.

Labels of generated sets and of tables are made wrong on purpose, classifiers predict every row from folds it was not
in, and the audit sees nothing but those probabilities and the given labels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._timing import parser, write_json, write_section
from selfcal._support.checks import Float, Int
from selfcal.datasets import Blobs, GenerativeDataset, Spirals
from selfcal.label_noise.audit import audit_labels

GENERATED: dict[str, GenerativeDataset] = {d.name: d for d in (Blobs(1.3), Blobs(1.7), Spirals(2.5))}
ROWS = 1000
TABLE_ROWS = 1500
MODELS: dict[str, Callable[[int], object]] = {
    "early-stopped MLP": lambda seed: MLPClassifier(
        (64,), early_stopping=True, n_iter_no_change=10, learning_rate_init=0.01, random_state=seed
    ),
    "MLP": lambda seed: MLPClassifier(
        (64, 64), alpha=0.03, max_iter=60, learning_rate_init=0.005, random_state=seed
    ),
    "logistic": lambda seed: LogisticRegression(max_iter=300),
    "boosting": lambda seed: HistGradientBoostingClassifier(
        max_iter=60, max_leaf_nodes=15, early_stopping=False, random_state=seed
    ),
}
OF_GENERATED, OF_TABLES = ("early-stopped MLP", "logistic"), ("MLP", "logistic")
LEFT_OUT = {("spiral-2.5", "logistic"): "hopeless", ("letter", "boosting"): "slow"}
PEERS = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
FIRST_SEED, FIRST_TABLE_SEED = 4, 2000
"""The constants of the audit were chosen on seeds before these."""
NOISE: dict[str, Callable[[int], Float]] = {
    "none": np.eye,
    "10%": lambda k: symmetric(k, 0.1),
    "40%": lambda k: symmetric(k, 0.4),
    "20% to the next class": lambda k: 0.8 * np.eye(k) + 0.2 * np.roll(np.eye(k), 1, axis=1),
}


@dataclass(frozen=True)
class Case:
    """Given labels, which of them are wrong, and the out-of-fold prediction for each row."""

    data: str
    noise: str
    model: str
    seed: int
    probs: Float
    y: Int
    wrong: np.ndarray


def symmetric(k: int, rate: float) -> Float:
    """Any class becomes any other with equal probability."""
    return (1 - rate - rate / (k - 1)) * np.eye(k) + rate / (k - 1)


def cases(
    source: str | Path, seed: int, rows: int = TABLE_ROWS, models: Sequence[str] = OF_TABLES
) -> Iterator[Case]:
    """Every noise and model on one draw of a generated set, by its name, or on rows of a table, by its path."""
    posterior = None
    if isinstance(source, Path):
        name = source.name.removeprefix("tab_").removesuffix(".csv.gz")
        X, y = read(source, seed, rows)
    else:
        name, models = source, OF_GENERATED
        X, y = GENERATED[name].sample(ROWS, seed)
        posterior = GENERATED[name].posterior(X)
    for noise, matrix in NOISE.items():
        T = matrix(int(y.max()) + 1)
        given = relabelled(y, T, seed)
        if posterior is not None:
            yield Case(name, noise, "exact", seed, posterior @ T, given, given != y)
        for model in models:
            if (name, model) not in LEFT_OUT:
                probs = out_of_fold(X, given, model, seed)
                size = "" if posterior is not None or rows == TABLE_ROWS else f", {len(y):,} rows"
                yield Case(name + size, noise, model, seed, probs, given, given != y)


def measure(task: tuple[Any, ...]) -> list[dict[str, object]]:
    """Audit all cases of a draw; the areas under the curve are there if there is something to find."""
    rows = []
    for case in cases(*task):
        audit = audit_labels(case.probs, case.y)
        place = np.empty(len(case.y))
        place[audit.ranking] = np.arange(len(case.y))
        row = {
            **{name: getattr(case, name) for name in ("data", "noise", "model", "seed")},
            "wrong": float(case.wrong.mean()),
            "estimated": audit.noise_rate,
            "flagged": len(audit.flagged),
            "false alarms": int((~case.wrong[audit.flagged]).sum()),
        }
        if case.wrong.any():
            scores = {"ours": place, **peers(case)}
            row |= {name: float(roc_auc_score(case.wrong, -score)) for name, score in scores.items()}
        rows.append(row)
    return rows


def peers(case: Case) -> dict[str, Float]:
    """The label quality scores of cleanlab, if it is there."""
    try:
        from cleanlab.rank import get_label_quality_scores
    except ImportError:
        return {}
    probs = np.clip(case.probs, 1e-12, None)
    probs /= probs.sum(axis=1, keepdims=True)
    return {score: get_label_quality_scores(case.y, probs, method=score) for score in PEERS}


def relabelled(y: Int, T: Float, seed: int) -> Int:
    """Labels drawn from the rows of the transition matrix."""
    draw = np.random.default_rng([seed, 7]).random((len(y), 1))
    return (T[y].cumsum(axis=1) > draw).argmax(axis=1)


def out_of_fold(X: Float, y: Int, model: str, seed: int) -> Float:
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    learner = make_pipeline(StandardScaler(), MODELS[model](seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cross_val_predict(learner, X, y, cv=folds, method="predict_proba")


def read(path: Path, seed: int, rows: int) -> tuple[Float, Int]:
    """Some rows of a table as numbers, words one-hot, and the codes of its last column."""
    table = pl.read_csv(path, infer_schema_length=None)
    table = table.sample(min(rows, len(table)), shuffle=True, seed=seed)
    target = table.to_series(-1).cast(pl.String).to_numpy()
    features = table.select(table.columns[:-1])
    words = [name for name, kind in features.schema.items() if kind == pl.String]
    features = features.with_columns(pl.exclude(words).cast(pl.Float64)).to_dummies(words)
    features = features.with_columns(pl.all().fill_null(pl.all().median()))
    return features.to_numpy().astype(np.float64), np.unique(target, return_inverse=True)[1]


def table(rows: list[dict[str, object]]) -> str:
    """Means over the seeds of each case; false alarms are those of all seeds among all flags of all seeds."""
    heads = [
        "data",
        "model",
        "noise",
        "wrong",
        "estimated",
        "flagged",
        "draws without a flag",
        "false alarms",
    ]
    heads += ["AUC, ours", *(f"AUC, cleanlab {score.replace('_', ' ')}" for score in PEERS)]
    heads += ["ours less the best of these"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for key, group in groupby(sorted(rows, key=_key), key=_key):
        draws = list(group)
        flagged = np.array([draw["flagged"] for draw in draws])
        false = sum(draw["false alarms"] for draw in draws)
        cells = [
            *key,
            f"{_mean(draws, 'wrong'):.1%}",
            f"{_mean(draws, 'estimated'):.1%}",
            f"{flagged.mean():.1f}",
        ]
        cells += [
            f"{(flagged == 0).sum()} of {len(draws)}",
            f"{false / flagged.sum():.1%}" if flagged.any() else "",
        ]
        known = [score for score in ("ours", *PEERS) if score in draws[0]]
        cells += [f"{_mean(draws, score):.4f}" if score in known else "" for score in ("ours", *PEERS)]
        best = max((score for score in known if score != "ours"), key=lambda s: _mean(draws, s), default=None)
        cells.append(_difference(draws, best) if best else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _key(row: dict[str, object]) -> tuple[str, str, str]:
    return str(row["data"]), str(row["model"]), str(row["noise"])


def _mean(draws: list[dict[str, object]], name: str) -> float:
    return float(np.mean([draw[name] for draw in draws]))


def _difference(draws: list[dict[str, object]], peer: str) -> str:
    gaps = np.array([draw["ours"] - draw[peer] for draw in draws])
    error = f" ± {gaps.std(ddof=1) / np.sqrt(len(gaps)):.4f}" if len(gaps) > 1 else ""
    return f"{gaps.mean():+.4f}{error}"


def main() -> None:
    arguments = parser(__doc__, repeats=1)
    arguments.add_argument("--data", type=Path, nargs="*", default=[], help="tab_*.csv.gz")
    arguments.add_argument("--seeds", type=int, default=16, help="draws of each generated set")
    arguments.add_argument("--table-seeds", type=int, default=1, help="draws of each table")
    arguments.add_argument("--table-rows", type=int, nargs="*", default=[TABLE_ROWS], help="rows of a table")
    arguments.add_argument(
        "--table-models", nargs="*", default=["MLP", "logistic", "boosting"], choices=MODELS
    )
    arguments.add_argument("--jobs", type=int, default=2)
    options = arguments.parse_args()
    tasks: list[tuple[Any, ...]] = [
        (source, FIRST_SEED + seed) for seed in range(options.seeds) for source in GENERATED
    ]
    tasks += [
        (source, FIRST_TABLE_SEED + seed, rows, options.table_models)
        for rows in options.table_rows
        for seed in range(options.table_seeds)
        for source in options.data
    ]
    rows: list[dict[str, object]] = []
    with Pool(options.jobs) as pool:
        for found in pool.imap(measure, tasks):
            rows += found
            write_json(options.json, rows)  # what is done is there, should the rest be cut off
    print(table(rows))
    write_section(options.results, "Finding wrong labels", table(rows))


if __name__ == "__main__":
    main()
