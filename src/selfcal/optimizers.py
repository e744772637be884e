"""Differentiable optimiser rules; those with a namesake in `torch.optim` equal it step for step.

Unrolled hypergradients differentiate through the update itself, which `torch.optim` does not support. A rule
updates one flat vector of parameters.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import torch
from torch import Tensor

from selfcal._support.checks import in_range, positive_int
from selfcal.errors import ConfigError
from selfcal.training.interfaces import InnerStep, OptimizerRule

State = tuple[Tensor, ...]
Rate = float | Callable[[int], float]
"""A step size: a number, or a function of the number of the step (the first is 1) such as `StepDecay` or `CosLog`."""


@dataclass(frozen=True)
class StepDecay:
    """A step size that is multiplied by a factor after given steps.

    Args:
        start: The initial step size.
        after: The numbers of these steps, in ascending order.
        factor: The factor.

    Example:
        >>> rate = StepDecay(0.1, after=(150, 250))
        >>> [round(rate(step), 6) for step in (1, 150, 151, 300)]
        [0.1, 0.1, 0.01, 0.001]
    """

    start: float
    after: tuple[int, ...]
    factor: float = 0.1

    def __post_init__(self) -> None:
        in_range("start", self.start, 0, open_low=True)
        in_range("factor", self.factor, 0, open_low=True)
        if list(self.after) != sorted(positive_int("after", step) for step in self.after):
            raise ConfigError(f"after must be step numbers in ascending order; got {self.after!r}.")

    def __call__(self, count: int) -> float:
        """The size of step number `count`."""
        return self.start * self.factor ** bisect.bisect_left(self.after, count)


@dataclass(frozen=True)
class CosLog:
    """Four cosine waves of the step size, each twice as long as the one before: ``½ - ½ cos(2π log₂(1 + 15 t))``.

    The time t goes from 0 to 1 in the course of a training run. At the end of every wave the step size is zero.

    Args:
        peak: The largest step size.
        n_steps: The number of steps of the run; `train` fills it in.

    Example:
        >>> rate = CosLog(0.04, n_steps=1500)
        >>> [round(rate(step), 4) for step in (1, 101, 301, 701, 1032)]
        [0.0, 0.0, 0.0, 0.0, 0.04]

    Reference:
        Holzmüller, Grinsztajn and Steinwart, Better by default: strong pre-tuned MLPs and boosted trees on tabular
        data, 2024.
    """

    peak: float
    n_steps: int | None = None

    def __post_init__(self) -> None:
        in_range("peak", self.peak, 0, open_low=True)
        if self.n_steps is not None:
            positive_int("n_steps", self.n_steps)

    def __call__(self, count: int) -> float:
        """The size of step number `count`."""
        if self.n_steps is None:
            raise ConfigError(f"{self!r} must know the number of steps of the run; set n_steps.")
        waves = math.log2(1 + 15 * (count - 1) / self.n_steps)
        return self.peak * (0.5 - 0.5 * math.cos(2 * math.pi * waves))


def _checked_rate(rate: Rate) -> None:
    if not callable(rate):
        in_range("lr", rate, 0, open_low=True)


def _rate(rate: Rate, count: int) -> float:
    return rate(count) if callable(rate) else rate


@dataclass(frozen=True)
class SlowedRate:
    """A step size that is another one times a factor.

    Example:
        >>> SlowedRate(StepDecay(0.1, after=(150,)), 0.5)(1)
        0.05
    """

    rate: Callable[[int], float]
    factor: float

    def __call__(self, count: int) -> float:
        """The size of step number `count`."""
        return self.factor * self.rate(count)


class _RatedRule(OptimizerRule):
    """A rule with a step size."""

    lr: Rate

    def step_size(self, count: int) -> float:
        """The step size of step number `count`."""
        return _rate(self.lr, count)

    def with_step_size(self, size: float) -> Self:
        """The same rule with another step size, which is the peak where it comes in waves."""
        rate = replace(self.lr, peak=size) if isinstance(self.lr, CosLog) else size
        return replace(cast(Any, self), lr=rate)

    def planned(self, n_steps: int) -> Self:
        """The same rule for a run of so many steps."""
        if not isinstance(self.lr, CosLog):
            return self
        return replace(cast(Any, self), lr=replace(self.lr, n_steps=n_steps))

    def slowed(self, factor: float) -> Self:
        """The same rule with its step size times `factor`."""
        rate = SlowedRate(self.lr, factor) if callable(self.lr) else self.lr * factor
        return replace(cast(Any, self), lr=rate)


@dataclass(frozen=True)
class SGD(_RatedRule):
    """Stochastic gradient descent with momentum, Nesterov momentum and L2 weight decay.

    Example:
        >>> import torch
        >>> rule, theta = SGD(lr=0.5), torch.tensor([1.0, 2.0])
        >>> rule.update(theta, torch.tensor([1.0, 0.0]), rule.init(theta), count=1)[0]
        tensor([0.5000, 2.0000])
    """

    lr: Rate
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _checked_rate(self.lr)
        in_range("momentum", self.momentum, 0)
        in_range("weight_decay", self.weight_decay, 0)
        if self.nesterov and not self.momentum:
            raise ConfigError("nesterov=True needs momentum above 0; got momentum=0. Try momentum=0.9.")

    def init(self, theta: Tensor) -> State:
        """A zero velocity, or no state without momentum."""
        return (torch.zeros_like(theta),) if self.momentum else ()

    def step_(self, theta: Tensor, grad: Tensor, state: State, count: int) -> None:
        """v = μ v + g;  θ = θ - lr v  (with Nesterov: θ - lr (g + μ v))."""
        direction = grad.add(theta, alpha=self.weight_decay) if self.weight_decay else grad
        if self.momentum:
            velocity = state[0].mul_(self.momentum).add_(direction)
            direction = direction.add(velocity, alpha=self.momentum) if self.nesterov else velocity
        theta.sub_(direction, alpha=_rate(self.lr, count))

    def pull_back(
        self, step: InnerStep, adjoint: Tensor, state_adjoints: State | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """Linear in everything, so the adjoint does not depend on where the step was taken."""
        to_direction = adjoint * -_rate(self.lr, step.count)
        to_grad, to_state = to_direction, step.state_after
        if self.momentum:
            to_velocity = to_direction * self.momentum if self.nesterov else to_direction
            if state_adjoints is not None:
                to_velocity = to_velocity + state_adjoints[0]
            to_grad = to_direction + to_velocity if self.nesterov else to_velocity
            to_state = (to_velocity * self.momentum,)
        to_theta = adjoint.add(to_grad, alpha=self.weight_decay) if self.weight_decay else adjoint
        return to_theta, to_grad, to_state


@dataclass(frozen=True)
class NormalizedSGD(_RatedRule):
    """Gradient descent with the gradient divided by its mean absolute value.

    `lr` is the average change of a coordinate in one step. The scale of hypergradients of per-row weights depends on
    the number of rows, the inner step size and the strategy; this step does not. Coordinates without a gradient, such
    as the weights of rows that are not in the batch, are left out of the mean.

    Example:
        >>> import torch
        >>> rule, theta = NormalizedSGD(lr=0.1), torch.tensor([0.5, 0.5, 0.5])
        >>> rule.update(theta, torch.tensor([3e-6, -1e-6, 0.0]), (), count=1)[0]
        tensor([0.3500, 0.5500, 0.5000])
    """

    lr: Rate

    def __post_init__(self) -> None:
        _checked_rate(self.lr)

    def init(self, theta: Tensor) -> State:
        """No state."""
        return ()

    def step_(self, theta: Tensor, grad: Tensor, state: State, count: int) -> None:
        """θ = θ - lr g / mean|g|; a zero gradient leaves θ unchanged."""
        theta.sub_(grad / self._size(grad)[0], alpha=_rate(self.lr, count))

    def pull_back(
        self, step: InnerStep, adjoint: Tensor, state_adjoints: State | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """The quotient rule: every coordinate also changes the mean that all are divided by."""
        size, moved = self._size(step.grad)
        to_step = adjoint * -_rate(self.lr, step.count)
        to_size = -(to_step * step.grad).sum() / size**2
        return adjoint, to_step / size + to_size * step.grad.sign() / moved, ()

    @staticmethod
    def _size(grad: Tensor) -> tuple[Tensor, Tensor]:
        """The mean absolute value of the coordinates that move, and how many those are."""
        moved = grad.count_nonzero().clamp_min(1)
        return (grad.abs().sum() / moved).clamp_min(torch.finfo(grad.dtype).tiny), moved


@dataclass(frozen=True)
class Adam(_RatedRule):
    """Adam; `decoupled=True` applies the weight decay to the parameters as AdamW does.

    Example:
        >>> import torch
        >>> rule, theta = Adam(lr=0.1), torch.tensor([1.0, 2.0])
        >>> rule.update(theta, torch.tensor([3.0, 0.0]), rule.init(theta), count=1)[0]
        tensor([0.9000, 2.0000])

    Reference:
        Kingma and Ba, Adam: a method for stochastic optimization, 2015.
        Loshchilov and Hutter, Decoupled weight decay regularization, 2019.
    """

    lr: Rate = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False

    def __post_init__(self) -> None:
        _checked_rate(self.lr)
        in_range("eps", self.eps, 0, open_low=True)
        in_range("weight_decay", self.weight_decay, 0)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"betas must be two numbers in [0, 1); got {self.betas!r}.")

    def init(self, theta: Tensor) -> State:
        """Zero first and second moments."""
        return torch.zeros_like(theta), torch.zeros_like(theta)

    def step_(self, theta: Tensor, grad: Tensor, state: State, count: int) -> None:
        """m = β₁ m + (1-β₁) g;  v = β₂ v + (1-β₂) g²;  θ = θ - lr m̂ / (√v̂ + ε)."""
        kernel = (
            torch._fused_adamw_ if self.decoupled else torch._fused_adam_
        )  # one pass over memory, not ten
        mean, square = state
        kernel(
            [theta],
            [grad],
            [mean],
            [square],
            [],
            [torch.tensor(float(count), device=theta.device)],
            lr=_rate(self.lr, count),
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=self.weight_decay,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def pull_back(
        self, step: InnerStep, adjoint: Tensor, state_adjoints: State | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """Written by hand, with the derivative of the square root defined as 0 at 0.

        Automatic differentiation gives NaN there, which happens with ReLU units that were never active.
        """
        beta1, beta2 = self.betas
        mean, square = step.state_after
        root, correction = square.sqrt(), math.sqrt(1 - beta2**step.count)
        scale = root + self.eps * correction
        rate = _rate(self.lr, step.count)
        size = -rate * correction / (1 - beta1**step.count)
        to_mean = adjoint / scale
        to_square = (to_mean * mean).div_(scale).div_(root).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        if state_adjoints is None:
            to_mean.mul_(size)
            to_square.mul_(-size / 2)
        else:
            to_mean = torch.add(state_adjoints[0], to_mean, alpha=size)
            to_square = torch.add(state_adjoints[1], to_square, alpha=-size / 2)
        grad, to_theta = step.grad, adjoint
        if self.weight_decay and not self.decoupled:
            grad = grad.add(step.theta, alpha=self.weight_decay)
        to_grad = (to_mean * (1 - beta1)).addcmul_(to_square, grad, value=2 * (1 - beta2))
        if self.weight_decay:
            kept = 1 - rate * self.weight_decay
            to_theta = adjoint * kept if self.decoupled else adjoint.add(to_grad, alpha=self.weight_decay)
        return to_theta, to_grad, (to_mean.mul_(beta1), to_square.mul_(beta2))


def AdamW(  # noqa: N802 - named after the class it stands for
    lr: Rate = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> Adam:
    """Adam with decoupled weight decay.

    Example:
        >>> AdamW(lr=0.1).decoupled
        True
    """
    return Adam(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, decoupled=True)
