"""Gaussian discriminant analysis as a network, whose weights follow from the moments of each class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from selfcal._support.checks import Float, Int
from selfcal._support.random_streams import seeded
from selfcal.models.layers import RobustScaling
from selfcal.models.origin import remembered

MAX_COVARIANCES = 100_000
"""Numbers in the covariances of all classes; with more, the classes have one covariance in common."""
MAX_COLUMNS = 1_000
"""With more columns, covariances are diagonal."""
MIN_VARIANCE = 1e-6
"""Added to all variances: a column may be constant."""
ABSENT_LOGIT = -30.0
"""Of a class without rows."""


@remembered
def discriminant(n_features: int, n_classes: int, *, quadratic: bool = False) -> nn.Module:
    """Discriminant analysis: the logits of classes whose features are Gaussian.

    The columns are scaled robustly. With `quadratic`, each class c has its own covariance Σ_c and the logit
    ``b_c - ½ ‖Σ_c^-½ (x - μ_c)‖²``; otherwise they have one in common, and the logits are linear. The weights are
    not trained; `Moments.network` sets them.

    Args:
        n_features: Columns of the input.
        n_classes: Classes, one logit each.
        quadratic: Whether each class has its own covariance.

    Example:
        >>> discriminant(2, 3)
        Sequential(
          (0): RobustScaling()
          (1): Linear(in_features=2, out_features=3, bias=True)
        )
    """
    if not quadratic:
        return nn.Sequential(RobustScaling(n_features), nn.Linear(n_features, n_classes))
    distances = nn.Linear(n_features, n_classes * n_features)
    return nn.Sequential(RobustScaling(n_features), distances, ClassDistances(n_classes))


class ClassDistances(nn.Module):
    """``b_c - ½ ‖z_c‖²`` for each class c, where the input holds the vectors z_c one after the other.

    Args:
        n_classes: Classes.

    Example:
        >>> ClassDistances(2)(torch.tensor([[1.0, 1.0, 0.0, 2.0]]))
        tensor([[-1., -2.]], grad_fn=<SubBackward0>)
    """

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(n_classes))

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        return self.bias - 0.5 * x.unflatten(1, (len(self.bias), -1)).square().sum(dim=2)


@dataclass(frozen=True)
class Moments:
    """Number of rows, mean and scatter matrix of each class.

    Attributes:
        count: The rows of each class, or their sample weights.
        mean: Their means (classes, columns).
        scatter: Sums of products of deviations from them (classes, columns, columns), or the sum of these over
            classes (1, columns, columns) where they would be too large; the diagonals alone if there are very many
            columns.
    """

    count: Float
    mean: Float
    scatter: Float

    @classmethod
    def of(cls, x: Float, y: Int, weight: Float | None, n_classes: int) -> Moments:
        """The moments of some rows."""
        n_columns = x.shape[1]
        weight = np.ones(len(y)) if weight is None else weight * (len(y) / weight.sum())
        count: Float = np.bincount(y, weight, n_classes).astype(np.float64)
        separate = n_columns <= MAX_COLUMNS and n_classes * n_columns**2 <= MAX_COVARIANCES
        mean = np.zeros((n_classes, n_columns))
        size = (n_columns, n_columns) if n_columns <= MAX_COLUMNS else (n_columns,)
        scatter = np.zeros((n_classes if separate else 1, *size))
        for code in np.flatnonzero(count):
            own = y == code
            mean[code] = weight[own] @ x[own] / count[code]
            centred = (x[own] - mean[code]) * np.sqrt(weight[own])[:, None]
            scatter[code if separate else 0] += (
                centred.T @ centred if len(size) > 1 else (centred**2).sum(axis=0)
            )
        return cls(count, mean, scatter)

    @property
    def separate(self) -> bool:
        """Whether there is a scatter matrix for each class."""
        return len(self.scatter) == len(self.count) > 1

    def network(self, scaling: RobustScaling, common_rows: float, diagonal: float) -> nn.Module:
        """The network of these moments.

        Args:
            scaling: The scaling of the columns before the moments were taken.
            common_rows: How many rows the covariance common to all classes counts as in that of each class; infinite
                for one covariance.
            diagonal: The weight of the diagonal of each covariance in it: 0 for none, 1 for independent columns.
        """
        n_classes, n_columns = self.mean.shape
        quadratic = bool(np.isfinite(common_rows))
        common = self.scatter.sum(axis=0) / max(self.count.sum() - n_classes, 1.0)
        with np.errstate(divide="ignore"):
            bias = np.where(self.count > 0, np.log(self.count / self.count.sum()), ABSENT_LOGIT)
        if quadratic:
            rows = (self.count - 1).clip(min=0)[:, None, None] + common_rows
            factor = np.linalg.cholesky(_shrunk((self.scatter + common_rows * common) / rows, diagonal))
            inverse = np.linalg.inv(factor)
            weights = inverse.reshape(-1, n_columns), -(inverse @ self.mean[:, :, None]).ravel()
            bias -= np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        else:
            covariance = _shrunk(common, diagonal)
            slopes = (
                self.mean / covariance if covariance.ndim == 1 else np.linalg.solve(covariance, self.mean.T).T
            )
            weights = slopes, bias - 0.5 * (slopes * self.mean).sum(axis=1)
        with seeded(0):  # layers draw initial weights
            network = discriminant(n_columns, n_classes, quadratic=quadratic)
        tensors = (*scaling.buffers(), *map(torch.from_numpy, (*weights, *[bias] * quadratic)))
        with torch.no_grad():
            for own, tensor in zip((*network.buffers(), *network.parameters()), tensors, strict=True):
                own.copy_(tensor)
        return network.eval()


def _shrunk(covariance: Float, diagonal: float) -> Float:
    """A covariance, or several, of which a part is replaced by its diagonal; a vector stands for a diagonal.

    Example:
        >>> _shrunk(np.array([[1.0, 0.8], [0.8, 1.0]]), 0.5).round(3)
        array([[1. , 0.4],
               [0.4, 1. ]])
    """
    if covariance.ndim == 1:
        return covariance + MIN_VARIANCE
    kept = np.eye(covariance.shape[-1], dtype=bool)
    return np.where(kept, covariance + MIN_VARIANCE, (1 - diagonal) * covariance)
