"""`selfcal fit` with its defaults on real tables, beside calibrated scikit-learn classifiers on the same splits.

Needs tables with the label in a column `target`; none of them comes with the project:

    python -m benchmarks.tabular --data FOLDER --json runs/tabular.json --results benchmarks/RESULTS.md

Every finished training is kept in the JSON file, so that a run can be interrupted and gone on with. `--again` runs
selfcal anew, after a change of it, and keeps what the others did.
"""

from __future__ import annotations

import argparse
import inspect
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import torch
from sklearn.base import ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from benchmarks._timing import write_section
from selfcal import metrics
from selfcal._support.checks import Float, Int
from selfcal._support.parallel import Results, Row, Unit, run_units
from selfcal.commands.fit import fit as fit_command
from selfcal.datasets import stratified_split
from selfcal.experiments._tables import mean_and_error
from selfcal.tabular.io import read_table
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.tabular.target import read_target
from selfcal.workflows.comparison import standings
from selfcal.workflows.table_model import TableModel

TITLE, TARGET = "Real tables", "target"
MOST_ROWS, HELD_OUT, FOLDS = 5000, 0.4, 5
KEY = ("dataset", "seed", "name")
DEFAULT_METHOD: str = inspect.signature(fit_command).parameters["method"].default


@dataclass(frozen=True)
class Split:
    """A table, the rows to train on, and those to judge by, which `selfcal fit --held-out` would choose."""

    table: pl.DataFrame
    codes: Int
    train: Int
    held_out: Int
    model: TableModel

    @classmethod
    def of(cls, path: Path, seed: int) -> Split:
        table = read_table(str(path))
        codes = read_target(table, TARGET).codes
        if len(codes) > MOST_ROWS:
            (kept,) = stratified_split(codes, (MOST_ROWS,), seed=seed)
            table = table[kept]
            codes = read_target(table, TARGET).codes
        model = TableModel(DEFAULT_METHOD, seed=seed, held_out=HELD_OUT, verbose=False)
        parts = model.parts(table, TARGET)
        return cls(table, codes, np.union1d(parts.train, parts.validation), parts.held_out, model)


def selfcal(split: Split, seed: int) -> Float:
    return split.model.fit(split.table, TARGET).predict(split.table[split.held_out]).probs


def calibrated(build: Callable[[int], ClassifierMixin], split: Split, seed: int) -> Float:
    """Five networks or forests, each calibrated on the fold it has not seen; the mean of what they say."""
    numbers = Preprocessor().fit(split.table[split.train], split.model.schema)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    classifier = CalibratedClassifierCV(build(seed), method="temperature", cv=folds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the limit of passes is one of the defaults
        classifier.fit(numbers.transform(split.table[split.train]), split.codes[split.train])
    return classifier.predict_proba(numbers.transform(split.table[split.held_out]))


def network(seed: int) -> MLPClassifier:
    return MLPClassifier(random_state=seed)


def stopped_network(seed: int) -> MLPClassifier:
    return MLPClassifier(early_stopping=True, random_state=seed)


def boosting(seed: int) -> HistGradientBoostingClassifier:
    return HistGradientBoostingClassifier(random_state=seed)


OURS = f"selfcal ({DEFAULT_METHOD})"
MLP, STOPPED_MLP, BOOSTING = "MLP", "MLP, stopped early", "gradient boosting"
METHODS: dict[str, Callable[[Split, int], Float]] = {
    OURS: selfcal,
    MLP: partial(calibrated, network),
    STOPPED_MLP: partial(calibrated, stopped_network),
    BOOSTING: partial(calibrated, boosting),
}


def work(folder: Path, unit: Unit) -> list[Row]:
    """Train one method on one table with one seed, and judge it."""
    dataset, seed, name = unit
    with threadpool_limits(1):
        split = Split.of(file_of(folder, dataset), seed)
        started = time.process_time()  # of one thread: waiting for a busy machine is not counted
        probs = METHODS[name](split, seed)
        seconds = time.process_time() - started
    y = split.codes[split.held_out]
    ece = metrics.calibration_error_interval(y, probs)
    row = {
        "log_loss": metrics.log_loss(y, probs),
        "accuracy": metrics.accuracy(y, probs),
        "brier_score": metrics.brier_score(y, probs),
        "ece": ece.value,
        "ece_interval": [ece.low, ece.high],
        "noise_floor": metrics.ece_noise_floor(probs.max(axis=1)).mean,
        "smooth_ece": metrics.smooth_calibration_error(y, probs),
        "seconds": seconds,
        "rows": [len(split.train), len(y)],
    }
    return [{"dataset": dataset, "seed": seed, "name": name, "failed": None, **row}]


def file_of(folder: Path, dataset: str) -> Path:
    return folder / f"tab_{dataset}.csv.gz"


def sets_in(folder: Path) -> list[str]:
    return sorted(path.name[len("tab_") : -len(".csv.gz")] for path in folder.glob("tab_*.csv.gz"))


@dataclass(frozen=True)
class Gap:
    """The log loss of selfcal less another's on one set: mean over seeds, with its interval."""

    other: str
    value: float
    low: float
    high: float

    @classmethod
    def to(cls, other: str, rows: Sequence[Row]) -> Gap:
        best, behind = standings([row for row in rows if row["name"] in (OURS, other)], held_out=HELD_OUT)
        if best.name == OURS:
            return cls(other, -behind.behind, -behind.high, -behind.low)
        return cls(other, behind.behind, behind.low, behind.high)

    def __str__(self) -> str:
        if np.isnan(self.low):
            return f"{self.value:+.4f}"
        return f"{self.value:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"

    @property
    def verdict(self) -> str:
        if self.high < 0:
            return "better"
        return "worse" if self.low > 0 else "open"


def gaps(rows: Sequence[Row], *others: str) -> dict[str, Gap]:
    """By set, the gap to the best of the others there, the one beside which selfcal looks worst."""
    datasets = dict.fromkeys(row["dataset"] for row in rows)
    own = {name: [row for row in rows if row["dataset"] == name] for name in datasets}
    return {
        name: max((Gap.to(other, own[name]) for other in others), key=lambda gap: gap.value)
        for name in datasets
    }


def standing(rows: Sequence[Row], *others: str) -> str:
    """In words, on how many sets selfcal is no worse than the best of the others."""
    found = gaps(rows, *others)
    lost = [name for name, gap in found.items() if gap.value > 0]
    clear = {v: sum(gap.verdict == v for gap in found.values()) for v in ("better", "worse")}
    text = f"{len(found) - len(lost)} of {len(found)} sets (clearly better on {clear['better']}, clearly worse on "
    return text + f"{clear['worse']})" + (f"; worse on {', '.join(lost)}" if lost else "")


def markdown(rows: Sequence[Row]) -> str:
    seeds = len({row["seed"] for row in rows})
    lines = [
        f"Mean ± standard error over {seeds} seed{'s' * (seeds != 1)}.",
        "The log loss of `selfcal fit` is no worse than that of",
        "",
        f"- the calibrated MLP with its defaults on {standing(rows, MLP)};",
        f"- the calibrated MLP stopped early on {standing(rows, STOPPED_MLP)};",
        f"- the better one of these two on {standing(rows, MLP, STOPPED_MLP)};",
        f"- calibrated gradient boosting on {standing(rows, BOOSTING)}.",
        "",
        "*Clearly* means that the 95% interval of the paired difference does not contain 0.",
    ]
    behind = {name: str(gap) for name, gap in gaps(rows, MLP, STOPPED_MLP).items()}
    lines += _table("Log loss", rows, _mean("log_loss", 4), {"selfcal less the better MLP": behind})
    lines += _table("Accuracy, %", rows, _mean("accuracy", 1, scale=100))
    lines += _table("ECE, %, and in brackets the ECE expected of a perfectly calibrated model", rows, _ece)
    lines += _table("Training, seconds of one core", rows, _mean("seconds", 1))
    return "\n".join(lines)


def _table(
    title: str,
    rows: Sequence[Row],
    shown: Callable[[list[Row]], str],
    extra: Mapping[str, Mapping[str, str]] | None = None,
) -> list[str]:
    """Sets down, methods across, then further columns by set."""
    extra = extra or {}
    cells: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        cells.setdefault(row["dataset"], {}).setdefault(row["name"], []).append(row)
    head = ["", "rows: trained, judged", *METHODS, *extra]
    lines = ["", f"**{title}**", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for dataset, of in cells.items():
        trained, judged = of[OURS][0]["rows"]
        texts = [dataset, f"{trained:,}, {judged:,}", *(shown(of[name]) for name in METHODS)]
        lines.append(f"| {' | '.join([*texts, *(column[dataset] for column in extra.values())])} |")
    return lines


def _mean(column: str, digits: int, *, scale: float = 1.0) -> Callable[[list[Row]], str]:
    def shown(rows: list[Row]) -> str:
        mean, error = mean_and_error([scale * row[column] for row in rows])
        return f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if np.isfinite(error) else "")

    return shown


def _ece(rows: list[Row]) -> str:
    floor, _ = mean_and_error([100 * row["noise_floor"] for row in rows])
    return f"{_mean('ece', 1, scale=100)(rows)} ({floor:.1f})"


def forget(kept: Results) -> None:
    """Drop what selfcal did, so that it is run anew."""
    kept.write([row for row in kept.rows() if row["name"] != OURS])


def run(folder: Path, datasets: Sequence[str], seeds: int, kept: Results, *, jobs: int) -> list[Row]:
    """Run what is not kept yet; the rows asked for, set by set."""
    # all sets with the first seed first: a run that is cut short has something to say of each
    units = [(dataset, seed, name) for seed, dataset, name in product(range(seeds), datasets, METHODS)]
    rows = run_units(partial(work, folder), units, kept, jobs=jobs, title="Tables", key=KEY)
    return sorted(rows, key=lambda row: datasets.index(row["dataset"]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with files tab_NAME.csv.gz")
    parser.add_argument("--json", type=Path, required=True, help="keeps what is finished")
    parser.add_argument("--sets", nargs="+", help="names of tables; all of the folder by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="run selfcal anew, keep the others")
    parser.add_argument("--results", type=Path, help="also write the tables as Markdown")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = Results(options.json, {"most_rows": MOST_ROWS, "held_out": HELD_OUT, "folds": FOLDS})
    if options.again:
        forget(kept)
    datasets = options.sets or sets_in(options.data)
    rows = run(options.data, datasets, options.seeds, kept, jobs=options.jobs)
    print(markdown(rows))
    write_section(options.results, TITLE, markdown(rows))


if __name__ == "__main__":
    main()
