"""Where every hypergradient starts: the outer loss at the parameters the inner steps led to."""

from __future__ import annotations

import torch
from torch import Tensor

from selfcal._types import Batch, OuterParams
from selfcal.interfaces import Problem


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
