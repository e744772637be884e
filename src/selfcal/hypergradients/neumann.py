"""Implicit hypergradient by a Neumann series."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range, positive_int
from selfcal.hypergradients._implicit import AbstractImplicit, Product

POWER_ITERATIONS = 10
SAFETY_FACTOR = 1.2
"""Power iteration underestimates the largest eigenvalue; the estimate is multiplied by this."""


@dataclass(frozen=True)
class Neumann(AbstractImplicit):
    """Approximate the inverse Hessian by ``step Σ_{k < terms} (I - step A)^k``.

    Few terms act as damping of the directions with little curvature.

    Args:
        terms: Terms of the series, each one product with the Hessian.
        damping: Added to the Hessian's diagonal.
        step: Must be below 2 over the largest eigenvalue; None estimates it by power iteration, which costs
            ten more products.

    Example:
        >>> import torch
        >>> Neumann(terms=200).solve(lambda x: torch.tensor([2.0, 4.0]) * x, torch.tensor([2.0, 2.0]))
        tensor([1.0000, 0.5000])

    Reference:
        Lorraine, Vicol and Duvenaud, Optimizing millions of hyperparameters by implicit differentiation, 2020.
    """

    terms: int = 20
    damping: float = 0.01
    step: float | None = None

    def __post_init__(self) -> None:
        positive_int("terms", self.terms)
        in_range("damping", self.damping, 0)
        if self.step is not None:
            in_range("step", self.step, 0, open_low=True)

    def solve(self, product: Product, b: Tensor) -> Tensor:
        """The partial sum of the series."""
        step = self.step or 1 / (SAFETY_FACTOR * _largest_eigenvalue(product, b))
        term = b
        total = b.clone()
        for _ in range(self.terms - 1):
            term = term - step * product(term)
            total = total + term
        return step * total


def _largest_eigenvalue(product: Product, like: Tensor) -> float:
    """In absolute value, by power iteration from a fixed start."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)
    size = torch.ones(())
    for _ in range(POWER_ITERATIONS):
        vector = product(vector / vector.norm())
        size = vector.norm()
    return max(float(size), float(torch.finfo(like.dtype).tiny))
