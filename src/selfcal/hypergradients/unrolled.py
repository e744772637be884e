"""The exact gradient through every inner step, by an explicit reverse sweep."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._checks import positive_int
from selfcal._types import Batch, OuterParams
from selfcal.hypergradients._outer_gradient import outer_gradient
from selfcal.interfaces import Hypergradient, InnerStep, OptimizerRule, Problem, Trajectory


@dataclass(frozen=True)
class Unrolled(Hypergradient):
    """Reverse-mode differentiation of the inner steps, one at a time, last to first.

    Each step is taken again from its recorded start and pulled back together with the optimiser's state, so
    only one step's graph is alive at any moment: memory grows with the recorded parameters, not with graphs.

    Args:
        truncate: Look at the last `truncate` steps only; None for all since the last outer step.

    Reference:
        Franceschi, Donini, Frasconi and Pontil, Forward and reverse gradient-based hyperparameter
        optimization, 2017.
    """

    truncate: int | None = None

    def __post_init__(self) -> None:
        if self.truncate is not None:
            positive_int("truncate", self.truncate)

    @property
    def horizon(self) -> int | None:  # type: ignore[override] # a read-only view of `truncate`
        """As many steps as it is truncated to."""
        return self.truncate

    def __call__(
        self, problem: Problem, trajectory: Trajectory, outer: OuterParams, batch: Batch
    ) -> tuple[Tensor, OuterParams]:
        """The outer loss and its exact gradient."""
        value, adjoint, total = outer_gradient(problem, trajectory.theta, outer, batch)
        adjoints: tuple[Tensor, ...] = (adjoint,)
        for step in reversed(trajectory.steps):
            adjoints, direct = _pull_back(problem, trajectory.rule, step, outer, adjoints)
            total = {name: total[name] + direct[name] for name in total}
        return value, total


def _pull_back(
    problem: Problem,
    rule: OptimizerRule,
    step: InnerStep,
    outer: OuterParams,
    adjoints: tuple[Tensor, ...],
) -> tuple[tuple[Tensor, ...], OuterParams]:
    """Adjoints of (theta, state) after a step to those before it, and the step's own part of the gradient.

    `adjoints` holds theta's first, then the state's; the last step's state has none yet, hence the padding.
    """
    theta = step.theta.detach().requires_grad_()
    state = tuple(s.detach().requires_grad_() for s in step.state)
    leaves = {name: value.detach().requires_grad_() for name, value in outer.items()}
    with torch.enable_grad():
        step.rewind()
        loss = problem.inner(theta, leaves, step.batch)
        (grad,) = torch.autograd.grad(loss, theta, create_graph=True)
        new_theta, new_state = rule.update(theta, grad, state, step.count)
    ends = (new_theta, *new_state)[: len(adjoints)]
    pulled = torch.autograd.grad(
        ends, (theta, *state, *leaves.values()), adjoints, allow_unused=True, materialize_grads=True
    )
    cut = 1 + len(state)
    return pulled[:cut], dict(zip(leaves, pulled[cut:], strict=True))
