"""Gradient clipping as a part of the optimiser's step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from selfcal._support.checks import in_range
from selfcal.training.interfaces import InnerStep, OptimizerRule


@dataclass(frozen=True)
class Clipped(OptimizerRule):
    """A rule whose gradient is first scaled down to a largest Euclidean norm: ``g min(1, max_norm / ‖g‖)``.

    Clipping is a part of the step that hypergradients differentiate. As in `torch.nn.utils.clip_grad_norm_`, the norm
    is that of all parameters together.

    Args:
        rule: The optimiser rule.
        max_norm: The largest norm.

    Example:
        >>> from selfcal.optimizers import SGD
        >>> rule, theta = Clipped(SGD(lr=1.0), max_norm=1.0), torch.zeros(2)
        >>> rule.update(theta, torch.tensor([3.0, 4.0]), rule.init(theta), count=1)[0]
        tensor([-0.6000, -0.8000])
    """

    rule: OptimizerRule
    max_norm: float

    def __post_init__(self) -> None:
        in_range("clip_norm", self.max_norm, 0, open_low=True)

    def init(self, theta: Tensor) -> tuple[Tensor, ...]:
        """The state of the rule."""
        return self.rule.init(theta)

    def step_(self, theta: Tensor, grad: Tensor, state: tuple[Tensor, ...], count: int) -> None:
        """The step of the rule with the clipped gradient."""
        self.rule.step_(theta, grad * self._factor(grad), state, count)

    def pull_back(
        self, step: InnerStep, adjoint: Tensor, state_adjoints: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """The rule's own, then the derivative of clipping: a longer gradient changes in its direction only."""
        assert step.evaluation is not None
        grad, factor = step.grad, self._factor(step.grad)
        clipped = replace(step, evaluation=step.evaluation._replace(grad=grad * factor))
        to_theta, to_clipped, to_state = self.rule.pull_back(clipped, adjoint, state_adjoints)
        direction = grad / grad.norm().clamp_min(torch.finfo(grad.dtype).tiny)
        turned = factor * (to_clipped - direction * (direction @ to_clipped))
        return to_theta, torch.where(factor < 1, turned, to_clipped), to_state

    def step_size(self, count: int) -> float:
        """The step size of the rule."""
        return self.rule.step_size(count)

    def planned(self, n_steps: int) -> Self:
        """The same with the rule for a run of so many steps."""
        return replace(self, rule=self.rule.planned(n_steps))

    def slowed(self, factor: float) -> Self | None:
        """The same with the step size of the rule times `factor`."""
        slowed = self.rule.slowed(factor)
        return None if slowed is None else replace(self, rule=slowed)

    def _factor(self, grad: Tensor) -> Tensor:
        norm = grad.norm()
        return torch.where(norm > self.max_norm, self.max_norm / norm, torch.ones_like(norm))
