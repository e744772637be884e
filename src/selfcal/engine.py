"""The one training loop. It calls the parts of a recipe and never asks which method they make up."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfcal._checks import positive_int
from selfcal._random import stream_states, streams_restored
from selfcal._types import Batch, OuterParams
from selfcal.batches import Batches, as_batch, as_batches, endless
from selfcal.errors import ConfigError, DataError, TrainingError
from selfcal.history import History, Recorder
from selfcal.interfaces import Calibrator, InnerStep, OptimizerRule, Recipe, Trajectory
from selfcal.problem import BilevelProblem, evaluating
from selfcal.progress import progress_bar

MAX_SKIPPED_IN_A_ROW = 10


class StepReport(NamedTuple):
    """What one call of `BilevelStep` did."""

    inner_loss: float
    outer_loss: float | None
    skipped: bool


class BilevelStep:
    """One inner step per call, and an outer step after every `recipe.inner_steps` of them.

    The module's parameters are up to date after every call, and may be changed between calls. Training or
    evaluation mode is the caller's to set. A recipe without an outer level makes this plain training.

    Args:
        module: The network; its parameters are the inner parameters.
        optimizer: The inner optimiser, e.g. ``selfcal.optimizers.Adam(lr=1e-2)``.
        recipe: The method, e.g. ``selfcal.recipes.bo4sc()``.
        n_train: How many training rows there are; batches address them as ``0..n_train - 1``.

    Example:
        >>> import torch
        >>> from selfcal import Batch, optimizers, recipes
        >>> x, y = torch.randn(40, 2), torch.arange(40) % 2
        >>> module = torch.nn.Linear(2, 2)
        >>> step = BilevelStep(module, optimizers.Adam(lr=0.1), recipes.bo4sc(inner_steps=2), n_train=30)
        >>> for _ in range(4):
        ...     report = step(Batch(x[:30], y[:30], torch.arange(30)), (x[30:], y[30:]))
        >>> step.outer_params["weight"].shape
        torch.Size([30])
    """

    def __init__(self, module: nn.Module, optimizer: OptimizerRule, recipe: Recipe, *, n_train: int) -> None:
        if not isinstance(optimizer, OptimizerRule):
            raise ConfigError(
                f"Expected an optimiser rule such as selfcal.optimizers.Adam(lr=1e-2); "
                f"got {type(optimizer).__name__}. torch.optim works in place and cannot be differentiated."
            )
        self.problem = BilevelProblem(module, recipe)
        self.recipe = recipe
        self.optimizer = optimizer
        self.count = 0
        self._theta = self.problem.read()
        self._state = optimizer.init(self._theta)
        n_train = positive_int("n_train", n_train)
        self._outer: OuterParams = {}
        if recipe.outer_model is not None:
            self._outer = recipe.outer_model.init(self.problem.sizes(n_train), like=self._theta)
        rule = recipe.outer_optimizer
        self._outer_state = {name: rule.init(value) for name, value in self._outer.items()} if rule else {}
        self._outer_count = 0
        self._skipped_in_a_row = 0
        horizon = recipe.hypergradient.horizon if recipe.hypergradient else 0
        self._records = recipe.hypergradient.records if recipe.hypergradient else None
        self._horizon = recipe.inner_steps if horizon is None else min(horizon, recipe.inner_steps)
        self._trajectory: deque[InnerStep] = deque(maxlen=self._horizon)

    @property
    def device(self) -> torch.device:
        """Where the parameters lie."""
        return self._theta.device

    @property
    def outer_params(self) -> OuterParams:
        """The outer parameters by name."""
        return dict(self._outer)

    def hyperparameters(self, rows: object) -> dict[str, Tensor]:
        """What the outer level now gives for these rows, such as their weights or their gamma."""
        batch = as_batch(rows).to(self._theta)
        return self.problem.hyperparameters(self._theta, self._outer, batch)

    @property
    def outer_due(self) -> bool:
        """Whether the next call will take an outer step and so needs an outer batch."""
        return self.recipe.is_bilevel and (self.count + 1) % self.recipe.inner_steps == 0

    def __call__(self, train_batch: object, outer_batch: object = None) -> StepReport:
        """Take one inner step on `train_batch`; if an outer step is due, take it on `outer_batch`."""
        due = self.outer_due
        if due and outer_batch is None:
            raise ConfigError(
                "An outer step is due and no outer batch was given. Pass one whenever step.outer_due is true."
            )
        if self.problem.changed_since_written():
            self._theta = self.problem.read()
            self._trajectory.clear()
        batch = as_batch(train_batch).to(self._theta)
        loss = self._inner_step(batch if self.recipe.transform is None else self.recipe.transform(batch))
        if not due:
            return StepReport(loss, None, skipped=False)
        outer_loss, taken = self._outer_step(replace(as_batch(outer_batch), index=None).to(self._theta))
        return StepReport(loss, outer_loss, skipped=not taken)

    def _inner_step(self, batch: Batch) -> float:
        remaining = self.recipe.inner_steps - self.count % self.recipe.inner_steps
        record = remaining <= self._horizon
        random = stream_states(self._theta.device) if record else None
        if self._trajectory:  # the last recorded step keeps the state it led to
            self._state = tuple(s.clone() for s in self._state)
        before = self._theta
        if record:  # copied before the passes, whose memory is then given back whole
            self._theta = before.clone()
        graph = None
        if record and self._records == "graph":
            graph = self.problem.gradient_graph(before, self._outer, batch)
        evaluation = graph.evaluation if graph else self.problem.evaluate(self._outer, batch)
        self.count += 1
        value = float(evaluation.loss)
        if not math.isfinite(value):
            raise TrainingError(
                f"The training loss became {value} at step {self.count} with {self.optimizer}. "
                "Lower the learning rate, or look for extreme values in the features."
            )
        with torch.no_grad():
            self.optimizer.step_(self._theta, evaluation.grad, self._state, self.count)
        if random is not None:
            kept = None if self._records == "start" else evaluation
            step = InnerStep(before, self._state, self.count, batch, random, kept, graph)
            self._trajectory.append(step)
        self.problem.write(self._theta)
        return value

    def _outer_step(self, batch: Batch) -> tuple[float, bool]:
        recipe = self.recipe
        assert recipe.hypergradient is not None
        assert recipe.outer_optimizer is not None
        assert recipe.outer_model is not None
        trajectory = Trajectory(self.optimizer, self._trajectory, self._theta)
        with self.problem.look_ahead():
            value, grads = recipe.hypergradient(self.problem, trajectory, self._outer, batch)
        self._trajectory.clear()
        if not all(bool(g.isfinite().all()) for g in grads.values()):
            self._skipped_in_a_row += 1
            if self._skipped_in_a_row >= MAX_SKIPPED_IN_A_ROW:
                raise TrainingError(
                    f"The hypergradient was not finite {MAX_SKIPPED_IN_A_ROW} outer steps in a row, up to step "
                    f"{self.count}. Lower the inner learning rate, or use another hypergradient."
                )
            return float(value), False
        self._skipped_in_a_row = 0
        self._outer_count += 1
        with torch.no_grad():
            for name, grad in grads.items():
                self._outer[name], self._outer_state[name] = recipe.outer_optimizer.update(
                    self._outer[name], grad, self._outer_state[name], self._outer_count
                )
            self._outer = recipe.outer_model.project(self._outer)
        return float(value), True


@dataclass(frozen=True)
class TrainingResult:
    """What `train` returns; the module it was given holds the chosen parameters.

    Attributes:
        module: The trained network, in evaluation mode.
        outer_params: The outer parameters that belong to the chosen state.
        calibrator: The recipe's post-hoc calibrator, fitted on the outer data, if it has one.
        history: What happened, as plain arrays.
        n_steps: Inner steps taken.
        best_step: The inner step whose state was chosen (the last one without selection data).
        status: ``"stopped early"`` or ``"ran to the end"``.
        seconds: How long it took.
    """

    module: nn.Module
    outer_params: OuterParams
    calibrator: Calibrator | None
    history: History
    n_steps: int
    best_step: int
    status: str
    seconds: float


def train(
    module: nn.Module,
    train_data: object,
    outer_data: object = None,
    selection_data: object = None,
    *,
    recipe: Recipe,
    optimizer: OptimizerRule,
    max_steps: int = 1000,
    evaluate_every: int | None = None,
    patience: int | None = 20,
    watch: Callable[[BilevelStep], object] = lambda step: None,
    batch_size: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> TrainingResult:
    """Train a network by a recipe.

    The three data parts must be disjoint: `train_data` for the inner level, `outer_data` for the outer level,
    `selection_data` for early stopping. Selecting on what the outer level fits would choose its luck.

    Args:
        module: The network, from ``(rows, ...)`` to logits ``(rows, classes)``; trained in place.
        train_data: Arrays or tensors ``(x, y)`` or ``(x, y, weight)``, or a `DataLoader` of such.
        outer_data: The same, for the outer level or the post-hoc calibrator; only needed if there is one.
        selection_data: The same; with it, the state with the lowest log loss there is restored at the end.
        recipe: The method.
        optimizer: The inner optimiser rule.
        max_steps: Inner steps at most.
        evaluate_every: Inner steps between two looks at the selection data; by default one pass over the
            training data, but at least 10 steps.
        patience: Stop after so many looks without improvement; None never stops early.
        watch: Called with the step object after every `evaluate_every` steps, and after the last one.
        batch_size: Rows per batch where data is given as tensors; None for all rows at once.
        seed: Seeds dropout, and shuffling where data is given as tensors: the same seed gives bit-identical
            results. A `DataLoader` shuffles by its own generator.
        progress: Show a progress bar; by default only on a terminal.

    Returns:
        The chosen network with its history.

    Example:
        >>> import torch
        >>> from selfcal import recipes, optimizers
        >>> x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> module = torch.nn.Linear(2, 2)
        >>> result = train(module, (x[:40], y[:40]), (x[40:50], y[40:50]), (x[50:], y[50:]),
        ...                recipe=recipes.bo4sc(), optimizer=optimizers.Adam(lr=0.1), max_steps=50)
        >>> result.n_steps, result.outer_params["weight"].shape
        (50, torch.Size([40]))
    """
    started = time.perf_counter()
    if not isinstance(recipe, Recipe):
        raise ConfigError(f"Expected a Recipe such as selfcal.recipes.bo4sc(); got {recipe!r}.")
    if recipe.needs_outer_data and outer_data is None:
        raise ConfigError(
            f"Recipe {recipe.name!r} needs outer_data: rows kept back from training for its outer level or "
            "calibrator."
        )
    batches = as_batches(train_data, batch_size=batch_size, seed=seed)
    outer = as_batches(outer_data, batch_size=batch_size, seed=seed + 1) if recipe.needs_outer_data else None
    outer_stream = endless(outer) if outer is not None else iter(())
    selection = None if selection_data is None else as_batches(selection_data, batch_size=batch_size)
    if evaluate_every is None:
        evaluate_every = max(len(batches), 10)
    positive_int("evaluate_every", evaluate_every)
    if patience is not None:
        positive_int("patience", patience)
    if recipe.is_bilevel and positive_int("max_steps", max_steps) < recipe.inner_steps:
        warnings.warn(
            f"No outer step will be taken: max_steps={max_steps} is below inner_steps={recipe.inner_steps}.",
            stacklevel=2,
        )

    step = BilevelStep(module, optimizer, recipe, n_train=batches.n_rows)
    recorder = Recorder()
    recorder.snapshot(0, step.outer_params)
    best = _BestState(step) if selection is not None else None
    status = "ran to the end"
    with (
        streams_restored(step.device, seed),
        progress_bar("Training", positive_int("max_steps", max_steps), progress) as advance,
    ):
        module.train()
        for count, batch in zip(range(1, max_steps + 1), endless(batches), strict=False):
            report = step(batch, next(outer_stream) if step.outer_due else None)
            recorder.inner_loss.append(report.inner_loss)
            if report.outer_loss is not None:
                recorder.outer.append((count, report.outer_loss))
                recorder.skipped += report.skipped
                recorder.snapshot(count, step.outer_params)
            if count % evaluate_every == 0 or count == max_steps:
                advance(count, f"loss {report.inner_loss:.4f}")
                watch(step)
                if selection is not None and best is not None:
                    recorder.selection.append((count, selection_loss(module, selection)))
                    best.consider(step, recorder.selection[-1][1])
                    if patience is not None and best.rounds_without_gain >= patience:
                        status = "stopped early"
                        break
    outer_params, best_step = (step.outer_params, step.count) if best is None else best.restore(step)
    module.eval()
    if not bool(step.problem.read().isfinite().all()):
        raise TrainingError(
            f"Parameters became infinite or NaN in step {step.count} with {optimizer}. Lower the learning rate."
        )
    calibrator = None
    if recipe.calibrator is not None and outer is not None:
        calibrator = _calibrated(recipe.calibrator, module, outer)
    return TrainingResult(
        module=module,
        outer_params=outer_params,
        calibrator=calibrator,
        history=recorder.history(),
        n_steps=step.count,
        best_step=best_step,
        status=status,
        seconds=time.perf_counter() - started,
    )


def selection_loss(module: nn.Module, data: Batches) -> float:
    """The mean log loss of the network's probabilities, weighted by the rows' sample weights."""
    logits, y, weight = held_out_logits(module, data)
    loss = F.cross_entropy(logits.double(), y, reduction="none")
    return float(loss.mean() if weight is None else (loss * weight).sum() / weight.sum())


def held_out_logits(module: nn.Module, data: Batches) -> tuple[Tensor, Tensor, Tensor | None]:
    """Logits, labels and sample weights of all rows, in batches and in the mode the network predicts in."""
    like = next(module.parameters())
    with torch.no_grad(), evaluating(module):
        batches = [batch.to(like) for batch in data.one_pass(0)]
        if not batches:
            raise DataError("A pass over the held-out data gave no batch; expected at least one row.")
        logits = torch.cat([module(batch.x) for batch in batches])
    weights = [batch.weight for batch in batches if batch.weight is not None]
    return logits, torch.cat([batch.y for batch in batches]), torch.cat(weights) if weights else None


def _calibrated(calibrator: Calibrator, module: nn.Module, data: Batches) -> Calibrator:
    logits, y, weight = held_out_logits(module, data)
    sample_weight = None if weight is None else weight.cpu().numpy()
    return copy.deepcopy(calibrator).fit(logits.cpu().numpy(), y.cpu().numpy(), sample_weight)


class _BestState:
    """The state with the lowest selection loss so far."""

    def __init__(self, step: BilevelStep) -> None:
        self.loss = float("inf")
        self.rounds_without_gain = 0
        self._keep(step)

    def consider(self, step: BilevelStep, loss: float) -> None:
        self.rounds_without_gain += 1
        if loss < self.loss:
            self.loss = loss
            self.rounds_without_gain = 0
            self._keep(step)

    def restore(self, step: BilevelStep) -> tuple[OuterParams, int]:
        if not math.isfinite(self.loss):
            raise TrainingError(
                f"The log loss on the selection data was never finite in {step.count} steps. Lower the learning "
                "rate, or look for extreme values in the selection data."
            )
        step.problem.write(self._theta)
        for buffer, kept in zip(step.problem.module.buffers(), self._buffers, strict=True):
            buffer.copy_(kept)
        return self._outer, self._count

    def _keep(self, step: BilevelStep) -> None:
        self._theta: Tensor = step.problem.read()
        self._buffers = [b.clone() for b in step.problem.module.buffers()]
        self._outer = step.outer_params
        self._count = step.count
