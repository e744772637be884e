"""The gradient through the last inner step without any second derivative."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal.hypergradients._pieces import (
    difference_step,
    last_gradient_adjoint,
    leaves_of,
    outer_gradient,
    plus,
    through_update_term,
)
from selfcal.training.interfaces import Hypergradient, Problem, Trajectory
from selfcal.training.types import Batch, OuterParams


@dataclass(frozen=True)
class FiniteDifference(Hypergradient):
    """`OneStep` with first derivatives only, for losses and layers without second derivatives.

    With u as in `OneStep`, ``∂/∂λ ⟨u, ∇θ inner(θ, λ)⟩`` is approximated by the central difference of the inner loss's
    gradients in λ along u.

    Reference:
        Liu, Simonyan and Yang, DARTS: differentiable architecture search, 2019, eq. 8.
    """

    horizon = 1

    def __call__(
        self, problem: Problem, trajectory: Trajectory, outer: OuterParams, batch: Batch
    ) -> tuple[Tensor, OuterParams]:
        """The outer loss and its gradient through the last step."""
        value, adjoint, direct = outer_gradient(problem, trajectory.theta, outer, batch)
        to_grad = last_gradient_adjoint(trajectory, adjoint)
        last = trajectory.steps[-1]
        epsilon = difference_step(last.theta, to_grad, order=2)
        leaves = leaves_of(outer)
        _, by_update = through_update_term(problem, trajectory, last, adjoint, outer)
        total = plus(direct, by_update)
        for sign in (1, -1):
            last.rewind()
            with torch.enable_grad():
                moved = last.theta.add(to_grad, alpha=sign * epsilon)
                ahead = problem.training_output(moved, leaves, last.batch)
                output = ahead._replace(features=last.output.features, seen=last.output.logits)
                loss = problem.training_loss(output, leaves, last.batch)
            if not loss.requires_grad:  # the training loss does not depend on the outer parameters
                break
            grads = torch.autograd.grad(
                loss, tuple(leaves.values()), allow_unused=True, materialize_grads=True
            )
            slopes = (sign * grad / (2 * epsilon) for grad in grads)
            total = plus(total, dict(zip(leaves, slopes, strict=True)))
        return value, total
