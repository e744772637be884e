"""How many foreign rows `selfcal predict` marks, at which rate of false alarms, beside other scores.

    python -m benchmarks.novelty --data FOLDER --json runs/novelty.json --results benchmarks/RESULTS.md

FOLDER holds the tables as `tab_NAME.csv.gz`, with the label in the column `target`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import torch

from benchmarks._timing import parser, write_json, write_section
from selfcal.conformal import NoveltyDetector
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.io import read_table
from selfcal.uncertainty import (
    Energy,
    Entropy,
    KNearestNeighbors,
    Mahalanobis,
    MaximumProbability,
    Reconstruction,
    TrustScore,
    UncertaintyScore,
)
from selfcal.workflows.table_model import TableModel

TITLE = "Rows unlike the training data"
NOTE = """\
A model is fitted on four fifths of a table, and predicts the other fifth with foreign rows among them, one in twenty:
*flagged* is the fraction of the foreign rows that are marked (column `novel`), *false alarms* that of the others, at
a promised rate of 5%; means over the seeds. `Mahalanobis` is the score of `selfcal fit`, chosen on other tables
and seeds (segment, vehicle, pima_diabetes, german_credit, dna_splice, income_marketing, higgs_7500; 100 and 101).
Foreign rows are of these kinds:

- *another table*: rows of another real table under these columns, numbers under numbers, categories under categories;
- *columns moved*: rows of the same table, each value in the next column of its kind, as with a wrong header;
- *wrong unit*: rows of the same table, one number of each, which is not zero, multiplied by ten;
- *left-out class*: rows of a class that the model was not fitted on, another one for each seed;
- *independent*: each value is that of a random row, so that only the dependence between columns is foreign."""
TARGET, RATE, FOREIGN = "target", 0.05, 0.05
WANTED = 0.8
"""The fraction of foreign rows to mark."""
SEEDS = (0, 1, 2, 3, 4)
DONORS = {"letter": "vehicle", "satellite": "spam", "adult": "german_credit"}
"""The tables, and the other one that foreign rows are taken from."""
MAX_ROWS = 10_000
MAX_EPOCHS = 20
OF_THE_MODEL: tuple[UncertaintyScore, ...] = (MaximumProbability(), Entropy(), Energy())
OF_FEATURES: tuple[Callable[[], UncertaintyScore], ...] = (KNearestNeighbors, TrustScore, Reconstruction)
Row = dict[str, object]


class Foreign:
    """Makes foreign rows of each kind.

    Args:
        table: The rows that a model is fitted on.
        donor: Another table.
        seed: Seed of the draws.
    """

    def __init__(self, table: pl.DataFrame, donor: pl.DataFrame, seed: int) -> None:
        self.table, self.donor = table, donor
        self.names, self.theirs = columns_by_kind(table), columns_by_kind(donor)
        self.rng = np.random.default_rng(seed)

    def of(self, rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
        """As many of each kind as these rows, which the model was not fitted on."""
        return {
            "another table": self.another_table(rows.height),
            "columns moved": self.columns_moved(rows),
            "wrong unit": self.wrong_unit(rows),
            "independent": self.independent(rows.height),
        }

    def another_table(self, n: int) -> pl.DataFrame:
        """Rows of the donor; if it has fewer columns of a kind, some are used again."""
        drawn = self.donor[self.rng.integers(self.donor.height, size=n)]
        return pl.DataFrame(
            drawn[theirs[place % len(theirs)]].alias(name)
            for names, theirs in zip(self.names, self.theirs, strict=True)
            for place, name in enumerate(names)
        )

    def columns_moved(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Every value in the next column of its kind."""
        return pl.DataFrame(
            rows[names[place - 1]].alias(name) for names in self.names for place, name in enumerate(names)
        )

    def wrong_unit(self, rows: pl.DataFrame) -> pl.DataFrame:
        """One number of each row, in a column drawn at random of those that are not zero, ten times as large."""
        changeable = rows.select(pl.col(self.names[0]).cast(pl.Float64).fill_null(0) != 0).to_numpy()
        chosen = (self.rng.random(changeable.shape) * changeable).argmax(axis=1)
        return rows.with_columns(
            rows[name].cast(pl.Float64) * np.where(chosen == place, 10.0, 1.0)
            for place, name in enumerate(self.names[0])
        )

    def independent(self, n: int) -> pl.DataFrame:
        """Rows whose values come from different rows each."""
        rng, height = self.rng, self.table.height
        return pl.DataFrame([column.gather(rng.integers(height, size=n)) for column in self.table])


def columns_by_kind(table: pl.DataFrame) -> list[list[str]]:
    """The columns of numbers, and those of categories."""
    used = infer_schema(table, target=TARGET).used
    return [[c.name for c in used if (c.kind == "category") == wanted] for wanted in (False, True)]


def one_seed(name: str, table: pl.DataFrame, donor: pl.DataFrame, seed: int) -> list[Row]:
    """All kinds of foreign rows for one table and seed."""
    table = table[np.random.default_rng(seed).permutation(table.height)[:MAX_ROWS]]
    rows = measured(name, table, lambda fitted, rows: Foreign(fitted, donor, seed).of(rows), seed)
    labels = table[TARGET].cast(pl.String)
    classes = labels.unique().sort().to_list()
    if len(classes) > 2:
        left_out = labels == classes[seed * 7 % len(classes)]
        foreign = {"left-out class": table.filter(left_out)}
        rows += measured(name, table.filter(~left_out), lambda *_: foreign, seed)
    return rows


def measured(
    name: str,
    table: pl.DataFrame,
    foreign: Callable[[pl.DataFrame, pl.DataFrame], Mapping[str, pl.DataFrame]],
    seed: int,
) -> list[Row]:
    """Fit on four fifths of a table, and mark the others and foreign rows of each kind, by each score."""
    ordinary, fitted = table[: table.height // 5], table[table.height // 5 :]
    model = TableModel("temperature", max_epochs=MAX_EPOCHS, seed=seed, novelty=RATE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(fitted, TARGET)
        parts = model.parts(fitted, TARGET)
        marks = detectors(model, fitted, parts.train, parts.held_out)
        n_foreign = max(1, round(ordinary.height * FOREIGN / (1 - FOREIGN)))
        found: list[Row] = []
        for kind, pool in foreign(fitted, ordinary).items():
            drawn = pool[np.random.default_rng(seed + 1).permutation(pool.height)[:n_foreign]]
            drawn = drawn.select(name for name in fitted.columns if name in drawn.columns)
            for score, mark in marks.items():
                found.append(
                    {
                        "table": name,
                        "kind": kind,
                        "seed": seed,
                        "score": score,
                        "flagged": float(mark(drawn).mean()),
                        "false_alarms": float(mark(ordinary).mean()),
                        "ordinary": ordinary.height,
                        "foreign": drawn.height,
                        "held_out": len(parts.held_out),
                    }
                )
    return found


def detectors(
    model: TableModel, fitted: pl.DataFrame, train: np.ndarray, held_out: np.ndarray
) -> dict[str, Callable[[pl.DataFrame], np.ndarray]]:
    """What marks rows: the model itself, and other scores, of its predictions or of the same encoded columns."""
    classifier = model.classifier
    encoded = model.preprocessor.transform
    values, labels = encoded(fitted[train]), fitted[TARGET].cast(pl.String).to_numpy()[train]

    class OfEncoded:
        """The classifier, for rows that are already encoded."""

        classes_ = classifier.classes_

        def predict(self, values: np.ndarray) -> np.ndarray:
            return self.classes_[classifier.predict_encoded(values).codes]

    found = {Mahalanobis.__name__: lambda rows: _marks(model, rows)}
    for score in OF_THE_MODEL:
        detector = NoveltyDetector(classifier, score, false_alarms=RATE).fit(fitted[held_out])
        found[type(score).__name__] = detector.is_novel
    for kind in OF_FEATURES:
        score = kind().fit(values, labels, classes=classifier.classes_)
        detector = NoveltyDetector(OfEncoded(), score, false_alarms=RATE).fit(encoded(fitted[held_out]))
        found[kind.__name__] = lambda rows, detector=detector: detector.is_novel(encoded(rows))
    return found


def _marks(model: TableModel, rows: pl.DataFrame) -> np.ndarray:
    novel = model.predict(rows).novel
    assert novel is not None, "the model has a novelty score"
    return novel


def markdown(rows: Sequence[Row]) -> str:
    """The table of all scores, and whether what is wanted is met."""
    scores = list(dict.fromkeys(str(row["score"]) for row in rows))
    lines = [f"| table | foreign rows | {' | '.join(scores)} |", f"|---|---|{'---|' * len(scores)}"]
    verdicts = []
    for name, kind in dict.fromkeys((str(row["table"]), str(row["kind"])) for row in rows):
        cells = []
        for score in scores:
            here = [r for r in rows if (r["table"], r["kind"], r["score"]) == (name, kind, score)]
            flagged, alarms = (np.mean([r[key] for r in here]) for key in ("flagged", "false_alarms"))
            cells.append(f"{flagged:.0%} at {alarms:.1%}")
            if score == scores[0]:
                verdicts.append(verdict(name, kind, here))
        lines.append(f"| {name} | {kind} | {' | '.join(cells)} |")
    intro = "Flagged at false alarms, by score:"
    wanted = (
        f"Wanted of `{scores[0]}`: at least {WANTED:.0%} of the foreign rows, and false alarms within two standard "
        f"errors of {RATE:.0%} (of held-out rows and rows to predict, over the seeds):"
    )
    return "\n".join([NOTE, "", intro, "", *lines, "", wanted, "", *verdicts])


def verdict(name: str, kind: str, here: Sequence[Row]) -> str:
    """Whether enough foreign rows are flagged, and no more of the others than noise allows."""
    flagged = [float(str(r["flagged"])) for r in here]
    alarms = float(np.mean([r["false_alarms"] for r in here]))
    each = [RATE * (1 - RATE) * (1 / int(str(r["ordinary"])) + 1 / int(str(r["held_out"]))) for r in here]
    error = float(np.sqrt(np.sum(each))) / len(here)
    enough, within = np.mean(flagged) >= WANTED, abs(alarms - RATE) <= 2 * error
    return (
        f"- {name}, {kind}: {np.mean(flagged):.1%} flagged ({min(flagged):.0%} to {max(flagged):.0%}), "
        f"{'met' if enough else '**missed**'}; {alarms:.2%} false alarms, standard error {error:.2%}, "
        f"{'met' if within else '**missed**'}."
    )


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    asked = parser(__doc__, repeats=1)
    asked.add_argument("--data", type=Path, required=True, help="the folder with the tables")
    asked.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    return asked.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    asked = options(arguments)
    torch.set_num_threads(1)
    rows: list[Row] = []
    for name, other in DONORS.items():
        table, donor = (read_table(asked.data / f"tab_{one}.csv.gz") for one in (name, other))
        for seed in asked.seeds:
            rows += one_seed(name, table, donor, seed)
            print(f"{name}, seed {seed}", flush=True)
    print(markdown(rows))
    write_json(asked.json, rows)
    write_section(asked.results, TITLE, markdown(rows))


if __name__ == "__main__":
    main()
