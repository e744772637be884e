"""Table 1 and figures 1 to 3 of the BO4SC paper, with added baselines and reference values.

Protocol: 2000 rows a seed, divided into 700 for training, 300 for validation and 1000 for testing. All
hyperparameters are chosen on validation rows. Beside the paper's test set, every model is evaluated on 100,000
fresh rows and against the known posterior.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from selfcal import (
    Predictions,
    Recipe,
    SelfCalibratedClassifier,
    __version__,
    datasets,
    metrics,
    plots,
    recipes,
    report,
)
from selfcal._support.checks import one_of, positive_int
from selfcal._support.files import write_atomically
from selfcal._support.parallel import Results, Row, Unit, run_units
from selfcal._support.progress import progress_bar
from selfcal.datasets import ThreeWaySplit
from selfcal.experiments._tables import summary_table
from selfcal.hypergradients import Unrolled
from selfcal.optimizers import NormalizedSGD

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {
    "standard": "Standard",
    "early_stopped": "Standard, early-stopped",
    "isoreg": "IsoReg",
    "bo4sc": "BO4SC",
    "oracle": "Oracle (Bayes)",
}
SIZES = (700, 300, 1000)
METHODS_IN_FIGURES = ("standard", "isoreg", "bo4sc")
LARGE_TEST = 100_000
LARGE_TEST_SEED = 1_000_003
EPOCHS = 1000
LEARNING_RATES = (0.003, 0.01)
OUTER_LEARNING_RATES = (0.003, 0.01, 0.03)
TUNING_REPEATS = 4
"""Fits per candidate of the outer level, each with different validation rows for selection."""


def paper_split(dataset: str, seed: int) -> ThreeWaySplit:
    """2000 rows of a data set as 700 for training, 300 for validation and 1000 for testing."""
    rows = datasets.paper_datasets()[dataset].sample(sum(SIZES), seed=seed)
    return datasets.three_way_split(*rows, sizes=SIZES, seed=seed)


def fitted(recipe: Recipe, parts: ThreeWaySplit, seed: int, **settings: Any) -> SelfCalibratedClassifier:
    """A classifier trained on the training rows, with the validation rows where it needs some."""
    clf = SelfCalibratedClassifier(recipe, random_state=seed, verbose=False, **settings)
    needed = recipe.needs_outer_data or clf.early_stopping
    X_val, y_val = parts.validation if needed else (None, None)
    return clf.fit(*parts.train, X_val=X_val, y_val=y_val)


def trained_on(recipe: Recipe, parts: ThreeWaySplit, seed: int) -> SelfCalibratedClassifier:
    """Trained for all epochs as in the paper, with the learning rate of the best validation accuracy."""
    settings = {"max_epochs": EPOCHS, "early_stopping": False}
    candidates = [fitted(recipe, parts, seed, learning_rate=rate, **settings) for rate in LEARNING_RATES]
    return max(candidates, key=lambda clf: clf.score(*parts.validation))


def early_stopped(recipe: Recipe, parts: ThreeWaySplit, seed: int) -> SelfCalibratedClassifier:
    """Stopped at the lowest log loss on all validation rows, with the learning rate that makes it lowest."""
    settings = {"max_epochs": EPOCHS, "patience": 20}
    candidates = [fitted(recipe, parts, seed, learning_rate=rate, **settings) for rate in LEARNING_RATES]
    return min(candidates, key=lambda clf: clf.history_.selection_loss.min())


def tuned_bilevel(candidates: Sequence[Recipe], parts: ThreeWaySplit, seed: int) -> SelfCalibratedClassifier:
    """The recipe, learning rate and number of steps of the lowest log loss on rows the outer level did not see.

    Each candidate is trained with half of the validation rows at the outer level and evaluated on the other
    half, for several halvings; the best one is then trained again with all validation rows at the outer level.
    """
    scores = []
    for recipe, rate in itertools.product(candidates, LEARNING_RATES):
        settings = {"learning_rate": rate, "max_epochs": EPOCHS, "patience": None}
        repeats = [
            fitted(recipe, parts, seed + 1000 * repeat, **settings).history_
            for repeat in range(TUNING_REPEATS)
        ]
        loss = np.mean([history.selection_loss for history in repeats], axis=0)
        best = int(np.argmin(loss))
        scores.append((loss[best], int(repeats[0].selection_step[best]), recipe, rate))
    _, steps, recipe, rate = min(scores, key=lambda score: score[0])
    return fitted(recipe, parts, seed, learning_rate=rate, max_epochs=steps, early_stopping=False)


def _bilevel_recipes() -> list[Recipe]:
    return [recipes.bo4sc(outer_lr=rate) for rate in OUTER_LEARNING_RATES]


FITTED: dict[str, Callable[[ThreeWaySplit, int], SelfCalibratedClassifier]] = {
    "standard": functools.partial(trained_on, recipes.standard()),
    "early_stopped": functools.partial(early_stopped, recipes.standard()),
    "isoreg": functools.partial(trained_on, recipes.isoreg()),
    "bo4sc": functools.partial(tuned_bilevel, _bilevel_recipes()),
}
"""The function that tunes each method on the validation rows and fits it."""


def run_unit(unit: Unit, pages: Path | None = None) -> list[Row]:
    """All rows of one data set and seed; the first seed also writes a report into `pages`."""
    dataset, seed = unit
    parts = paper_split(dataset, seed)
    X, y, posterior = _large_test(dataset)
    small = datasets.paper_datasets()[dataset].posterior(parts.test.X)
    evaluated, settings = {}, {}
    for method, fit in FITTED.items():
        clf = fit(parts, seed)
        evaluated[method] = Predictions.of(clf, *parts.test), Predictions.of(clf, X, y)
        settings[method] = {"settings": _settings(clf)}
    evaluated["oracle"] = (
        Predictions.from_probabilities(parts.test.y, small),
        Predictions.from_probabilities(y, posterior),
    )
    if pages is not None and seed == 0:
        report(
            {METHODS[method]: large for method, (_, large) in evaluated.items()},
            pages / f"{dataset}.html",
            title=f"BO4SC and other methods on {dataset}",
            subtitle=f"Trained on {SIZES[0]} rows with {SIZES[1]} validation rows, evaluated on {len(y):,} new rows. "
            "The oracle is the true posterior, which is optimal.",
            settings={METHODS[method]: of_method["settings"] for method, of_method in settings.items()},
        )
    return [_row(unit, method, *pair) | settings.get(method, {}) for method, pair in evaluated.items()]


def reproduce(
    out: str | Path,
    *,
    seeds: int = 10,
    only: Iterable[str] | None = None,
    jobs: int = 1,
    progress: bool | None = None,
) -> list[Row]:
    """Run the experiment and write `results.json`, `table.md`, reports and the figures into `out`.

    Args:
        out: The folder; finished rows found there are not run again.
        seeds: Number of seeds, counted from 0.
        only: Names of data sets; all five by default.
        jobs: Processes to use.
        progress: Show the progress: True in lines, too, where there is no terminal; None only on a terminal.

    Returns:
        One row per data set, method and seed.
    """
    folder = Path(out)
    names = [
        one_of("datasets", name, datasets.paper_datasets()) for name in only or datasets.paper_datasets()
    ]
    units = [(name, seed) for seed in range(positive_int("seeds", seeds)) for name in names]
    results = Results(folder / "results.json", protocol())
    work = functools.partial(run_unit, pages=folder / "reports")
    rows = run_units(
        work,
        units,
        results,
        jobs=positive_int("jobs", jobs),
        title="Reproducing BO4SC",
        progress=progress,
    )
    write_atomically(folder / "table.md", summary_table(rows, METHODS))
    for name, figure in figures(names, folder).items():
        plots.save_figure(figure, folder / name)
    return rows


def figures(names: Sequence[str], drawn: Path | None = None, seed: int = 0) -> dict[str, Figure]:
    """The paper's three figures for those of its data sets that are among `names`, except for those in `drawn`."""
    found = {}
    for name, (dataset, draw) in FIGURES.items():
        if dataset in names and not (drawn is not None and (drawn / f"{name}.png").exists()):
            with progress_bar(f"Drawing {name}", 1):
                found[name] = draw(paper_split(dataset, seed), seed)
    return found


def _confidence_figure(parts: ThreeWaySplit, seed: int) -> Figure:
    models = {METHODS[method]: FITTED[method](parts, seed) for method in METHODS_IN_FIGURES}
    return plots.confidence_figure({name: clf.confidence for name, clf in models.items()}, *parts.test)


def _reliability_figure(parts: ThreeWaySplit, seed: int) -> Figure:
    evaluated = {METHODS[m]: Predictions.of(FITTED[m](parts, seed), *parts.test) for m in METHODS_IN_FIGURES}
    pairs = {name: (p.correct, p.confidence) for name, p in evaluated.items()}
    return plots.reliability_figure(pairs, chance=1 / 2)


def _row(unit: Unit, method: str, small: Predictions, large: Predictions) -> Row:
    """The scores of one model on the paper's test rows, on fresh rows, and against the posterior."""
    dataset, seed = unit
    chance_of_being_right = _large_test(dataset)[2][np.arange(len(large.y)), large.chosen]
    return {
        "dataset": dataset,
        "method": method,
        "seed": seed,
        **small.scores(),
        **{f"{name}_100k": value for name, value in large.scores().items()},
        "calibration_error": metrics.confidence_calibration_error(chance_of_being_right, large.confidence),
        "below_chance": large.below_chance,
    }


def _weights_figure(parts: ThreeWaySplit, seed: int) -> Figure:
    """Weights over a whole run with the exact hypergradient; early stopping would end it before they settle."""
    recipe = recipes.bo4sc(outer_lr=0.01, hypergradient=Unrolled())
    clf = fitted(recipe, parts, seed, max_epochs=EPOCHS, early_stopping=False)
    return plots.weights_figure(
        clf.history_.snapshot_step // recipe.inner_steps,
        clf.history_.snapshots["weight"],
        parts.train.X,
        clf.predict(parts.train.X) != parts.train.y,
    )


FIGURES: dict[str, tuple[str, Callable[[ThreeWaySplit, int], Figure]]] = {
    "figure-1-confidence": ("blobs-1.7", _confidence_figure),
    "figure-2-reliability": ("spiral-3.5", _reliability_figure),
    "figure-3-weights": ("blobs-1.7", _weights_figure),
}


def _settings(clf: SelfCalibratedClassifier) -> dict[str, Any]:
    chosen: dict[str, Any] = {"learning_rate": clf.learning_rate, "steps": clf.best_iter_}
    if isinstance(clf.method_, Recipe) and isinstance(clf.method_.outer_optimizer, NormalizedSGD):
        chosen["outer_lr"] = clf.method_.outer_optimizer.lr
    return chosen


def protocol() -> dict[str, Any]:
    """The settings that all rows of a results file have in common."""
    return {
        "experiment": "bo4sc",
        "version": __version__,
        "methods": list(METHODS),
        "sizes": SIZES,
        "epochs": EPOCHS,
        "learning_rates": LEARNING_RATES,
        "bilevel_recipes": [repr(recipe) for recipe in _bilevel_recipes()],
        "tuning_repeats": TUNING_REPEATS,
        "large_test": LARGE_TEST,
    }


@functools.cache
def _large_test(dataset: str) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    source = datasets.paper_datasets()[dataset]
    X, y = source.sample(LARGE_TEST, seed=LARGE_TEST_SEED)
    return X, y, source.posterior(X)
