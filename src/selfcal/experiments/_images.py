"""Training of image networks by several recipes under equal conditions, and evaluation on the same test images."""

from __future__ import annotations

import copy
import functools
import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from selfcal import (
    BilevelStep,
    ImageBatches,
    Predictions,
    Recipe,
    __version__,
    calibrators,
    datasets,
    metrics,
    models,
    plots,
    report,
    train,
)
from selfcal._support.checks import Float, Int
from selfcal._support.files import write_atomically
from selfcal._support.parallel import Results, Row, run_units
from selfcal._support.random_streams import seeded
from selfcal.datasets import ImageSet
from selfcal.optimizers import SGD, StepDecay
from selfcal.training.engine import TrainingEvent, held_out_logits

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNIT = ("dataset", "network", "run", "seed")
"""The key of a unit of work, also in its rows."""

SWEPT_BINS = (10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Profile:
    """The size of an experiment.

    Attributes:
        dataset: A name for `datasets.load_images`.
        networks: Functions of `models` by name, with their width.
        epochs: Passes over the training images; the step size falls tenfold after 3/7 and 5/7 of them.
        seeds: Number of seeds.
        rows: Total number of training images; None for all.
        parts: The fractions of them for training, for the outer level or a calibrator, and for selection.
        test_rows: Test images for the curves over epochs; tables use all of them.
        every: Training steps per outer step.
        augment: Whether images are cropped and flipped at random.
        needs_gpu: Whether it is infeasible without one.
        choose: Which state is evaluated: that of the lowest ``"error"`` on the selection rows, or the ``"last"``.
        runs: The recipes by name; None for those of the paper.
        curve_every: Epochs between two evaluations for the curves.
    """

    dataset: str
    networks: Mapping[str, int]
    epochs: int
    seeds: int
    rows: int | None = None
    parts: tuple[float, float, float] = (0.8, 0.1, 0.1)
    test_rows: int = 10_000
    every: int = 1
    augment: bool = True
    choose: str = "error"
    needs_gpu: bool = False
    runs: tuple[str, ...] | None = None
    curve_every: int = 1
    batch_size: int = 128
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4


@dataclass(frozen=True)
class ImageExperiment:
    """A paper's methods, at some size, on images in some folder."""

    name: str
    profile: Profile
    recipes: Mapping[str, Recipe]
    data_dir: Path

    def units(self) -> list[tuple[Any, ...]]:
        """One training run each."""
        return [
            (self.profile.dataset, network, run, seed)
            for seed in range(self.profile.seeds)
            for network in self.profile.networks
            for run in self.recipes
        ]

    def protocol(self) -> dict[str, Any]:
        """The settings that all rows of a results file have in common; seeds may be added later."""
        return {
            "experiment": self.name,
            "version": __version__,
            "profile": {name: value for name, value in asdict(self.profile).items() if name != "seeds"},
            "recipes": {run: repr(recipe) for run, recipe in self.recipes.items()},
        }

    def run(self, out: Path, *, jobs: int, title: str, progress: bool | None = None) -> list[Row]:
        """Return all rows; those already in `out` are not run again."""
        _images(self.profile.dataset, self.data_dir)  # fails here, not in a worker, if there are no images
        results = Results(out / "results.json", self.protocol())
        work = functools.partial(run_unit, self, keep=out / "predictions")
        return run_units(work, self.units(), results, jobs=jobs, title=title, key=UNIT, progress=progress)

    def reports(self, out: Path, methods: Mapping[str, str]) -> None:
        """Write a page for each network, from the predictions of the first seed."""
        images = _images(self.profile.dataset, self.data_dir)
        for network in self.profile.networks:
            kept = {
                label: out / "predictions" / f"{network}-{method}.npy" for method, label in methods.items()
            }
            evaluated = {
                label: Predictions.from_probabilities(images.y_test, np.load(path, allow_pickle=False))
                for label, path in kept.items()
                if path.exists()
            }
            if evaluated:
                report(
                    evaluated,
                    out / "reports" / f"{network}.html",
                    title=f"{network} on {images.name}",
                    subtitle=f"{len(images.y_test):,} test images; the first of {self.profile.seeds} seeds.",
                    classes=images.classes,
                    settings=asdict(self.profile),
                )

    def hours(self) -> float:
        """Estimate the hours on this machine, from a few training steps of each network."""
        data = _Data.of(self.profile, _images(self.profile.dataset, self.data_dir), seed=0)
        seconds = 0.0
        for network in self.profile.networks:
            for recipe in self.recipes.values():
                module = self._module(network, data)
                step = BilevelStep(module, SGD(lr=0.01, momentum=0.9), recipe, n_train=data.train.n_rows)
                batch, outer = (next(part.one_pass(0)) for part in (data.train, data.outer))
                step(batch, outer)
                started = time.perf_counter()
                for _ in range(2):
                    step(batch, outer)
                seconds += (time.perf_counter() - started) / 2 * len(data.train) * self.profile.epochs
        return seconds * self.profile.seeds / 3600

    def _module(self, network: str, data: _Data, seed: int = 0) -> nn.Module:
        with seeded(seed):
            build = getattr(models, network)
            width = self.profile.networks[network]
            module: nn.Module = build(data.n_classes, width=width, channels=data.channels)
        return module.to("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True)
class _Data:
    """The parts of an image set in batches."""

    train: ImageBatches
    outer: ImageBatches
    selection: ImageBatches
    test: ImageBatches
    curve: ImageBatches
    n_classes: int
    channels: int

    @classmethod
    def of(cls, profile: Profile, images: ImageSet, seed: int) -> _Data:
        """Split the training images by the seed, stratified by class; the test images are the same for all."""
        n = profile.rows or len(images.y_train)
        sizes = [round(fraction * n) for fraction in profile.parts]
        rows = datasets.stratified_split(images.y_train, sizes, seed=seed)
        x, y, batch_size = images.x_train, images.y_train, profile.batch_size
        train = ImageBatches(
            x[rows[0]], y[rows[0]], batch_size=batch_size, seed=seed, augment=profile.augment
        )
        same: dict[str, Any] = {"batch_size": batch_size, "mean": train.mean, "std": train.std}
        curve = slice(profile.test_rows)
        return cls(
            train,
            ImageBatches(x[rows[1]], y[rows[1]], seed=seed + 1, **same),
            ImageBatches(x[rows[2]], y[rows[2]], shuffle=False, **same),
            ImageBatches(images.x_test, images.y_test, shuffle=False, **same),
            ImageBatches(images.x_test[curve], images.y_test[curve], shuffle=False, **same),
            int(y.max()) + 1,
            x.shape[1],
        )


@dataclass
class _Watch:
    """Called after every few epochs: keeps the states to evaluate, and the curves for the figures."""

    data: _Data
    learns_gamma: bool
    states: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    curves: dict[str, list[float]] = field(default_factory=dict)
    _best: dict[str, float] = field(default_factory=dict)

    def __call__(self, event: TrainingEvent) -> None:
        step = event.step
        module = step.problem.module
        y, probs = predictions(module, self.data.selection)
        scores = {
            "log_loss": metrics.log_loss(y, probs),
            "error": float((probs.argmax(axis=1) != y).mean()),
            "last": -float(step.count),
        }
        for name, score in scores.items():
            if score < self._best.get(name, np.inf):
                self._best[name] = score
                self.states[name] = copy.deepcopy(module.state_dict())
        y, probs = predictions(module, self.data.curve)
        self._note(
            epoch=step.count / len(self.data.train),
            ece=100 * metrics.expected_calibration_error(y, probs),
            error=100 * (probs.argmax(1) != y).mean(),
        )
        if self.learns_gamma:
            gamma = torch.cat(
                [step.hyperparameters(b)["gamma"] for b in self.data.curve.one_pass(0)]
            ).double()
            self._note(gamma_mean=float(gamma.mean()), gamma_sd=float(gamma.std()))

    def _note(self, **values: float) -> None:
        for name, value in values.items():
            self.curves.setdefault(name, []).append(float(value))


def run_unit(experiment: ImageExperiment, unit: tuple[Any, ...], keep: Path | None = None) -> list[Row]:
    """Train one network by one recipe; plain training is also evaluated early-stopped and with a temperature.

    The first seed also stores its probabilities in the folder `keep`.
    """
    dataset, network, run, seed = unit
    profile, recipe = experiment.profile, experiment.recipes[run]
    data = _Data.of(profile, _images(dataset, experiment.data_dir), seed)
    module = experiment._module(network, data, seed)
    model = recipe.outer_model
    watch = _Watch(data, learns_gamma=model is not None and "gamma" in model.provides)
    epoch = len(data.train)
    falls = tuple(max(1, epoch * profile.epochs * sevenths // 7) for sevenths in (3, 5))
    result = train(
        module,
        data.train,
        data.outer if recipe.needs_outer_data else None,
        recipe=recipe,
        optimizer=SGD(StepDecay(profile.lr, falls), profile.momentum, weight_decay=profile.weight_decay),
        max_steps=epoch * profile.epochs,
        evaluate_every=epoch * profile.curve_every,
        callback=watch,
        seed=seed,
        progress=False,
    )
    module.load_state_dict(watch.states[profile.choose])
    selection_ece = 100 * metrics.expected_calibration_error(*predictions(module, data.selection))
    y, probs = predictions(module, data.test)
    evaluated = {run: probs}
    if run == "standard":
        evaluated["temperature"] = _with_temperature(module, data)
        module.load_state_dict(watch.states["log_loss"])
        evaluated["early_stopped"] = predictions(module, data.test)[1]
    if keep is not None and seed == 0:
        for method, probs in evaluated.items():
            content = io.BytesIO()
            np.save(content, probs)
            write_atomically(keep / f"{network}-{method}.npy", content.getvalue())
    named = dict(zip(UNIT, unit, strict=True))
    rows = [{**named, "method": method, **_scores(y, probs)} for method, probs in evaluated.items()]
    rows[0] |= {"curves": watch.curves, "seconds": result.seconds, "selection_ece": selection_ece}
    return rows


def predictions(module: nn.Module, data: ImageBatches) -> tuple[Int, Float]:
    """Labels and probabilities of all rows."""
    logits, y, _ = held_out_logits(module, data)
    return y.cpu().numpy(), torch.softmax(logits.double(), dim=-1).cpu().numpy()


def _with_temperature(module: nn.Module, data: _Data) -> Float:
    (fit, y, _), (test, _, _) = (held_out_logits(module, part) for part in (data.outer, data.test))
    scaling = calibrators.TemperatureScaling().fit(fit.cpu().numpy(), y.cpu().numpy())
    return scaling.predict_proba(test.cpu().numpy())


def _scores(y: Int, probs: Float) -> Row:
    """The columns of the paper's table, in percent except for the log loss, and the data of its figures."""
    bins = metrics.reliability_curve(probs.argmax(axis=1) == y, probs.max(axis=1))
    sweep = {
        norm: metrics.calibration_error_by_bins(y, probs, n_bins=SWEPT_BINS, norm=norm).error
        for norm in ("l1", "max")
    }
    return {
        "error": 100 * float((probs.argmax(axis=1) != y).mean()),
        "nll": metrics.log_loss(y, probs),
        "ece": 100 * metrics.expected_calibration_error(y, probs),
        "mce": 100 * metrics.maximum_calibration_error(y, probs),
        "ace": 100 * metrics.expected_calibration_error(y, probs, strategy="quantile"),
        "cw_ece": 100 * metrics.classwise_calibration_error(y, probs),
        "noise_floor": 100 * metrics.ece_noise_floor(probs.max(axis=1)).mean,
        "bins": {
            "count": bins.count.tolist(),
            "claimed": bins.confidence.tolist(),
            "right": bins.accuracy.tolist(),
        },
        "by_bins": {"ece": (100 * sweep["l1"]).tolist(), "mce": (100 * sweep["max"]).tolist()},
    }


def over_epochs(rows: Sequence[Row], column: str) -> tuple[Float, Float]:
    """The epochs, and a curve for each of the rows, ready to be drawn."""
    curves = [row["curves"] for row in rows]
    return np.array(curves[0]["epoch"]), np.array([curve[column] for curve in curves])


def epochs_figure(panels: Mapping[str, Mapping[str, tuple[Float, Float]]], ylabel: str = "") -> Figure:
    """Curves over epochs, a panel for each network; unstable first epochs may exceed the y range."""
    figure = plots.curves_figure(panels, xlabel="epoch", ylabel=ylabel)
    for ax, curves in zip(figure.axes, panels.values(), strict=True):
        settled = max(float(y[:, y.shape[1] // 2 :].max()) for _, y in curves.values())
        ax.set_ylim(0, 1.4 * settled)
    return figure


def binned_rows(row: Row) -> tuple[Float, Float]:
    """Correctness and confidence of images that reproduce the row's bins, each at the mean of its bin."""
    bins = row["bins"]
    return np.repeat(bins["right"], bins["count"]), np.repeat(bins["claimed"], bins["count"])


@functools.lru_cache(maxsize=1)
def _images(name: str, data_dir: Path) -> ImageSet:
    return datasets.load_images(name, data_dir)
