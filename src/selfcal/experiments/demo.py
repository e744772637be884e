"""A demonstration: four methods on one small data set, with a table and a report."""

from __future__ import annotations

from pathlib import Path

from selfcal import datasets, plots, recipes
from selfcal._support.progress import progress_bar
from selfcal.experiments.bo4sc import fitted, paper_split
from selfcal.reporting import Picture, report
from selfcal.reporting.predictions import Predictions

DATASET = "blobs-1.7"
FIXED_EPOCHS = {"early_stopping": False, "max_epochs": 1000}
METHODS = {
    "Standard, no early stopping": (recipes.standard, FIXED_EPOCHS),
    "Standard, early-stopped": (recipes.standard, {}),
    "IsoReg, no early stopping": (recipes.isoreg, FIXED_EPOCHS),
    "BO4SC": (recipes.bo4sc, {}),
}


def run_demo(out: str | Path, seed: int = 0) -> tuple[dict[str, dict[str, float]], Path]:
    """Train with default settings, compare and report.

    Returns:
        The scores by method, and the path of the report.
    """
    parts = paper_split(DATASET, seed)
    models = {}
    with progress_bar("Training", len(METHODS)) as advance:
        for count, (name, (make, settings)) in enumerate(METHODS.items()):
            advance(count, name)
            models[name] = fitted(make(), parts, seed, **settings)
    evaluated = {name: Predictions.of(clf, *parts.test) for name, clf in models.items()}
    posterior = datasets.paper_datasets()[DATASET].posterior(parts.test.X)
    evaluated["Oracle (Bayes)"] = Predictions.from_probabilities(parts.test.y, posterior)
    plane = Picture(
        "Confidence over the plane",
        "The colour is the confidence at each point, the dots are the test rows by class. A calibrated model "
        "has low confidence in a band as broad as the overlap of the classes.",
        plots.confidence_figure({name: clf.confidence for name, clf in models.items()}, *parts.test),
    )
    page = report(
        evaluated,
        Path(out) / "report.html",
        title="Four ways to train one network",
        subtitle="Blobs 1.7: five overlapping classes in the plane; 700 training rows, 300 validation rows, "
        f"evaluated on {len(parts.test.y):,} test rows. The oracle is the true posterior: the best possible.",
        row_names=[f"test row {i}" for i in range(len(parts.test.y))],
        settings={"data set": DATASET, "seed of data and training": seed},
        pictures=[plane],
    )
    return {name: predictions.scores() for name, predictions in evaluated.items()}, page
