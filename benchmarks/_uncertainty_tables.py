"""The rows of the comparison of uncertainty scores and methods, as sections of a page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import fill

import numpy as np

from benchmarks._quality_board import Gap, ranks_of
from benchmarks._quality_tables import table
from benchmarks._uncertainty_sets import LEFT_OUT
from selfcal._support.checks import Float
from selfcal._support.parallel import Row
from selfcal.experiments._tables import mean_and_error

NOVELTY, ERRORS, METHODS = (
    "Uncertainty: rows unlike the training data",
    "Uncertainty: errors",
    "Uncertainty: probabilities",
)
SINGLE, REFERENCE = "standard", "MaximumProbability"
WIDTH = 118


@dataclass
class Values:
    """One number by name of the row, by name of the column, and by seed; less is better, if not said otherwise."""

    found: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    more_is_better: bool = False

    def add(self, name: str, column: str, seed: int, value: float) -> None:
        self.found.setdefault(name, {}).setdefault(column, {})[seed] = value

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for of in self.found.values() for column in of))

    def mean(self, name: str, column: str) -> tuple[float, float]:
        values = list(self.found[name].get(column, {}).values())
        return mean_and_error(values) if values else (np.nan, np.nan)

    def overall(self, name: str) -> float:
        """The mean over the columns; NaN if one is missing."""
        return float(np.mean([self.mean(name, column)[0] for column in self.columns]))

    def ranks(self) -> dict[str, float]:
        """The mean rank over the columns, best first, of those with results in all of them."""
        names = [name for name in self.found if np.isfinite(self.overall(name))]
        means = np.array([[self.mean(name, column)[0] for name in names] for column in self.columns])
        places: Float = ranks_of(-means if self.more_is_better else means)
        return {names[i]: float(places[i]) for i in np.argsort(places, kind="stable")}

    def beside(self, name: str, reference: str) -> str:
        """In how many columns it is clearly better than the reference, undecided, and clearly worse."""
        counts = [0, 0, 0]
        for column, values in self.found[name].items():
            other = self.found[reference][column]
            gap = Gap(*mean_and_error([values[s] - other[s] for s in values if s in other]), len(values))
            better = (gap.mean > 0) == self.more_is_better
            counts[1 if not gap.clear else 0 if better else 2] += 1
        return "" if name == reference else " / ".join(map(str, counts))

    def cell(self, name: str, column: str, digits: int) -> str:
        """Mean and standard error; the best mean of a column is bold."""
        mean, error = self.mean(name, column)
        if not np.isfinite(mean):
            return ""
        means = [self.mean(other, column)[0] for other in self.found]
        best = np.nanmax(means) if self.more_is_better else np.nanmin(means)
        text = f"{mean:.{digits}f}" + (f" ± {error:.{digits}f}" if np.isfinite(error) else "")
        return f"**{text}**" if mean == best else text


def sections(rows: Sequence[Row], memory: Mapping[str, float]) -> dict[str, str]:
    """Markdown by title."""
    return {NOVELTY: novelty(rows), ERRORS: errors(rows), METHODS: methods(rows, memory)}


def novelty(rows: Sequence[Row]) -> str:
    """AUROC of every score on every kind of novel rows, best mean rank first."""
    failed = [
        f"{row['score']} on {row['set']}, seed {row['seed']}" for row in rows if row["what"] == "failed"
    ]
    left_out = ["", f"Could not be fitted: {'; '.join(failed)}."] if failed else []
    rows = [row for row in rows if row["what"] == "novelty"]
    area, alarms, found = Values(more_is_better=True), Values(), Values(more_is_better=True)
    for row in rows:
        for values, key in ((area, "auroc"), (alarms, "false_alarms"), (found, "found")):
            values.add(_label(row), _column(row), row["seed"], row[key])
    text = (
        f"{_seeds(rows)} Tables: one class is left out of training, another one for each seed; Fashion-MNIST: other "
        "images. AUROC of telling those rows from test rows of the known classes, mean ± standard error, the best in "
        "bold; then means over the columns: false alarms among usual rows where 95% of the novel rows are found, and "
        "novel rows found at 5% false alarms. The last column counts where the AUROC is clearly (by more than two "
        f"standard errors) better than that of `{REFERENCE}` / undecided / worse. Best mean rank first."
    )
    heads = ["score", "mean rank", *area.columns, "false alarms at 95% found", "found at 5% false alarms"]
    body = []
    for name, rank in _ranked(area).items():
        means = [f"{alarms.overall(name):.0%}", f"{found.overall(name):.0%}"] if rank else ["", ""]
        cells = [area.cell(name, column, 3) for column in area.columns]
        body.append([name, rank, *cells, *means, area.beside(name, REFERENCE)])
    return "\n".join([fill(text, WIDTH), "", *table([*heads, "better / open / worse"], body), *left_out])


def errors(rows: Iterable[Row]) -> str:
    """AURC of every score on the test rows of the known classes."""
    rows = [row for row in rows if row["what"] == "errors"]
    area, general = Values(), Values()
    for row in rows:
        area.add(_label(row), row["set"], row["seed"], 1000 * row["aurc"])
        general.add(_label(row), row["set"], row["seed"], 1000 * row["augrc"])
    text = (
        f"{_seeds(rows)} AURC on test rows of the known classes, in thousandths, mean ± standard error: the error "
        "rate on average over all coverages. AUGRC: its mean over the sets, in thousandths. Scores of other methods "
        "than the single network order the errors of that method. Better / open / worse: beside "
        f"`{REFERENCE}` of the same method."
    )
    heads = ["score", "mean rank", *area.columns, "AUGRC", "better / open / worse"]
    body = [
        [
            name,
            rank,
            *(area.cell(name, column, 1) for column in area.columns),
            f"{general.overall(name):.1f}" if rank else "",
            area.beside(name, _reference(name)),
        ]
        for name, rank in _ranked(area).items()
    ]
    return "\n".join([fill(text, WIDTH), "", *table(heads, body)])


def methods(rows: Iterable[Row], memory: Mapping[str, float]) -> str:
    """Log loss of every method, and means of the rest."""
    rows = [row for row in rows if row["what"] == "method"]
    kinds = ("log_loss", "ece", "accuracy", "fit_seconds", "rows_per_second")
    values = {kind: Values() for kind in kinds}
    for row in rows:
        for kind in kinds:
            values[kind].add(row["method"], row["set"], row["seed"], row[kind])
    loss = values["log_loss"]
    text = (
        f"{_seeds(rows)} Log loss on test rows of the known classes, mean ± standard error, the best in bold; then "
        "means over the sets: ECE in 15 bins, accuracy, seconds of one core to train, and predicted rows a second. "
        "Memory is the peak of training and of predicting 5,000 rows of the digits. Better / open / worse: the log "
        f"loss beside that of `{SINGLE}`."
    )
    heads = ["method", "mean rank", *loss.columns, "better / open / worse"]
    heads += ["ECE", "accuracy", "fit, s", "rows a second", "MB"]
    formats = {"ece": ".2%", "accuracy": ".1%", "fit_seconds": ".1f", "rows_per_second": ",.0f"}
    body = []
    for name, rank in _ranked(loss).items():
        cells = [loss.cell(name, column, 3) for column in loss.columns]
        means = [format(values[kind].overall(name), form) if rank else "" for kind, form in formats.items()]
        body.append([f"`{name}`", rank, *cells, loss.beside(name, SINGLE), *means, f"{memory[name]:.0f}"])
    return "\n".join([fill(text, WIDTH), "", *table(heads, body)])


def _label(row: Row) -> str:
    return row["score"] if row["method"] == SINGLE else f"{row['score']}, {row['method']}"


def _reference(label: str) -> str:
    """The label of the plain confidence of the same method."""
    method = label.partition(", ")[2]
    return REFERENCE if method in ("", "all training rows") else f"{REFERENCE}, {method}"


def _column(row: Row) -> str:
    return row["set"] if row["novel"] == LEFT_OUT else f"{row['set']} beside {row['novel']}"


def _ranked(values: Values) -> dict[str, str]:
    """The mean rank of each name, best first; those with missing results last, without one."""
    places = {name: f"{rank:.1f}" for name, rank in values.ranks().items()}
    return places | {name: "" for name in values.found if name not in places}


def _seeds(rows: Sequence[Row]) -> str:
    count = len({row["seed"] for row in rows})
    return f"{count} seed{'s' * (count != 1)}."
