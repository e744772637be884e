"""The coverage of prediction sets over many draws of the calibration rows, against what is guaranteed.

    python -m benchmarks.coverage --json runs/coverage.json --results benchmarks/RESULTS.md

Split: probabilities that are wrong in a known way, continuous or in steps. Cross: out-of-fold probabilities of naive
Bayes (continuous) or of five neighbours (in steps), and new rows that a model of all rows predicts.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from benchmarks._timing import parser, write_json, write_section
from selfcal._support.checks import Float, Int
from selfcal.conformal import APS, LAC, RAPS, ConformalClassifier, ConformityScore
from selfcal.datasets import Blobs
from selfcal.errors import PromiseWarning

TITLE = "Coverage of prediction sets"
SETS, NEW_ROWS = 300, 500
ROWS, LEVELS = (50, 200, 1000), (0.8, 0.9, 0.95)
SCORES: dict[str, ConformityScore] = {"LAC": LAC(), "APS": APS(), "RAPS": RAPS(penalty=0.05, free=1)}
CONDITIONS = ("all rows", "each class", "each group")
FOLDS, SEED = 5, 7
TAIL = 0.0228
"""The probability of a standard normal number above two."""


@dataclass(frozen=True)
class Draw:
    """Probabilities, classes and groups of some rows."""

    probs: Float
    y: Int
    groups: Int


Pair = tuple[Draw, Draw]
"""Calibration rows and new rows."""


def simulated(n: int, rng: np.random.Generator, steps: int | None = None) -> Draw:
    """Four classes of different frequency; probabilities are too sharp, in one group more than in the other."""
    true = rng.dirichlet([0.7, 1.4, 2.1, 2.8], n)
    y = (true.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=3)
    groups = rng.integers(0, 2, n)
    probs = true ** np.where(groups, 2.0, 1.2)[:, None]
    probs /= probs.sum(axis=1, keepdims=True)
    if steps is not None:
        probs = np.floor(probs * steps) / steps
        probs[:, 0] += 1 - probs.sum(axis=1)
    return Draw(probs, y, groups)


def split(n: int, rng: np.random.Generator, steps: int | None = None) -> Pair:
    """Rows that the model has not seen."""
    return simulated(n, rng, steps), simulated(NEW_ROWS, rng, steps)


def cross(n: int, rng: np.random.Generator, model: Callable[[], Any]) -> Pair:
    """Rows that the models were trained on, each predicted by the model of the folds it is not in."""
    X, y = Blobs(std=1.7).sample(n + NEW_ROWS, seed=int(rng.integers(2**31)))
    probs = np.zeros((n, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fewer rows of a class than folds
        folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X[:n], y[:n]))
    for train, rest in folds:
        probs[rest] = _probabilities(model().fit(X[train], y[train]), X[rest])
    new = _probabilities(model().fit(X[:n], y[:n]), X[n:])
    groups = (X[:, 0] < X[:, 1]).astype(np.int64)
    return Draw(probs, y[:n], groups[:n]), Draw(new, y[n:], groups[n:])


def _probabilities(model: Any, X: Float) -> Float:
    probs = np.zeros((len(X), 5))
    probs[:, model.classes_] = model.predict_proba(X)
    return probs


WORLDS: dict[tuple[str, str], Callable[[int, np.random.Generator], Pair]] = {
    ("split", "continuous"): split,
    ("split", "tied"): partial(split, steps=6),
    ("cross", "continuous"): partial(cross, model=GaussianNB),
    ("cross", "tied"): partial(cross, model=partial(KNeighborsClassifier, 5)),
}


def coverages(pair: Pair, kind: str, condition: str, **settings: Any) -> list[float]:
    """The coverage of the new rows, or of those of each class or group; NaN where it has no rows."""
    known, new = pair
    grouped = condition == "each group"
    conformal = ConformalClassifier(per_class=condition == "each class", **settings)
    groups = known.groups if grouped else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PromiseWarning)  # a rare class is then in every set
        if kind == "cross":
            conformal.fit_out_of_fold(known.y, known.probs, groups=groups)
        else:
            conformal.fit(known.probs, known.y, groups=groups)
    sets = conformal.predict_set(new.probs, groups=new.groups if grouped else None)
    covered = sets[np.arange(len(new.y)), new.y]
    part = {"all rows": np.zeros_like(new.y), "each class": new.y, "each group": new.groups}[condition]
    count = {"all rows": 1, "each class": new.probs.shape[1], "each group": 2}[condition]
    inside = np.bincount(part, covered, count)
    total = np.bincount(part, minlength=count).astype(np.float64)
    return np.divide(inside, total, out=np.full(count, np.nan), where=total > 0).tolist()


def measure(n: int, sets: int, world: tuple[str, str]) -> Iterator[dict[str, Any]]:
    """One row for each setting: mean coverage and standard error over the draws; and of each class or group."""
    rng = np.random.default_rng([n, [*WORLDS].index(world), SEED])
    found: dict[tuple[Any, ...], list[list[float]]] = {}
    for number in range(sets):
        pair = WORLDS[world](n, rng)
        for key in product(CONDITIONS, SCORES, (False, True), LEVELS):
            condition, score, randomized, level = key
            if (
                world[0] == "split"
            ):  # draws that cost little: the settings are then independent of one another
                pair = WORLDS[world](n, rng)
            values = coverages(
                pair,
                world[0],
                condition,
                score=SCORES[score],
                randomized=randomized,
                coverage=level,
                random_state=number,
            )
            found.setdefault(key, []).append(values)
    for (condition, score, randomized, level), values in found.items():
        parts = np.array(values).T
        row = {"kind": world[0], "scores": world[1], "condition": condition, "score": score}
        row |= {"randomized": randomized, "n": n, "level": level} | mean_and_error(np.nanmean(parts, axis=0))
        yield row | {"parts": [mean_and_error(part[~np.isnan(part)]) for part in parts]}


def mean_and_error(values: Float) -> dict[str, float]:
    """The mean coverage of independent draws, and its standard error."""
    return {"coverage": float(values.mean()), "error": float(values.std(ddof=1) / np.sqrt(len(values)))}


def z_scores(row: dict[str, Any]) -> list[float]:
    """How many standard errors the coverage of each class or group is above the one asked for."""
    return [(part["coverage"] - row["level"]) / max(part["error"], 1e-9) for part in row["parts"]]


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """How many of the comparisons are beyond two standard errors, beside what chance alone would give."""
    lines = []
    for kind, randomized in product(("split", "cross"), (False, True)):
        of = [row for row in rows if (row["kind"], row["randomized"]) == (kind, randomized)]
        z = np.array([value for row in of for value in z_scores(row)])
        below, above = int((z < -2).sum()), int((z > 2).sum())
        lines.append(
            f"- {kind}, {'randomised' if randomized else 'not randomised'}: {below} of {len(z)} coverages are "
            f"more than two standard errors below the one asked for, {above} above; {len(z) * TAIL:.0f} each by "
            f"chance, if all were exact. The lowest is {z.min():+.1f} standard errors from it."
        )
    return lines


def markdown(rows: list[dict[str, Any]], sets: int) -> str:
    """The verdicts, and the mean coverage of each setting."""
    cells: dict[tuple[str, ...], dict[tuple[int, float], str]] = {}
    for row in rows:
        key = (
            row["kind"],
            row["condition"],
            row["scores"],
            row["score"],
            "yes" if row["randomized"] else "no",
        )
        shown = f"{100 * row['coverage']:.1f} ± {100 * row['error']:.1f}"
        cells.setdefault(key, {})[row["n"], row["level"]] = shown
    columns = sorted({(row["n"], row["level"]) for row in rows})
    heads = ["", "coverage of", "scores", "score", "randomised", *(f"n = {n}, {c:.0%}" for n, c in columns)]
    lines = [
        f"Mean coverage in percent ± its standard error, over {sets} draws of n calibration rows and {NEW_ROWS} new",
        "rows; for each class and each group, the mean over them. The verdicts count every class and group by",
        "itself. A class or group with too few calibration rows is always covered; ties raise the coverage unless",
        "they are broken at random. Cross has no exact guarantee, and its settings have their draws in common.",
        "",
        *verdicts(rows),
        "",
        "| " + " | ".join(heads) + " |",
        "|---" * len(heads) + "|",
        *("| " + " | ".join([*key, *(of[at] for at in columns)]) + " |" for key, of in cells.items()),
    ]
    return "\n".join(lines)


def main() -> None:
    arguments = parser(__doc__, repeats=1)
    arguments.formatter_class = argparse.RawDescriptionHelpFormatter
    arguments.add_argument("--sets", type=int, default=SETS, help="draws of calibration rows")
    options = arguments.parse_args()
    rows = [row for world in WORLDS for n in ROWS for row in measure(n, options.sets, world)]
    print(text := markdown(rows, options.sets))
    write_json(options.json, rows)
    write_section(options.results, TITLE, text)


if __name__ == "__main__":
    main()
