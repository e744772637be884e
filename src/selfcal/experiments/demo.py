"""A demonstration on two data sets: the default method beside simpler ones, and beside the best possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from selfcal import SelfCalibratedClassifier, metrics, plots
from selfcal._support.checks import Float, Int
from selfcal._support.progress import progress_bar
from selfcal.datasets import Blobs
from selfcal.metrics import Interval
from selfcal.reporting import Picture, report
from selfcal.reporting.predictions import ConfidentClassifier, Predictions

BUDGET = {"time_budget": 600.0}
"""Far more than the default method takes here, so that its result does not depend on how busy the machine is."""
FIXED_EPOCHS = {"early_stopping": False, "max_epochs": 1000}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "no early stopping": ("standard", FIXED_EPOCHS),
    "early-stopped": ("standard", {}),
    "early-stopped + temperature": ("temperature", {}),
    "BO4SC": ("bo4sc", {}),
    "auto": ("auto", BUDGET),
}
REFERENCE = "early-stopped + temperature"
"""The method that the others are compared with, row by row."""
LOGISTIC, ORACLE = "logistic regression", "oracle (Bayes)"


class DataSet(NamedTuple):
    """Rows to train on and rows to evaluate on."""

    name: str
    about: str
    X: Float
    y: Int
    X_test: Float
    y_test: Int


class Shown(NamedTuple):
    """What the demonstration has found on one data set.

    Attributes:
        title: The data set, in a line.
        predictions: The predictions of each method on the test rows.
        differences: The difference in log loss from `REFERENCE`, with its 95% interval; not for the reference.
        page: The report.
    """

    title: str
    predictions: dict[str, Predictions]
    differences: dict[str, Interval]
    page: Path


def generated(seed: int = 0) -> DataSet:
    """Five overlapping classes in the plane, whose true posterior is known."""
    blobs = Blobs(std=1.7)
    return DataSet(
        "Blobs 1.7",
        "five classes in the plane",
        *blobs.sample(1000, seed=seed),
        *blobs.sample(5000, seed=1000 + seed),
    )


def real(seed: int = 0) -> DataSet:
    """The Wisconsin diagnostic data on breast cancer, half of it to train on."""
    X, y = load_breast_cancer(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
    return DataSet("Breast cancer", "30 measurements", X, y, X_test, y_test)


def run_demo(out: str | Path, seed: int = 0) -> list[Shown]:
    """Train every method on both data sets with default settings, compare them and write two reports."""
    blobs, table = generated(seed), real(seed)
    with progress_bar("Training", 2 * len(METHODS)) as advance:
        on_blobs = _trained(blobs, seed, advance)
        on_table = _trained(table, seed, lambda count, name: advance(len(METHODS) + count, name))
    logistic = make_pipeline(StandardScaler(), LogisticRegression()).fit(table.X, table.y)
    plane = Picture(
        "Confidence over the plane",
        "The colour is the confidence at each point, the dots are training rows by class. A calibrated model "
        "has low confidence in a band as broad as the overlap of the classes.",
        _plane(on_blobs, blobs),
    )
    posterior = Blobs(std=1.7).posterior(blobs.X_test)
    return [
        _shown(blobs, on_blobs, {ORACLE: posterior}, Path(out) / "report.html", [plane]),
        _shown(table, on_table, {LOGISTIC: logistic.predict_proba(table.X_test)}, Path(out) / "table.html"),
    ]


def _trained(
    data: DataSet, seed: int, started: Callable[[int, str], object]
) -> dict[str, SelfCalibratedClassifier]:
    models = {}
    for count, (name, (method, settings)) in enumerate(METHODS.items()):
        started(count, f"{name} on {data.name}")
        clf = SelfCalibratedClassifier(method, random_state=seed, verbose=False, **settings)
        models[name] = clf.fit(data.X, data.y)
    return models


def _plane(models: dict[str, SelfCalibratedClassifier], data: DataSet) -> Figure:
    shown = ("no early stopping", REFERENCE, "auto")
    confidence = {name: models[name].confidence for name in shown}
    return plots.confidence_figure(confidence, data.X, data.y, resolution=100)


def _shown(
    data: DataSet,
    models: Mapping[str, ConfidentClassifier],
    others: dict[str, Float],
    path: Path,
    pictures: Sequence[Picture] = (),
) -> Shown:
    predictions = {name: Predictions.of(clf, data.X_test, data.y_test) for name, clf in models.items()}
    predictions |= {
        name: Predictions.from_probabilities(data.y_test, probs) for name, probs in others.items()
    }
    reference = predictions[REFERENCE].probs
    differences = {
        name: metrics.compare(data.y_test, judged.probs, reference).difference
        for name, judged in predictions.items()
        if name != REFERENCE
    }
    title = f"{data.name}, {data.about}: {len(data.y):,} rows to train, {len(data.y_test):,} to test"
    page = report(
        predictions,
        path,
        title="One data set, several ways to train",
        subtitle=f"{title}."
        + (" The oracle is the true posterior: the best possible." if ORACLE in others else ""),
        row_names=[f"test row {i}" for i in range(len(data.y_test))],
        settings={"data set": data.name},
        pictures=pictures,
    )
    return Shown(title, predictions, differences, page)


def noise_floor(judged: Predictions) -> float:
    """The ECE that chance alone gives a calibrated model with the same confidences."""
    return metrics.ece_noise_floor(judged.confidence).mean
