"""What several hypergradients are made of."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal._types import Batch, OuterParams
from selfcal.interfaces import Problem, Trajectory


def outer_gradient(
    problem: Problem, theta: Tensor, outer: OuterParams, batch: Batch
) -> tuple[Tensor, Tensor, OuterParams]:
    """The outer loss, its gradient in `theta`, and its direct gradient in the outer parameters."""
    theta = theta.detach().requires_grad_()
    leaves = {name: value.detach().requires_grad_() for name, value in outer.items()}
    with torch.enable_grad():
        value = problem.outer(theta, leaves, batch)
    adjoint, *direct = torch.autograd.grad(
        value, (theta, *leaves.values()), allow_unused=True, materialize_grads=True
    )
    return value.detach(), adjoint, dict(zip(leaves, direct, strict=True))


def asked_of_last_gradient(trajectory: Trajectory, adjoint: Tensor) -> Tensor:
    """The adjoint of the parameters pulled back through the last update to its training gradient."""
    with torch.no_grad():
        _, asked, _ = trajectory.rule.pull_back(trajectory.steps[-1], adjoint)
    return asked


def difference_step(theta: Tensor, direction: Tensor, *, order: int) -> float:
    """How far to go along `direction` in a difference quotient of this order.

    There rounding, which grows as the way gets shorter, and curvature, which grows with it, err alike.
    """
    limits = torch.finfo(theta.dtype)
    way = limits.eps ** (1 / (order + 1)) * (float(theta.norm()) + 1)
    return min(way / max(float(direction.norm()), limits.tiny), limits.max**0.5)


def plus(first: OuterParams, second: OuterParams) -> OuterParams:
    """The sum, name by name."""
    return {name: first[name] + second[name] for name in first}
