"""Implicit hypergradient by a low-rank approximation of the Hessian."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from selfcal._support.checks import in_range, positive_int
from selfcal.hypergradients._implicit import AbstractImplicit, Product


@dataclass(frozen=True)
class Nystrom(AbstractImplicit):
    """Invert a randomised Nyström approximation of the Hessian, plus damping.

    The Hessian A is multiplied with `rank` random orthonormal directions Q and approximated by ``Y (Qᵀ Y)⁺ Yᵀ`` with
    ``Y = A Q``; outside their range there is only the damping.

    Args:
        rank: Number of directions, each one product with the Hessian; at most the number of parameters is used.
        damping: Added to the Hessian's diagonal; must be above 0.

    Example:
        >>> import torch
        >>> Nystrom(rank=2).solve(lambda x: torch.tensor([2.0, 4.0]) * x, torch.tensor([2.0, 2.0]))
        tensor([1.0000, 0.5000])

    Reference:
        Hataya and Yamada, Nyström method for accurate and scalable implicit differentiation, 2023.
    """

    rank: int = 10
    damping: float = 0.01

    def __post_init__(self) -> None:
        positive_int("rank", self.rank)
        in_range("damping", self.damping, 0, open_low=True)

    def solve(self, product: Product, b: Tensor) -> Tensor:
        """The approximation's inverse applied to `b`, through its eigenvectors."""
        generator = torch.Generator().manual_seed(0)
        probes = torch.randn(b.numel(), min(self.rank, b.numel()), generator=generator, dtype=b.dtype)
        basis = torch.linalg.qr(probes.to(b.device)).Q
        image = torch.stack([product(column) for column in basis.T], dim=1)
        undamped = image - self.damping * basis
        core = basis.T @ undamped
        values, vectors = torch.linalg.eigh((core + core.T) / 2)
        kept = values > torch.finfo(b.dtype).eps * values.abs().max() * len(values)
        half = undamped @ (vectors[:, kept] / values[kept].sqrt())
        left, sizes, _ = torch.linalg.svd(half, full_matrices=False)
        inside = left.T @ b
        return left @ (inside / (sizes**2 + self.damping)) + (b - left @ inside) / self.damping
