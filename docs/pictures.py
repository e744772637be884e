"""Draw the pictures of the section *Understanding*, from generated data: ``python -m docs.pictures`` (a minute)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from selfcal import SelfCalibratedClassifier, metrics, plots, recipes
from selfcal.datasets import Blobs, Spirals
from selfcal.reject import threshold_for_risk

FIGURES = Path(__file__).parent / "figures"
MAX_RISK = 0.05
"""The risk that the picture of guarantees promises."""


def calibration() -> Figure:
    """One ranking of rows, three ways to say how sure one is: every probability to a power."""
    spirals = Spirals(std=3.5)
    X, y = spirals.sample(20_000, seed=0)
    told = {}
    for name, power in {"too modest": 0.5, "calibrated": 1.0, "over-confident": 3.0}.items():
        probs = spirals.posterior(X) ** power
        probs /= probs.sum(axis=1, keepdims=True)
        told[name] = (probs.argmax(axis=1) == y, probs.max(axis=1))
    return plots.reliability_figure(told, chance=0.5)


def noise_floor() -> Figure:
    """The ECE of the true probabilities, and of over-confident ones, by the number of test rows."""
    spirals = Spirals(std=3.5)
    sizes = [100, 300, 1_000, 3_000, 10_000, 30_000]
    ece: dict[str, list[list[float]]] = {"perfectly calibrated": [], "over-confident": []}
    for draw in range(30):
        X, y = spirals.sample(sizes[-1], seed=draw)
        probs = spirals.posterior(X)
        sharp = probs**1.5 / (probs**1.5).sum(axis=1, keepdims=True)
        for name, said in zip(ece, (probs, sharp), strict=True):
            ece[name].append([metrics.expected_calibration_error(y[:n], said[:n]) for n in sizes])
    curves = {name: (sizes, values) for name, values in ece.items()}
    return plots.curves_figure(
        {"ECE of the same two models": curves}, xlabel="test rows", ylabel="ECE, 15 bins", log_x=True
    )


def bilevel() -> Figure:
    """The weight of every training row over a run of BO4SC."""
    X, y = Blobs(std=1.7).sample(1_000, seed=0)
    recipe = recipes.bo4sc(outer_lr=0.01)
    clf = SelfCalibratedClassifier(recipe, max_epochs=2_000, early_stopping=False, random_state=0).fit(X, y)
    rows = clf.train_rows_
    return plots.weights_figure(
        clf.history_.snapshot_step // recipe.inner_steps,
        clf.history_.snapshots["weight"],
        X[rows],
        clf.predict(X[rows]) != y[rows],
    )


def guarantees() -> Figure:
    """How often a threshold that was to keep the risk at 5% fails to, over draws of the calibration rows."""
    blobs = Blobs(std=1.7)
    X, y = blobs.sample(200_000, seed=0)
    probs = blobs.posterior(X)
    confidence, wrong = probs.max(axis=1), probs.argmax(axis=1) != y
    order = np.argsort(-confidence)
    falling, risk = confidence[order], np.cumsum(wrong[order]) / np.arange(1, len(order) + 1)

    def fails(threshold: float) -> bool:
        accepted = np.searchsorted(-falling, -threshold, side="right")
        return bool(accepted and risk[accepted - 1] > MAX_RISK)

    generator = np.random.default_rng(0)
    sizes = [100, 200, 500, 1_000, 2_000]
    broken: dict[str, list[float]] = {"5% of the calibration rows": [], "exact bound": []}
    for n in sizes:
        failed = []
        for _ in range(300):
            rows = generator.choice(len(y), n, replace=False)
            exact = threshold_for_risk(wrong[rows], confidence[rows], max_risk=MAX_RISK)
            failed.append((fails(_naive(wrong[rows], confidence[rows])), fails(exact)))
        for name, share in zip(broken, np.mean(failed, axis=0), strict=True):
            broken[name].append(float(share))
    curves = {name: (sizes, shares) for name, shares in broken.items()}
    return plots.curves_figure(
        {"More than 5% of new rows are wrong": curves},
        xlabel="calibration rows",
        ylabel="fraction of 300 draws",
        log_x=True,
    )


def _naive(wrong: np.ndarray, confidence: np.ndarray) -> float:
    """The lowest threshold with at most that risk on the rows themselves."""
    order = np.argsort(-confidence)
    kept = np.flatnonzero(np.cumsum(wrong[order]) <= MAX_RISK * np.arange(1, len(order) + 1))
    return float(confidence[order][kept[-1]]) if len(kept) else np.inf


PICTURES: dict[str, Callable[[], Figure]] = {
    "understanding-calibration": calibration,
    "understanding-noise-floor": noise_floor,
    "understanding-bilevel": bilevel,
    "understanding-guarantees": guarantees,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        svg, _ = plots.save_figure(draw(), FIGURES / name, dpi=110)
        svg.unlink()  # the pages show the other
