"""The gradient through the last inner step only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

from selfcal._types import Batch, OuterParams, Output
from selfcal.hypergradients._outer_gradient import outer_gradient
from selfcal.interfaces import Hypergradient, InnerStep, Problem, Trajectory


@dataclass(frozen=True)
class OneStep(Hypergradient):
    """Differentiate the last inner step as if everything before it were fixed.

    With v the outer gradient at the end and u = (∂update/∂grad)ᵀ v the direction it asks of the training
    gradient, the hypergradient is ``∂/∂λ ⟨u, ∇θ inner(θ, λ)⟩``. The inner product is a directional derivative:
    one forward-mode pass pushes u through the network to a tangent of the output, and the rest happens at the
    output, whatever the outer parameters are. No gradient per row is ever formed.

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
        output, tangent = _push_forward(problem, last, _asked_of_the_gradient(trajectory, adjoint))
        logits = output.detach().requires_grad_()
        leaves = {name: value.detach().requires_grad_() for name, value in outer.items()}
        with torch.enable_grad():
            loss = problem.training_loss(Output(logits), leaves, last.batch)
            (slope,) = torch.autograd.grad(loss, logits, create_graph=True)
        through = torch.autograd.grad(
            slope, tuple(leaves.values()), tangent, allow_unused=True, materialize_grads=True
        )
        return value, {name: direct[name] + g for name, g in zip(leaves, through, strict=True)}


def _asked_of_the_gradient(trajectory: Trajectory, adjoint: Tensor) -> Tensor:
    """Pull the adjoint of the new parameters back through the optimiser's update to the training gradient."""
    last = trajectory.steps[-1]
    grad = last.grad.detach().requires_grad_()
    with torch.enable_grad():
        after, _ = trajectory.rule.update(last.theta, grad, last.state, last.count)
    (asked,) = torch.autograd.grad(after, grad, adjoint)
    return asked


def _push_forward(problem: Problem, step: InnerStep, direction: Tensor) -> tuple[Tensor, Tensor]:
    """The network's output at the step, and its derivative when the parameters move along `direction`."""
    step.rewind()
    with torch.no_grad(), forward_ad.dual_level():
        theta = forward_ad.make_dual(step.theta, direction)
        output, tangent = forward_ad.unpack_dual(problem.output(theta, step.batch).logits)
    return output, torch.zeros_like(output) if tangent is None else tangent
