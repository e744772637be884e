"""Implicit hypergradient by conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range, positive_int
from selfcal.hypergradients._implicit import AbstractImplicit, Product


@dataclass(frozen=True)
class ConjugateGradient(AbstractImplicit):
    """Solve the implicit system by conjugate gradients.

    If the curvature along a direction is not positive, the iterate before it is returned.

    Args:
        iterations: Maximum number of products with the Hessian.
        damping: Added to the Hessian's diagonal.
        tolerance: Stop when the residual is this small relative to the right-hand side.

    Example:
        >>> import torch
        >>> ConjugateGradient().solve(lambda x: torch.tensor([2.0, 4.0]) * x, torch.tensor([2.0, 2.0]))
        tensor([1.0000, 0.5000])
    """

    iterations: int = 20
    damping: float = 0.01
    tolerance: float = 1e-10

    def __post_init__(self) -> None:
        positive_int("iterations", self.iterations)
        in_range("damping", self.damping, 0)
        in_range("tolerance", self.tolerance, 0)

    def solve(self, product: Product, b: Tensor) -> Tensor:
        """The iterate at which the residual is small enough, or the last one."""
        x = torch.zeros_like(b)
        residual, direction = b.clone(), b.clone()
        left = residual @ residual
        enough = self.tolerance**2 * left
        for _ in range(self.iterations):
            if left <= enough:
                break
            image = product(direction)
            curvature = direction @ image
            if not curvature > 0:
                break
            length = left / curvature
            x = x + length * direction
            residual = residual - length * image
            before, left = left, residual @ residual
            direction = residual + left / before * direction
        return x
