"""The gradient through the last inner step only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

from selfcal._support.checks import one_of
from selfcal.errors import ConfigError
from selfcal.hypergradients._pieces import (
    difference_step,
    last_gradient_adjoint,
    leaves_of,
    outer_gradient,
    plus,
    through_update_term,
)
from selfcal.training.interfaces import Hypergradient, InnerStep, Problem, Trajectory
from selfcal.training.types import Batch, OuterParams, Output


@dataclass(frozen=True)
class OneStep(Hypergradient):
    """Differentiate the last inner step with everything before it fixed.

    With v the outer gradient at the end and u = (∂update/∂grad)ᵀ v its adjoint at the training gradient, the
    hypergradient is ``∂/∂λ ⟨u, ∇θ inner(θ, λ)⟩``. The inner product is a directional derivative: u is pushed forward
    through the network to a tangent of its output, and the rest is differentiated at the output, unless the outer
    parameters change the network's input. No per-row gradients are needed.

    Args:
        tangent: How u is pushed forward. ``"difference"``: one more forward pass a short distance along u, for any
            network; the error is about the square root of the rounding unit. In double precision, where exactness
            is wanted, two passes, forward and back, and an error of 1e-11. ``"forward"``: forward-mode
            differentiation, exact, with three products per layer instead of one, if every layer has a forward-mode
            rule.

    Reference:
        Liu, Simonyan and Yang, DARTS: differentiable architecture search, 2019, section 2.3.
    """

    tangent: str = "difference"
    horizon = 1

    def __post_init__(self) -> None:
        one_of("tangent", self.tangent, _TANGENTS)

    def __call__(
        self, problem: Problem, trajectory: Trajectory, outer: OuterParams, batch: Batch
    ) -> tuple[Tensor, OuterParams]:
        """The outer loss and its gradient through the last step."""
        value, adjoint, direct = outer_gradient(problem, trajectory.theta, outer, batch)
        last = trajectory.steps[-1]
        to_grad = last_gradient_adjoint(trajectory, adjoint)
        leaves = leaves_of(outer)
        with torch.enable_grad():
            here, tangents = _TANGENTS[self.tangent](problem, last, to_grad, leaves)
            output = here.map(lambda part: part if part.requires_grad else part.detach().requires_grad_())
            loss = problem.training_loss(output, leaves, last.batch)
            slopes = torch.autograd.grad(loss, _parts(output), create_graph=True, allow_unused=True)
        pairs = [(s, t) for s, t in zip(slopes, tangents, strict=True) if s is not None]
        moving = [(a, b) for s, t in pairs for a, b in ((s, t), (t, s)) if a.requires_grad]
        through = torch.autograd.grad(
            [part for part, _ in moving],
            tuple(leaves.values()),
            [factor.detach() for _, factor in moving],
            allow_unused=True,
            materialize_grads=True,
        )
        _, by_update = through_update_term(problem, trajectory, last, adjoint, outer)
        return value, plus(plus(direct, dict(zip(leaves, through, strict=True))), by_update)


def _parts(output: Output) -> list[Tensor]:
    return [output.logits] if output.head is None else [output.logits, output.head]


def _forward_mode(
    problem: Problem, step: InnerStep, direction: Tensor, outer: OuterParams
) -> tuple[Output, list[Tensor]]:
    """The step's output, and its exact derivatives when the parameters move along `direction`."""
    step.rewind()
    try:
        with forward_ad.dual_level():
            theta = forward_ad.make_dual(step.theta, direction)
            output = problem.training_output(theta, outer, step.batch)
            tangents = [_tangent(part) for part in _parts(output)]
            return output.map(lambda part: forward_ad.unpack_dual(part).primal), tangents
    except NotImplementedError as error:
        raise ConfigError(
            f'A layer of the network has no forward-mode rule ({error}). Use OneStep(tangent="difference").'
        ) from None


def _tangent(part: Tensor) -> Tensor:
    value, tangent = forward_ad.unpack_dual(part)
    return torch.zeros_like(value) if tangent is None else tangent


def _difference(
    problem: Problem, step: InnerStep, direction: Tensor, outer: OuterParams
) -> tuple[Output, list[Tensor]]:
    """The same by a difference quotient: to one side, or, in double precision, to both."""
    both_sides = step.theta.dtype == torch.float64
    epsilon = difference_step(step.theta, direction, order=2 if both_sides else 1)

    def moved(by: float) -> Output:
        step.rewind()
        return problem.training_output(step.theta.add(direction, alpha=by), outer, step.batch)

    here, ahead = step.output, moved(epsilon)
    if ahead.logits.requires_grad:  # the network's input depends on the outer parameters
        here = moved(0.0)
    behind, distance = (moved(-epsilon), 2 * epsilon) if both_sides else (here, epsilon)
    pairs = zip(_parts(ahead), _parts(behind), strict=True)
    return here, [(there - start) / distance for there, start in pairs]


_TANGENTS = {"difference": _difference, "forward": _forward_mode}
