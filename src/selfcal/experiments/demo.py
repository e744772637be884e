"""The first thing to run: four methods on one small data set, one table, one page."""

from __future__ import annotations

from pathlib import Path

from selfcal import datasets, plots
from selfcal.experiments import bo4sc
from selfcal.predictions import Predictions
from selfcal.progress import progress_bar
from selfcal.report import Picture, report

DATASET = "blobs-1.7"


def run_demo(out: str | Path, seed: int = 0) -> tuple[dict[str, dict[str, float]], Path]:
    """Train, compare and report.

    Returns:
        The scores by method, and the path of the report.
    """
    parts = bo4sc.paper_split(DATASET, seed)
    models = {}
    with progress_bar("Training and tuning", len(bo4sc.FITTED)) as advance:
        for count, (method, fit) in enumerate(bo4sc.FITTED.items()):
            advance(count, bo4sc.METHODS[method])
            models[bo4sc.METHODS[method]] = fit(parts, seed)
    judged = {name: Predictions.of(clf, *parts.test) for name, clf in models.items()}
    posterior = datasets.paper_datasets()[DATASET].posterior(parts.test.X)
    judged[bo4sc.METHODS["oracle"]] = Predictions.from_probabilities(parts.test.y, posterior)
    plane = Picture(
        "Confidence over the plane",
        "The colour is the confidence at each point, the dots are the test rows by class. An honest model is "
        "unsure in a band as broad as the overlap of the classes.",
        plots.confidence_figure({name: clf.confidence for name, clf in models.items()}, *parts.test),
    )
    page = report(
        judged,
        Path(out) / "report.html",
        title="Four ways to train one network",
        subtitle="Blobs 1.7: five overlapping classes in the plane; tuned on 300 validation rows, judged on "
        f"{len(parts.test.y):,} test rows. The oracle is the true posterior: nobody can do better.",
        pictures=[plane],
    )
    return {name: predictions.scores() for name, predictions in judged.items()}, page
