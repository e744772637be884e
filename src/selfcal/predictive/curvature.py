"""The Hessian of the log loss in the last layer's weights, and the Gaussian posterior that follows from it.

All is float64. Weights are ordered as in `torch.nn.Linear`: the weights of one class after those of another, then the
biases. Features end in a one if there is a bias.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple, Self

import torch
from scipy.optimize import brentq
from torch import Tensor
from torch.nn import functional as F

from selfcal.errors import ConfigError

ALIGNED = 16
"""Numbers whose length is that of a cache line in single precision."""
LOG_PRECISIONS = (-18.0, 18.0)
"""Range of the logarithm of a prior precision that is found by marginal likelihood."""


class Posterior(NamedTuple):
    """A Gaussian posterior of a last layer, in the form that predictions need.

    Attributes:
        prior_precision: The precision of the prior.
        directions: (1 or classes, directions, inputs): directions of features, the same for all classes or not.
        variances: (1 or classes, classes or 1, directions): the variance of a logit for features of length one in
            that direction.
        heads: (samples, classes, inputs): sampled weights, the bias last.
    """

    prior_precision: Tensor
    directions: Tensor
    variances: Tensor
    heads: Tensor

    @classmethod
    def empty(cls, n_classes: int, n_inputs: int, n_samples: int, *, shared: bool) -> Self:
        """One of these sizes, of zeros."""
        groups, n_directions = 1 if shared else n_classes, n_inputs + _missing(n_inputs)
        return cls(
            torch.zeros(()),
            torch.zeros(groups, n_directions, n_inputs),
            torch.zeros(groups, n_classes // groups, n_directions),
            torch.zeros(n_samples, n_classes, n_inputs),
        )

    @classmethod
    def of(cls, delta: float, vectors: Tensor, variances: Tensor, heads: Tensor) -> Self:
        """From directions in the columns of `vectors`.

        Zeros make their number a multiple of `ALIGNED`: matrix products may otherwise round the same row differently
        at different places of a batch.
        """
        missing = _missing(vectors.shape[1])
        directions, variances = F.pad(vectors.mT, (0, 0, 0, missing)), F.pad(variances, (0, missing))
        return cls(torch.tensor(delta, dtype=torch.float64), directions, variances, heads)


class Curvature(ABC):
    """The generalised Gauss-Newton Hessian of the log loss, in some structure; `add` sums it over rows.

    Args:
        n_classes: Outputs of the last layer.
        n_inputs: Its inputs, with the one for the bias.
        has_bias: Whether there is a bias.

    Attributes:
        sums: Sums over the rows, by name.
    """

    max_weights: ClassVar[float] = math.inf
    """Weights of a last layer that it can take."""
    sums: dict[str, Tensor]

    def __init__(self, n_classes: int, n_inputs: int, *, has_bias: bool) -> None:
        self.n_classes, self.n_weights = n_classes, n_inputs - has_bias
        self.n_inputs, self.n_biases = n_inputs, int(has_bias)

    @classmethod
    def check(cls, n_classes: int, n_inputs: int) -> None:
        """Raise a `ConfigError` if the layer is too large."""
        if n_classes * n_inputs > cls.max_weights:
            raise ConfigError(
                f"structure={cls.__name__.lower()!r} takes a last layer of at most {cls.max_weights} weights; got "
                f"{n_classes} x {n_inputs}. Use structure='kron'."
            )

    @abstractmethod
    def add(self, logits: Tensor, features: Tensor, weight: Tensor) -> None:
        """Add rows with these logits, features (without the one) and sample weights."""

    @abstractmethod
    def matrix(self) -> Tensor:
        """The Hessian as a matrix."""

    @abstractmethod
    def posterior(self, mean: Tensor, prior_precision: float | None, noise: Tensor) -> Posterior:
        """The posterior around the trained weights.

        Args:
            mean: The trained weights (classes, inputs).
            prior_precision: The precision of the prior; None finds it by the marginal likelihood.
            noise: Standard normal numbers (samples, weights) that decide the samples.
        """


class Full(Curvature):
    """The Hessian itself, Σ Λ ⊗ φφᵀ.

    Example:
        >>> full = Full(2, 1, has_bias=False)
        >>> full.add(torch.zeros(1, 2), torch.tensor([[2.0]]), torch.ones(1))
        >>> full.matrix()
        tensor([[ 1., -1.],
                [-1.,  1.]], dtype=torch.float64)
    """

    max_weights = 2500  # whose decomposition takes some ten seconds

    def __init__(self, n_classes: int, n_inputs: int, *, has_bias: bool) -> None:
        super().__init__(n_classes, n_inputs, has_bias=has_bias)
        size = n_classes * n_inputs
        self.sums = {"hessian": torch.zeros(n_classes, n_inputs, size, dtype=torch.float64)}

    def add(self, logits: Tensor, features: Tensor, weight: Tensor) -> None:
        """For each class c, Σ φ ⊗ w Λ_c ⊗ φ."""
        probs, rows = logits.double().softmax(dim=1), _with_one(features, self.n_inputs)
        for place, own in enumerate(probs.unbind(dim=1)):
            second = -own[:, None] * probs
            second[:, place] += own
            products = (weight[:, None] * second)[:, :, None] * rows[:, None, :]
            self.sums["hessian"][place] += rows.T @ products.flatten(1)

    def matrix(self) -> Tensor:
        """The Hessian, of the weights and then the biases."""
        size = self.n_classes * self.n_inputs
        order = self._order()
        return self.sums["hessian"].view(size, size)[order][:, order]

    def posterior(self, mean: Tensor, prior_precision: float | None, noise: Tensor) -> Posterior:
        """Samples by the triangular factor of the covariance, variances by its block for each class."""
        hessian = self.matrix()
        values, vectors = _decomposed(hessian)
        delta = _precision(values, mean) if prior_precision is None else prior_precision
        # U Uᵀ = H + δI with U upper triangular, so that U⁻ᵀ is the lower factor of the covariance
        precision = hessian + delta * torch.eye(len(hessian), dtype=torch.float64)
        upper = torch.linalg.cholesky(precision.flip(0, 1)).flip(0, 1)
        place = self._order().argsort()
        drawn = torch.linalg.solve_triangular(upper, noise, upper=True, left=False)[:, place]
        covariance = ((vectors / (values + delta)) @ vectors.T)[place][:, place]
        blocks = covariance.view(self.n_classes, self.n_inputs, self.n_classes, self.n_inputs)
        of_class = torch.stack([blocks[c, :, c] for c in range(self.n_classes)])
        variances, directions = _decomposed(of_class)
        return Posterior.of(delta, directions, variances[:, None], mean + drawn.view(-1, *mean.shape))

    def _order(self) -> Tensor:
        """Where each weight is if the bias of a class follows its weights."""
        places = torch.arange(self.n_classes * self.n_inputs).view(self.n_classes, self.n_inputs)
        return torch.cat([places[:, : self.n_weights].flatten(), places[:, self.n_weights :].flatten()])


class Kron(Curvature):
    """The Kronecker product B ⊗ A of B = Σ Λ and A, the mean of φφᵀ, for the weights, and B for the biases.

    Example:
        >>> kron = Kron(2, 1, has_bias=False)
        >>> kron.add(torch.zeros(2, 2), torch.tensor([[2.0], [0.0]]), torch.ones(2))
        >>> kron.matrix()
        tensor([[ 1., -1.],
                [-1.,  1.]], dtype=torch.float64)

    Reference:
        Martens and Grosse, Optimizing neural networks with Kronecker-factored approximate curvature, 2015.
    """

    def __init__(self, n_classes: int, n_inputs: int, *, has_bias: bool) -> None:
        super().__init__(n_classes, n_inputs, has_bias=has_bias)
        shapes = {"classes": (n_classes, n_classes), "inputs": (self.n_weights, self.n_weights), "weight": ()}
        self.sums = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}

    def add(self, logits: Tensor, features: Tensor, weight: Tensor) -> None:
        """Both factors, and the weight of the rows."""
        probs, rows, column = logits.double().softmax(dim=1), features.double(), weight.double()[:, None]
        self.sums["classes"] += ((column * probs).sum(dim=0)).diag() - (column * probs).T @ probs
        self.sums["inputs"] += (column * rows).T @ rows
        self.sums["weight"] += weight.sum()

    def matrix(self) -> Tensor:
        """The product, and the block of the biases."""
        outer = self.sums["classes"]
        product = torch.kron(outer, self.sums["inputs"] / self.sums["weight"])
        return torch.block_diag(product, outer) if self.n_biases else product

    def posterior(self, mean: Tensor, prior_precision: float | None, noise: Tensor) -> Posterior:
        """Samples by the symmetric root of the covariance; both from the decompositions of the factors."""
        outer, b = _decomposed(self.sums["classes"])
        inner, a = _decomposed(self.sums["inputs"] / self.sums["weight"])
        # the biases are a last column, in which the inner factor is one
        inner = torch.cat([inner, torch.ones(self.n_biases, dtype=torch.float64)])
        a = torch.block_diag(a, torch.eye(self.n_biases, dtype=torch.float64))
        values = torch.outer(outer, inner)
        delta = _precision(values, mean) if prior_precision is None else prior_precision
        of_weights, of_biases = noise.split([len(outer) * self.n_weights, len(outer) * self.n_biases], dim=1)
        drawn = torch.cat(
            [
                of_weights.view(len(noise), -1, self.n_weights),
                of_biases.view(len(noise), len(outer), self.n_biases),
            ],
            dim=2,
        )
        drawn = b @ ((b.T @ drawn @ a) / (values + delta).sqrt()) @ a.T
        variances = b.square() @ (1 / (values + delta))
        return Posterior.of(delta, a[None], variances[None], mean + drawn)


STRUCTURES: dict[str, type[Curvature]] = {"full": Full, "kron": Kron}


def _missing(size: int) -> int:
    return -size % ALIGNED


def _with_one(features: Tensor, n_inputs: int) -> Tensor:
    return F.pad(features.double(), (0, n_inputs - features.shape[1]), value=1.0)


def _decomposed(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, which must not be negative but for rounding, and eigenvectors."""
    values, vectors = torch.linalg.eigh(matrix)
    return values.clamp(min=0), vectors


def _precision(values: Tensor, mean: Tensor) -> float:
    """The prior precision δ with the largest marginal likelihood.

    With λ the eigenvalues of the Hessian, the log marginal likelihood is, but for a constant, minus half of
    ``Σ log(1 + λ/δ) + δ‖θ̂‖²``. It has one maximum, where ``Σ λ/(λ + δ) = δ‖θ̂‖²``.
    """
    size = float(mean.square().sum())

    def excess(log_delta: float) -> float:
        delta = math.exp(log_delta)
        return float((values / (values + delta)).sum()) - delta * size

    low, high = LOG_PRECISIONS
    if excess(low) <= 0:
        return math.exp(low)
    if excess(high) >= 0:
        return math.exp(high)
    return math.exp(brentq(excess, low, high, xtol=1e-12))
