"""The gradient through the last inner step only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._types import Batch, OuterParams
from selfcal.hypergradients._outer_gradient import outer_gradient
from selfcal.interfaces import Hypergradient, Problem, Trajectory


@dataclass(frozen=True)
class OneStep(Hypergradient):
    """Differentiate the last inner step as if everything before it were fixed.

    With v the outer gradient at the end, and u = (∂update/∂grad)ᵀ v the direction it asks of the training
    gradient, the hypergradient is ``∂/∂λ ⟨u, ∇θ inner(θ, λ)⟩``: one extra pass, whatever the number of steps.

    Reference:
        Liu, Simonyan and Yang, DARTS: differentiable architecture search, 2019, section 2.3.
    """

    horizon = 1

    def __call__(
        self, problem: Problem, trajectory: Trajectory, outer: OuterParams, batch: Batch
    ) -> tuple[Tensor, OuterParams]:
        """The outer loss and its gradient through the last step."""
        value, adjoint, direct = outer_gradient(problem, trajectory.theta, outer, batch)
        last = trajectory.steps[-1]
        grad = last.grad.detach().requires_grad_()
        leaves = {name: value.detach().requires_grad_() for name, value in outer.items()}
        theta = last.theta.detach().requires_grad_()
        with torch.enable_grad():
            after, _ = trajectory.rule.update(last.theta, grad, last.state, last.count)
            (wanted,) = torch.autograd.grad(after, grad, adjoint)
            loss = last.replay(problem, theta, leaves)
            (inner_grad,) = torch.autograd.grad(loss, theta, create_graph=True)
        through = torch.autograd.grad(
            inner_grad, tuple(leaves.values()), wanted, allow_unused=True, materialize_grads=True
        )
        return value, {name: direct[name] + g for name, g in zip(leaves, through, strict=True)}
