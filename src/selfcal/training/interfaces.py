"""The interfaces of the parts of a method; a `Recipe` puts concrete parts together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from selfcal._support.checks import in_range
from selfcal.calibrators.interface import Calibrator as Calibrator  # noqa: PLC0414 # exported from here, too
from selfcal.errors import ConfigError
from selfcal.training.batches import Batches
from selfcal.training.inputs import Inputs
from selfcal.training.types import Batch, NetworkParams, OuterParams, Output, Sizes

Loss = Callable[..., Tensor]
"""A pure function ``(logits, y, *, <hyperparameters>) -> one value per row``; the caller reduces."""


class OptimizerRule(ABC):
    """One step of an optimiser on a flat vector, and the same step backwards."""

    @abstractmethod
    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        """The optimiser's state before the first step."""

    @abstractmethod
    def step_(self, theta: Tensor, grad: Tensor, state: tuple[Tensor, ...], count: int) -> None:
        """Take step number `count` (the first is 1): change the parameters and the state in place."""

    def update(
        self, theta: Tensor, grad: Tensor, state: tuple[Tensor, ...], count: int
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The same step as a pure function: the parameters and the state after it."""
        theta, state = theta.clone(), tuple(s.clone() for s in state)
        self.step_(theta, grad, state, count)
        return theta, state

    def step_size(self, count: int) -> float:
        """The step size of step number `count`, which an outer model's part of the update is multiplied with."""
        raise ConfigError(
            f"An outer model that changes the update needs an optimiser with a step size; {self!r} has none. "
            "Define its method step_size(count)."
        )

    def planned(self, n_steps: int) -> Self:
        """The same rule for a run of so many steps, which a step size may depend on."""
        return self

    def slowed(self, factor: float) -> Self | None:
        """The same rule with its step size times `factor`; None if it has none to change."""
        return None

    @abstractmethod
    def pull_back(
        self, step: InnerStep, adjoint: Tensor, state_adjoints: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """The reverse of a step: adjoints of the parameters and the state after it to those before it.

        Returns the adjoints of `theta`, of `grad` and of the state before the step. `state_adjoints` is None
        after the last step, because nothing depends on its state yet.
        """


class OuterModel(ABC):
    """Learned by the outer level: hyperparameters of the loss, the network's input, or a part of the update."""

    provides: frozenset[str]
    """Names of the values it provides: ``weight`` multiplies the rows' losses, ``penalty`` is added to their mean,
    anything else is a keyword of the loss."""

    reads_head: bool = False
    """Whether it reads the input of the network's head, or the head's weight."""

    layer: str | None = None
    """The name of the linear layer that is the head; None for the network's last one."""

    changes_update: bool = False
    """Whether it takes part in the update of the parameters, by `update_term`."""

    @abstractmethod
    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """The outer parameters before training, with the dtype and device of `like`."""

    @abstractmethod
    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The hyperparameters for these rows."""

    def network_input(self, outer: OuterParams, x: Inputs) -> Inputs:
        """The network's input in training for the rows `x`; it may draw from torch's random stream."""
        return x

    def update_term(self, outer: OuterParams, members: Sequence[NetworkParams]) -> list[NetworkParams]:
        """Its part u of the update: a step of size lr also subtracts ``lr u`` from the parameters.

        It is called only if `changes_update`, and must be differentiable in both arguments.

        Args:
            outer: The outer parameters.
            members: The parameters of each network that is trained, before the step.

        Returns:
            For each network, u by parameter name; parameters that are left out keep the optimiser's update.
        """
        return [{} for _ in members]

    def adapt_optimizer(self, rule: OptimizerRule) -> OptimizerRule:
        """The rule without the settings that this outer model replaces."""
        return rule

    @abstractmethod
    def project(self, outer: OuterParams) -> OuterParams:
        """The nearest allowed parameters."""


class BatchTransform(ABC):
    """Changes a training batch before the network sees it; it may draw from torch's random stream."""

    provides: frozenset[str] = frozenset()
    """The keywords of the loss that it provides, in `Batch.hyper`."""

    @abstractmethod
    def __call__(self, batch: Batch) -> Batch:
        """The rows to train on instead."""


class Predictive(ABC):
    """How a trained network predicts, if not by its own logits: for example as the mean of several answers.

    Attributes:
        held_out: Whether it is fitted on the outer data, which the network has not seen, or on the training data.
    """

    held_out: ClassVar[bool] = False

    @abstractmethod
    def check(self, module: nn.Module) -> None:
        """Raise a `ConfigError` if the network, which is not trained yet, cannot predict in this way."""

    @abstractmethod
    def fit(self, module: nn.Module, data: Batches, *, seed: int = 0) -> nn.Module:
        """The module that predicts; the network keeps its weights and is not changed.

        Args:
            module: The trained network.
            data: The rows that it was trained on, or others if `held_out`.
            seed: Decides all that is drawn.
        """


class DataSelection(ABC):
    """Decides before every pass over the training data which of its rows the pass has.

    What it learns of the rows is its state, tensors on the CPU by name. A run's checkpoints hold it; nothing else may
    decide.
    """

    @abstractmethod
    def init(self, n_train: int) -> dict[str, Tensor]:
        """The state before training with so many rows."""

    @abstractmethod
    def observe(self, state: dict[str, Tensor], output: Output, batch: Batch) -> None:
        """Change the state in place after a step on `batch`, for which the network had this output."""

    @abstractmethod
    def keep(self, state: dict[str, Tensor], kept: Tensor, number: int) -> Tensor:
        """The rows of a pass, as a mask.

        Args:
            state: What was observed.
            kept: The mask of the pass before, of shape (n_train,).
            number: The number of the pass, 1 at least: the first pass, number 0, has all rows.
        """


class Objective(ABC):
    """The loss that the outer level minimises: a scalar of the network's output on the outer data.

    Objectives can be added with weights: ``first + 0.5 * second``.
    """

    @abstractmethod
    def __call__(self, output: Output, batch: Batch) -> Tensor: ...

    def __add__(self, other: Objective) -> WeightedSum:
        return WeightedSum((self, other), (1.0, 1.0))

    def __mul__(self, weight: float) -> WeightedSum:
        return WeightedSum((self,), (weight,))

    def __rmul__(self, weight: float) -> WeightedSum:
        return self * weight


@dataclass(frozen=True, repr=False)
class WeightedSum(Objective):
    """A weighted sum of objectives, made by ``first + 0.5 * second``.

    Nested sums are flattened, so that equal sums compare equal.
    """

    terms: tuple[Objective, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        objectives = all(isinstance(term, Objective) for term in self.terms)
        if not objectives or not len(self.terms) == len(self.weights) > 0:
            raise ConfigError(
                "A weighted sum must have objectives as terms and one weight for each; got "
                f"terms={self.terms!r}, weights={self.weights!r}. Write it as objective + weight * objective."
            )
        parts = [
            (part, float(in_range("the weight of an objective", weight, 0)) * factor)
            for term, weight in zip(self.terms, self.weights, strict=True)
            for part, factor in (term._parts() if isinstance(term, WeightedSum) else [(term, 1.0)])
        ]
        object.__setattr__(self, "terms", tuple(part for part, _ in parts))
        object.__setattr__(self, "weights", tuple(weight for _, weight in parts))

    def __call__(self, output: Output, batch: Batch) -> Tensor:
        """The weighted sum of the terms' values."""
        return torch.stack([weight * term(output, batch) for term, weight in self._parts()]).sum()

    def __repr__(self) -> str:
        """The expression that creates it."""
        alone = len(self.terms) == 1
        shown = (f"{w} * {term!r}" if alone or w != 1 else repr(term) for term, w in self._parts())
        return " + ".join(shown)

    def _parts(self) -> list[tuple[Objective, float]]:
        return list(zip(self.terms, self.weights, strict=True))


class Problem(ABC):
    """A bilevel problem over one flat vector `theta` of network parameters."""

    @abstractmethod
    def output(self, theta: Tensor, batch: Batch) -> Output:
        """The network's output for the rows, with these parameters."""

    @abstractmethod
    def training_loss(self, output: Output, outer: OuterParams, batch: Batch) -> Tensor:
        """The inner loss of an output."""

    @abstractmethod
    def outer(self, theta: Tensor, outer: OuterParams, batch: Batch) -> Tensor:
        """The outer loss; it may depend on `outer` directly."""

    def training_output(self, theta: Tensor, outer: OuterParams, batch: Batch) -> Output:
        """The output in training, where the network's input may depend on `outer`."""
        return self.output(theta, batch)

    def update_term(self, theta: Tensor, outer: OuterParams) -> Tensor | None:
        """The further term that a step of size lr from `theta` subtracts, divided by lr; None without one."""
        return None

    def inner(self, theta: Tensor, outer: OuterParams, batch: Batch) -> Tensor:
        """The inner loss."""
        return self.training_loss(self.training_output(theta, outer, batch), outer, batch)

    def gradient_graph(self, theta: Tensor, outer: OuterParams, batch: Batch) -> GradientGraph:
        """The training gradient in a form that can be differentiated once more."""
        theta = theta.detach().requires_grad_()
        leaves = {name: value.detach().requires_grad_() for name, value in outer.items()}
        with torch.enable_grad():
            output = self.training_output(theta, leaves, batch)
            loss = self.training_loss(output, leaves, batch)
            (grad,) = torch.autograd.grad(loss, theta, create_graph=True)
        return GradientGraph(theta, leaves, grad, Evaluation(loss.detach(), grad.detach(), output.detach()))


class Evaluation(NamedTuple):
    """The training loss at some parameters, its flat gradient, and the output it came from."""

    loss: Tensor
    grad: Tensor
    output: Output


@dataclass(frozen=True, slots=True)
class GradientGraph:
    """A training gradient with its graph."""

    theta: Tensor
    outer: OuterParams
    grad: Tensor
    evaluation: Evaluation

    def pull_back(self, direction: Tensor, *, keep: bool = False) -> tuple[Tensor, OuterParams]:
        """The gradient of ``⟨direction, grad⟩`` in theta (a Hessian-vector product) and in the outer parameters.

        The graph is freed unless `keep` is set.
        """
        to_theta, *to_outer = torch.autograd.grad(
            self.grad,
            (self.theta, *self.outer.values()),
            direction,
            retain_graph=keep,
            allow_unused=True,
            materialize_grads=True,
        )
        return to_theta, dict(zip(self.outer, to_outer, strict=True))


@dataclass(frozen=True, slots=True)
class InnerStep:
    """Everything needed to repeat an inner step, or to differentiate through it."""

    theta: Tensor
    state_after: tuple[Tensor, ...]
    count: int
    batch: Batch
    rewind: Callable[[], None]
    """Resets the random stream, so that another pass over this step draws the same dropout masks."""
    evaluation: Evaluation | None = None
    graph: GradientGraph | None = None

    @property
    def grad(self) -> Tensor:
        """The training gradient at `theta`."""
        assert self.evaluation is not None
        return self.evaluation.grad

    @property
    def output(self) -> Output:
        """The network's output at `theta`."""
        assert self.evaluation is not None
        return self.evaluation.output


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The inner steps since the last outer step, or the latest `Hypergradient.horizon` of them."""

    rule: OptimizerRule
    steps: Sequence[InnerStep]
    theta: Tensor
    """The parameters after the last step."""


class Hypergradient(ABC):
    """A method to differentiate the outer loss through the inner steps."""

    horizon: int | None
    """Number of the latest inner steps it uses; None for all of them."""

    records: Literal["start", "evaluation", "graph"] = "evaluation"
    """The data it needs of a recorded step: the parameters before it; also gradient and output; or their graph."""

    differentiates_update: bool = True
    """Whether it differentiates through an outer model's part of the update (`Problem.update_term`)."""

    @abstractmethod
    def __call__(
        self, problem: Problem, trajectory: Trajectory, outer: OuterParams, batch: Batch
    ) -> tuple[Tensor, OuterParams]:
        """The outer loss on `batch` and its gradient with respect to the outer parameters."""
