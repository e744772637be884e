"""The exact gradient through every inner step, by an explicit reverse sweep."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._checks import positive_int
from selfcal._types import Batch, OuterParams
from selfcal.hypergradients._outer_gradient import outer_gradient
from selfcal.interfaces import Hypergradient, Problem, Trajectory


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
        leaves = {name: value.detach().requires_grad_() for name, value in outer.items()}
        state_adjoints = None
        for step in reversed(trajectory.steps):
            theta = step.theta.detach().requires_grad_()
            step.rewind()
            with torch.enable_grad():
                loss = problem.inner(theta, leaves, step.batch)
                (grad,) = torch.autograd.grad(loss, theta, create_graph=True)
            with torch.no_grad():
                adjoint, to_grad, state_adjoints = trajectory.rule.pull_back(
                    step.theta, grad, step.state, step.count, adjoint, state_adjoints
                )
            through, *direct = torch.autograd.grad(
                grad, (theta, *leaves.values()), to_grad, allow_unused=True, materialize_grads=True
            )
            adjoint = adjoint + through
            total = {name: total[name] + d for name, d in zip(leaves, direct, strict=True)}
        return value, total
