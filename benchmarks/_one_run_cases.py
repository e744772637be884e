"""The seven hyperparameters that one run is to find, and how a network is trained with them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from benchmarks._one_run_sets import Parts
from selfcal import TrainingResult, losses, metrics, models, optimizers, outer, train
from selfcal._support.parallel import Row
from selfcal.hypergradients import OneStep
from selfcal.objectives import NLL
from selfcal.training.batches import TensorBatches
from selfcal.training.interfaces import Loss, OuterModel
from selfcal.training.recipe import Recipe
from selfcal.training.types import Batch, Output

STEPS, BATCH, EVALUATE, PATIENCE, RATE, WIDTH = 900, 100, 12, 15, 3e-3, 64
FOLDS = 3
PLAIN = "one training"
WRONG = 0.3
RAREST = 0.1


@dataclass(frozen=True)
class Case:
    """A hyperparameter.

    Attributes:
        loss: The training loss that it belongs to.
        values: The grid, without a search the middle is chosen.
        learned: The outer model that learns it.
        rate: The step size of Adam on it, by the number of the outer step.
        fixed: The outer model of a value of the grid; None where the grid changes the rows instead.
        inner_steps: Training steps between two outer steps.
        prepare: What happens to the training rows first.
    """

    loss: Loss
    values: tuple[float, ...]
    learned: OuterModel
    rate: optimizers.Rate
    fixed: Callable[[float, Tensor], OuterModel] | None = None
    inner_steps: int = 10
    prepare: Callable[[Parts, int], Parts] = lambda parts, seed: parts


def balanced(power: float, y: Tensor) -> OuterModel:
    """Class weights inverse to the frequency of the class, to this power."""
    counts = torch.bincount(y).float().clamp(min=1)
    return outer.StartAt(outer.ClassWeights(), {"log_weight": -power * counts.log()})


def imbalanced(parts: Parts, seed: int) -> Parts:
    """Fewer training rows of each further class, down to a tenth; the other rows keep their classes."""
    x, y = parts.train
    drawn = torch.rand(len(y), generator=torch.Generator().manual_seed(seed))
    kept = drawn < RAREST ** (y / (parts.n_classes - 1))
    return parts._replace(train=(x[kept], y[kept]))


def mislabelled(parts: Parts, seed: int, wrong: float = WRONG) -> Parts:
    """A fraction of the training rows get one of the other labels; the held-out rows are the trusted ones."""
    x, y = parts.train
    generator = torch.Generator().manual_seed(seed)
    is_wrong = torch.rand(len(y), generator=generator) < wrong
    other = (y + torch.randint(1, parts.n_classes, y.shape, generator=generator)) % parts.n_classes
    return parts._replace(train=(x, torch.where(is_wrong, other, y)))


CASES: dict[str, Case] = {
    "focal gamma": Case(
        losses.focal, (0, 0.5, 1, 2, 3, 5, 7), outer.Gamma(1.0), 0.15, lambda v, y: outer.Gamma(v)
    ),
    "label smoothing": Case(
        losses.label_smoothing,
        (0, 0.01, 0.03, 0.06, 0.1, 0.2, 0.3),
        outer.LabelSmoothing(0.05, shared=True),
        optimizers.StepDecay(0.015, after=(5,), factor=0.2),
        lambda v, y: outer.LabelSmoothing(v),
    ),
    "weight decay": Case(
        losses.cross_entropy,
        (0.01, 0.1, 0.3, 1, 3, 10, 20),
        outer.LayerDecay(1.0, bounds=(1e-3, 30.0)),
        0.07,
        lambda v, y: outer.LayerDecay(v, bounds=(1e-3, 30.0)),
    ),
    "input noise": Case(
        losses.cross_entropy,
        (0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1),
        outer.InputNoise(0.2, bounds=(0.01, 2.0)),
        0.07,
        lambda v, y: outer.InputNoise(v, bounds=(0.01, 2.0)),
    ),
    "mixup strength": Case(
        losses.mixed_cross_entropy,
        (0, 0.1, 0.2, 0.4, 0.6, 0.8, 1),
        outer.MixupStrength(0.3),
        0.03,
        lambda v, y: outer.MixupStrength(v),
    ),
    "class weights": Case(
        losses.cross_entropy,
        (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5),
        outer.ClassWeights(),
        optimizers.StepDecay(0.3, after=(5,), factor=1 / 3),
        balanced,
        prepare=imbalanced,
    ),
    "sample weights": Case(
        losses.cross_entropy,
        (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
        outer.WeightNet(),
        0.03,
        inner_steps=5,
        prepare=mislabelled,
    ),
}
HYPERPARAMETERS = tuple(CASES)
CASES |= {
    f"sample weights, {wrong:.0%} wrong": replace(
        CASES["sample weights"], prepare=partial(mislabelled, wrong=wrong)
    )
    for wrong in (0.2, 0.4)
}


@dataclass(frozen=True)
class Trained:
    """A trained network, and what is reported of it."""

    result: TrainingResult
    row: Row


def fit(
    case: Case,
    model: OuterModel,
    parts: Parts,
    seed: int,
    *,
    train_rows: tuple[Tensor, ...] | None = None,
    outer_rows: tuple[Tensor, Tensor] | None = None,
    selection: tuple[Tensor, Tensor] | None = None,
    rate: optimizers.Rate | None = None,
) -> Trained:
    """Train to early stopping on all held-out rows, or on `selection`; the outer level learns from `outer_rows`."""
    rows = train_rows or parts.train
    torch.manual_seed(seed)
    module = models.mlp(rows[0].shape[1], parts.n_classes, hidden=(WIDTH, WIDTH))
    recipe = Recipe(name="fixed", loss=case.loss, outer_model=model)
    if outer_rows is not None:
        recipe = replace(
            recipe,
            name="learned",
            objective=NLL(),
            hypergradient=OneStep(),
            outer_optimizer=optimizers.Adam(lr=rate or case.rate, betas=(0.9, 0.99)),
            inner_steps=case.inner_steps,
        )
    started = time.process_time()
    result = train(
        module,
        rows,
        None if outer_rows is None else TensorBatches(*outer_rows),
        TensorBatches(*(selection or parts.held_out)),
        recipe=recipe,
        optimizer=optimizers.Adam(lr=RATE),
        max_steps=STEPS,
        evaluate_every=EVALUATE,
        patience=PATIENCE,
        batch_size=BATCH,
        seed=seed,
        progress=False,
    )
    seconds = time.process_time() - started
    (x, y), (x_held_out, y_held_out) = parts.test, parts.held_out
    with torch.no_grad():
        probs, labels = torch.softmax(module(x).double(), dim=1).numpy(), y.numpy()
        held_out = losses.cross_entropy(module(x_held_out), y_held_out).mean()
    return Trained(
        result,
        {
            "validation": float(held_out),
            "log_loss": float(metrics.log_loss(labels, probs)),
            "ece": float(metrics.expected_calibration_error(labels, probs)),
            "accuracy": float((probs.argmax(axis=1) == labels).mean()),
            "seconds": seconds,
            "steps": result.n_steps,
        },
    )


def halves(rows: tuple[Tensor, Tensor], seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A random half of the rows, and the other one."""
    x, y = rows
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    first, second = order.tensor_split(2)
    return (x[first], y[first]), (x[second], y[second])


def grid(case: Case, parts: Parts, seed: int) -> list[Row]:
    """One training for each value."""
    if case.fixed is None:
        return _filters(case, parts, seed)
    return [
        {"method": "grid", "value": value, **fit(case, case.fixed(value, parts.train[1]), parts, seed).row}
        for value in case.values
    ]


def _filters(case: Case, parts: Parts, seed: int) -> list[Row]:
    """Training without the rows whose labels out-of-fold predictions contradict most, for several fractions."""
    x, y = parts.train
    trust, extra = torch.empty(len(y)), {"seconds": 0.0, "steps": 0.0}
    fold = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed)) % FOLDS
    for k in range(FOLDS):
        kept = fold != k
        trained = fit(case, outer.ClassWeights(), parts, seed, train_rows=(x[kept], y[kept]))
        extra = {name: total + trained.row[name] / len(case.values) for name, total in extra.items()}
        with torch.no_grad():
            log_probs = trained.result.module(x[~kept]).log_softmax(dim=1)
        trust[~kept] = log_probs.gather(1, y[~kept, None])[:, 0]
    order = trust.argsort(descending=True)
    rows = []
    for value in case.values:
        kept = order[: math.ceil((1 - value) * len(y))].sort().values
        row = fit(case, outer.ClassWeights(), parts, seed, train_rows=(x[kept], y[kept])).row
        shared = {name: row[name] + more for name, more in extra.items()}
        rows.append({"method": "grid", "value": value, **row, **shared})
    return rows


def one_run(case: Case, parts: Parts, seed: int) -> list[Row]:
    """One bilevel training, and another one with the values that it has found, which then stay."""
    outer_rows, selection = halves(parts.held_out, seed)
    first = fit(case, case.learned, parts, seed, outer_rows=outer_rows, selection=selection)
    found = first.result.outer_params
    if case.fixed is None:
        second = fit(case, outer.ClassWeights(), parts, seed, train_rows=weighted(case, first, parts))
    else:
        second = fit(case, outer.StartAt(case.learned, found), parts, seed)
    plain = [] if case.fixed is not None else [{"method": PLAIN, **_plain(case, parts, seed).row}]
    value = {name: v.tolist() for name, v in found.items() if v.numel() <= 32}
    return [
        *plain,
        {"method": "one run", "value": value, **first.row},
        {
            "method": "one run, restarted",
            "value": value,
            **second.row,
            **{name: first.row[name] + second.row[name] for name in ("seconds", "steps")},
        },
    ]


def _plain(case: Case, parts: Parts, seed: int) -> Trained:
    """One training of the grid."""
    y = parts.train[1]
    model = outer.ClassWeights() if case.fixed is None else case.fixed(case.values[0], y)
    return fit(case, model, parts, seed)


def step_time(case: Case, parts: Parts, *, repeats: int = 12) -> float:
    """How long a training step takes while the hyperparameter is learned, as a ratio to a step of the grid."""
    outer_rows, selection = halves(parts.held_out, 0)
    best = {True: math.inf, False: math.inf}
    for seed in range(repeats):
        learned = fit(case, case.learned, parts, seed, outer_rows=outer_rows, selection=selection)
        for key, trained in ((True, learned), (False, _plain(case, parts, seed))):
            best[key] = min(best[key], trained.row["seconds"] / trained.row["steps"])
    return best[True] / best[False]


def weighted(case: Case, trained: Trained, parts: Parts) -> tuple[Tensor, Tensor, Tensor]:
    """The training rows with the weights that were learned for them."""
    x, y = parts.train
    with torch.no_grad():
        output = Output(trained.result.module(x))
        batch = Batch(x, y, torch.arange(len(y)))
        weight = case.learned(trained.result.outer_params, output, batch)["weight"]
    return x, y, weight


def baselines(case: Case, parts: Parts, seed: int) -> list[Row]:
    """For wrong labels: a free weight for each row, one for each class, and the trusted rows alone."""
    if case.fixed is not None:
        return []
    outer_rows, selection = halves(parts.held_out, seed)
    free = outer.SampleWeights(link="sigmoid", normalize=True)
    weights = fit(case, free, parts, seed, outer_rows=outer_rows, selection=selection, rate=0.1)
    few, rate = outer.ClassWeights(), CASES["class weights"].rate
    by_class = fit(case, few, parts, seed, outer_rows=outer_rows, selection=selection, rate=rate)
    alone = fit(case, few, parts, seed, train_rows=outer_rows, selection=selection)
    return [
        {"method": "free weights", **weights.row},
        {"method": "a weight for each class", **by_class.row},
        {"method": "trusted rows alone", **alone.row},
    ]
