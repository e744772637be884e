"""One step of training: an inner step, and an outer step when it is due, for any method."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from selfcal._support.checks import positive_int
from selfcal._support.random_streams import draws_globally, redirected, stream_in_use
from selfcal.errors import ConfigError, TrainingError
from selfcal.training.batches import Batches, as_batch
from selfcal.training.distributed import whole
from selfcal.training.inputs import named
from selfcal.training.interfaces import InnerStep, OptimizerRule, Trajectory
from selfcal.training.problem import BilevelProblem, warn_of_probabilities
from selfcal.training.recipe import Recipe
from selfcal.training.selected import SelectedBatches, Selection
from selfcal.training.types import Batch, OuterParams

MAX_SKIPPED_IN_A_ROW = 10


class DivergenceError(TrainingError):
    """The loss or the parameters are no longer finite; a smaller step size may help."""


class StepReport(NamedTuple):
    """The result of one call of `BilevelStep`."""

    inner_loss: float
    outer_loss: float | None
    skipped: bool


class BilevelStep:
    """One inner step per call, and an outer step after every `recipe.inner_steps` of them.

    The module's parameters are up to date after every call, and may be changed between calls. The caller sets
    training or evaluation mode. With a recipe without an outer level, this is plain training.

    If the recipe selects rows, `selection` learns of them in every step; a loop of your own leaves out what it does
    not keep by taking the batches from `selected`.

    Args:
        module: The network; its parameters are the inner parameters.
        optimizer: The inner optimiser, e.g. ``selfcal.optimizers.Adam(lr=1e-2)``.
        recipe: The method, e.g. ``selfcal.recipes.bo4sc()``.
        n_train: The number of training rows; `Batch.index` counts them from 0.
        precision: ``"bf16"`` for automatic mixed precision in the inner steps, but those that the hypergradient
            differentiates: these, and the outer level, have the full precision of the parameters.

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

    def __init__(
        self,
        module: nn.Module,
        optimizer: OptimizerRule,
        recipe: Recipe,
        *,
        n_train: int,
        precision: str = "full",
    ) -> None:
        if not isinstance(optimizer, OptimizerRule):
            raise ConfigError(
                f"optimizer must be an OptimizerRule; got {type(optimizer).__name__}. Use one of "
                "selfcal.optimizers: torch.optim works in place and cannot be differentiated."
            )
        self.problem = BilevelProblem(module, recipe, precision=precision)
        self.recipe = recipe
        self.optimizer = optimizer
        self.count = 0
        self.problem.synchronize()
        self._theta = self.problem.read()
        self.random = stream_in_use(self.device)
        self._transform_draws_globally = draws_globally(recipe.transform)
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
        if precision != "full" and recipe.is_bilevel and self._horizon == recipe.inner_steps:
            raise ConfigError(
                f"precision={precision!r} would change nothing: {recipe.hypergradient!r} differentiates all "
                f"{recipe.inner_steps} inner steps, in full precision. Take more inner_steps with OneStep() or "
                "Unrolled(truncate=...), or leave precision out."
            )
        self.selection = None if recipe.selection is None else self._selection_of(n_train)
        self._output_checked = False
        self._trajectory: deque[InnerStep] = deque(maxlen=self._horizon)

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return self._theta.device

    @property
    def outer_params(self) -> OuterParams:
        """The outer parameters by name."""
        return dict(self._outer)

    def hyperparameters(self, rows: object) -> dict[str, Tensor]:
        """The current hyperparameters of these rows, such as their weights or their gamma."""
        batch = whole(as_batch(rows).to(self._theta))
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
                "An outer step needs an outer batch, and no outer batch was given. Pass one if step.outer_due."
            )
        self._read_changes()
        batch = as_batch(train_batch).to(self._theta)
        if self.recipe.transform is not None:
            with redirected(self._transform_draws_globally):
                batch = self.recipe.transform(batch)
        loss = self._inner_step(whole(batch))
        if not due:
            return StepReport(loss, None, skipped=False)
        rows = replace(as_batch(outer_batch), index=None).to(self._theta)
        outer_loss, taken = self._outer_step(whole(rows))
        return StepReport(loss, outer_loss, skipped=not taken)

    def selected(self, batches: Batches) -> Batches:
        """The training batches, without the rows that the recipe's selection leaves out, if it has one."""
        return batches if self.selection is None else SelectedBatches(batches, self.selection)

    @property
    def in_flight(self) -> bool:
        """Whether inner steps are recorded for the next outer step; they are not part of `state`."""
        return bool(self._trajectory)

    def state(self) -> dict[str, Any]:
        """Everything that a step depends on and changes: copies, by name."""
        self._read_changes()
        selection = {} if self.selection is None else {"selection": self.selection.state()}
        return selection | {
            "theta": self._theta.clone(),
            "kept": [kept.clone() for kept in self.problem.kept()],
            "optimizer": [part.clone() for part in self._state],
            "outer": {name: value.clone() for name, value in self._outer.items()},
            "outer_optimizer": {name: [p.clone() for p in s] for name, s in self._outer_state.items()},
            "count": self.count,
            "outer_count": self._outer_count,
            "skipped_in_a_row": self._skipped_in_a_row,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a `state`, which is copied."""
        device = self._theta.device
        self._theta = state["theta"].to(device, copy=True)
        self.problem.write(self._theta)
        self.problem.keep(state["kept"])
        self._state = tuple(part.to(device, copy=True) for part in state["optimizer"])
        self._outer = {name: value.to(device, copy=True) for name, value in state["outer"].items()}
        self._outer_state = {
            name: tuple(part.to(device, copy=True) for part in parts)
            for name, parts in state["outer_optimizer"].items()
        }
        self.count, self._outer_count = state["count"], state["outer_count"]
        self._skipped_in_a_row = state["skipped_in_a_row"]
        if self.selection is not None:
            self.selection.load_state(state["selection"])
        self._trajectory.clear()

    def check_finite(self) -> None:
        """Check that the parameters are finite, which a step with a finite loss does not ensure."""
        if not bool(self._theta.isfinite().all()):
            raise DivergenceError(
                f"Parameters became infinite or NaN in step {self.count} with {self.optimizer}. "
                "Lower the learning rate."
            )

    def _selection_of(self, n_train: int) -> Selection:
        recipe, n_members = self.recipe, self.problem.n_members
        assert recipe.selection is not None
        if n_members > 1:
            raise ConfigError(
                f"Recipe {recipe.name!r} selects rows, which needs one network; got {n_members} that are trained "
                "side by side, as ensembles are. Use a recipe without selection, or train one network."
            )
        return Selection(recipe.selection, n_train)

    def _read_changes(self) -> None:
        """Continue from the module's parameters if they were set outside since the last step."""
        if self.problem.changed_since_written():
            self._theta = self.problem.read()
            self._trajectory.clear()

    def _inner_step(self, batch: Batch) -> float:
        remaining = self.recipe.inner_steps - self.count % self.recipe.inner_steps
        record = remaining <= self._horizon
        rewind = self.random.mark() if record else None
        if self._trajectory:  # the last recorded step keeps the state after it
            self._state = tuple(s.clone() for s in self._state)
        before = self._theta
        if record:  # copied before the passes, so that their memory is freed in one piece
            self._theta = before.clone()
        graph = None
        if record and self._records == "graph":
            graph = self.problem.gradient_graph(before, self._outer, batch)
        evaluation = (
            graph.evaluation if graph else self.problem.evaluate(self._outer, batch, reduced=not record)
        )
        if not self._output_checked:
            warn_of_probabilities(self.problem.module, evaluation.output.logits)
            self._output_checked = True
        self.problem.average_statistics()
        self.count += 1
        value = float(evaluation.loss)
        if not math.isfinite(value):
            raise DivergenceError(
                f"The training loss became {value} at step {self.count} with {self.optimizer}{_extremes(batch)}. "
                "Lower the learning rate, or look for extreme values in the features."
            )
        with torch.no_grad():
            term = self.problem.update_term(self._theta, self._outer)
            self.optimizer.step_(self._theta, evaluation.grad, self._state, self.count)
            if term is not None:
                self._theta.sub_(term, alpha=self.optimizer.step_size(self.count))
        if rewind is not None:
            kept = None if self._records == "start" else evaluation
            step = InnerStep(before, self._state, self.count, batch, rewind, kept, graph)
            self._trajectory.append(step)
        self.problem.write(self._theta)
        if self.selection is not None:
            self.selection.observe(evaluation.output, batch)
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


def _extremes(batch: Batch) -> str:
    """The range of the features, of which a process may have no rows."""
    features = [part for part in named(batch.x).values() if part.numel()]
    if not features:
        return ""
    least, most = min(float(part.min()) for part in features), max(float(part.max()) for part in features)
    return f"; the features of its rows lie between {least:g} and {most:g}"
