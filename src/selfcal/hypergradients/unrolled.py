"""The exact gradient through every inner step, by an explicit reverse sweep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from selfcal._support.checks import positive_int
from selfcal.hypergradients._pieces import outer_gradient, plus, through_update_term
from selfcal.training.interfaces import GradientGraph, Hypergradient, InnerStep, Problem, Trajectory
from selfcal.training.types import Batch, OuterParams


@dataclass(frozen=True)
class Unrolled(Hypergradient):
    """Reverse-mode differentiation of the inner steps, one at a time, last to first.

    Each step is pulled back in two parts: the optimiser's update by its own adjoint, then the training
    gradient by one backward pass through its graph.

    Args:
        truncate: Use the last `truncate` steps only; None for all since the last outer step.
        recompute: Record only parameters and optimiser state and repeat each step in the reverse sweep, so that
            only one step's graph is in memory at a time. It costs a forward and a backward pass per step, and saves
            most of the memory.

    Reference:
        Franceschi, Donini, Frasconi and Pontil, Forward and reverse gradient-based hyperparameter
        optimization, 2017.
    """

    truncate: int | None = None
    recompute: bool = False

    def __post_init__(self) -> None:
        if self.truncate is not None:
            positive_int("truncate", self.truncate)

    @property
    def horizon(self) -> int | None:  # type: ignore[override] # a read-only view of `truncate`
        """`truncate`."""
        return self.truncate

    @property
    def records(self) -> Literal["start", "graph"]:  # type: ignore[override] # a read-only view of `recompute`
        """Only the parameters before each step if the steps are repeated."""
        return "start" if self.recompute else "graph"

    def __call__(
        self, problem: Problem, trajectory: Trajectory, outer: OuterParams, batch: Batch
    ) -> tuple[Tensor, OuterParams]:
        """The outer loss and its exact gradient."""
        value, adjoint, total = outer_gradient(problem, trajectory.theta, outer, batch)
        state_adjoints = None
        for step in reversed(trajectory.steps):
            graph = step.graph or _repeated(problem, step, outer)
            to_theta, by_update = through_update_term(problem, trajectory, step, adjoint, outer)
            with torch.no_grad():
                evaluated = replace(step, evaluation=graph.evaluation)
                adjoint, to_grad, state_adjoints = trajectory.rule.pull_back(
                    evaluated, adjoint, state_adjoints
                )
            through, direct = graph.pull_back(to_grad)
            adjoint = adjoint + through if to_theta is None else adjoint + through + to_theta
            total = plus(plus(total, direct), by_update)
        return value, total


def _repeated(problem: Problem, step: InnerStep, outer: OuterParams) -> GradientGraph:
    step.rewind()
    return problem.gradient_graph(step.theta, outer, step.batch)
