"""Computations that several hypergradients share."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal.training.interfaces import InnerStep, Problem, Trajectory
from selfcal.training.types import Batch, OuterParams


def outer_gradient(
    problem: Problem, theta: Tensor, outer: OuterParams, batch: Batch
) -> tuple[Tensor, Tensor, OuterParams]:
    """The outer loss, its gradient in `theta`, and its direct gradient in the outer parameters."""
    theta, leaves = theta.detach().requires_grad_(), leaves_of(outer)
    with torch.enable_grad():
        value = problem.outer(theta, leaves, batch)
    adjoint, *direct = torch.autograd.grad(
        value, (theta, *leaves.values()), allow_unused=True, materialize_grads=True
    )
    return value.detach(), adjoint, dict(zip(leaves, direct, strict=True))


def leaves_of(outer: OuterParams) -> OuterParams:
    """The outer parameters as leaves of a new graph."""
    return {name: value.detach().requires_grad_() for name, value in outer.items()}


def through_update_term(
    problem: Problem, trajectory: Trajectory, step: InnerStep, adjoint: Tensor, outer: OuterParams
) -> tuple[Tensor | None, OuterParams]:
    """The adjoint v after a step pulled back through the outer model's part u of the update, if there is one.

    The step also subtracts ``lr u(θ, λ)``: v gives ``-lr (∂u/∂θ)ᵀ v`` for the parameters before it, and
    ``-lr (∂u/∂λ)ᵀ v`` for the outer parameters.
    """
    theta, leaves = step.theta.detach().requires_grad_(), leaves_of(outer)
    with torch.enable_grad():
        term = problem.update_term(theta, leaves)
    if term is None:
        return None, {}
    to_theta, *to_outer = torch.autograd.grad(
        term,
        (theta, *leaves.values()),
        adjoint * -trajectory.rule.step_size(step.count),
        allow_unused=True,
        materialize_grads=True,
    )
    return to_theta, dict(zip(leaves, to_outer, strict=True))


def last_gradient_adjoint(trajectory: Trajectory, adjoint: Tensor) -> Tensor:
    """The adjoint of the parameters pulled back through the last update to its training gradient."""
    with torch.no_grad():
        _, to_grad, _ = trajectory.rule.pull_back(trajectory.steps[-1], adjoint)
    return to_grad


def difference_step(theta: Tensor, direction: Tensor, *, order: int) -> float:
    """The step length along `direction` in a difference quotient of this order.

    It balances the rounding error, which grows as the step gets shorter, and the truncation error, which shrinks.
    """
    limits = torch.finfo(theta.dtype)
    distance = limits.eps ** (1 / (order + 1)) * (float(theta.norm()) + 1)
    return min(distance / max(float(direction.norm()), limits.tiny), limits.max**0.5)


def plus(first: OuterParams, second: OuterParams) -> OuterParams:
    """The sum by name; names that `second` lacks count as zero."""
    return {name: value + second[name] if name in second else value for name, value in first.items()}
