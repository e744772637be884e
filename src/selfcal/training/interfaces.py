"""The parts a method is made of. Everything here is abstract; a `Recipe` puts concrete parts together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.calibrators.interface import Calibrator as Calibrator  # noqa: PLC0414 # exported from here, too
from selfcal.errors import ConfigError
from selfcal.training.types import Batch, OuterParams, Output, Sizes

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

    def rate(self, count: int) -> float:
        """The size of step number `count`, which a learned weight decay is multiplied with."""
        raise ConfigError(
            f"Learned weight decay is multiplied with the optimiser's step size, and {self!r} does not tell it. Give "
            "it a method rate(count)."
        )

    def slowed(self, factor: float) -> Self | None:
        """The same rule with its step size times `factor`; None if it has none to change."""
        return None

    @abstractmethod
    def pull_back(
        self, step: InnerStep, adjoint: Tensor, state_adjoints: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """The reverse of a step: adjoints of the parameters and the state after it to those before it.

        Returns the adjoints of `theta`, of `grad` and of the state before the step. `state_adjoints` is None
        after the last step, whose state nobody has used yet.
        """


class OuterModel(ABC):
    """What the outer level owns: turns its parameters into the loss's hyperparameters, row by row."""

    provides: frozenset[str]
    """What it gives: ``weight`` multiplies the rows' losses, ``penalty`` is added to their mean, anything else is
    a keyword of the loss."""

    reads_head: bool = False
    """Whether it looks at the features that the network's head is given, or at the head's weight."""

    layer: str | None = None
    """The name of the linear layer that is the head; None for the network's last one."""

    decays: bool = False
    """Whether it makes the network's layers decay, each as fast as `decay` says."""

    @abstractmethod
    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """The outer parameters before training, with the dtype and device of `like`."""

    @abstractmethod
    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The hyperparameters for these rows."""

    def blurred(self, outer: OuterParams, x: Tensor) -> Tensor:
        """What the network is given in training instead of the rows `x`; draws from torch's random stream."""
        return x

    def decay(self, outer: OuterParams) -> Tensor:
        """The decoupled weight decay λ of each layer: a step of size lr also takes ``lr λ W`` from its weights W."""
        raise NotImplementedError  # nobody asks a model that does not say it `decays`

    @abstractmethod
    def project(self, outer: OuterParams) -> OuterParams:
        """The nearest allowed parameters."""


class BatchTransform(ABC):
    """What is done to a training batch before the network sees it; draws from torch's random stream."""

    provides: frozenset[str] = frozenset()
    """The keywords of the loss that it gives, in `Batch.hyper`."""

    @abstractmethod
    def __call__(self, batch: Batch) -> Batch:
        """The rows to train on instead."""


class Objective(ABC):
    """What the outer level minimises: a scalar of the network's output on the outer data.

    Objectives add up, each at a price: ``NLL() + 0.5 * DECE()``.
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
    """Several objectives in one, each times its weight; ``NLL() + 0.5 * DECE()`` writes it.

    Sums within it are spread out, so that equal sums are equal however they came about.
    """

    terms: tuple[Objective, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        objectives = all(isinstance(term, Objective) for term in self.terms)
        if not objectives or not len(self.terms) == len(self.weights) > 0:
            raise ConfigError(
                "A sum must have objectives as terms and one weight for each; got "
                f"terms={self.terms!r}, weights={self.weights!r}. Write it as NLL() + 0.5 * DECE()."
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
        """As it would be written."""
        alone = len(self.terms) == 1
        shown = (f"{w} * {term!r}" if alone or w != 1 else repr(term) for term, w in self._parts())
        return " + ".join(shown)

    def _parts(self) -> list[tuple[Objective, float]]:
        return list(zip(self.terms, self.weights, strict=True))


class Problem(ABC):
    """A bilevel problem over one flat vector `theta` of network parameters."""

    @abstractmethod
    def output(self, theta: Tensor, batch: Batch) -> Output:
        """What the network with these parameters says about the rows."""

    @abstractmethod
    def training_loss(self, output: Output, outer: OuterParams, batch: Batch) -> Tensor:
        """The inner loss of an output."""

    @abstractmethod
    def outer(self, theta: Tensor, outer: OuterParams, batch: Batch) -> Tensor:
        """The outer loss; it may depend on `outer` directly."""

    def training_output(self, theta: Tensor, outer: OuterParams, batch: Batch) -> Output:
        """What it says about them in training, where `outer` may have changed what it is given."""
        return self.output(theta, batch)

    def decay(self, outer: OuterParams) -> Tensor | None:
        """The decoupled weight decay of each coordinate of `theta`; None if there is none."""
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

        The graph is used up unless `keep` is set.
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
    """Everything needed to take an inner step's gradient again, and the step itself back."""

    theta: Tensor
    state_after: tuple[Tensor, ...]
    count: int
    batch: Batch
    rewind: Callable[[], None]
    """Sets the random stream back, so that a pass over this step sees the same dropout masks again."""
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
    """The inner steps since the last outer step (the latest ones, if the strategy needs no more)."""

    rule: OptimizerRule
    steps: Sequence[InnerStep]
    theta: Tensor
    """Where the steps led."""


class Hypergradient(ABC):
    """How the outer loss is differentiated through the inner steps."""

    horizon: int | None
    """How many of the latest inner steps it looks at; None for all of them."""

    records: Literal["start", "evaluation", "graph"] = "evaluation"
    """What it needs of a recorded step: where it started; the gradient and output there too; or their graph."""

    sees_decay: bool = True
    """Whether it differentiates through the weight decay of a step."""

    @abstractmethod
    def __call__(
        self, problem: Problem, trajectory: Trajectory, outer: OuterParams, batch: Batch
    ) -> tuple[Tensor, OuterParams]:
        """The outer loss on `batch` and its gradient with respect to the outer parameters."""
