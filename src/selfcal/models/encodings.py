"""Encodings of numerical columns, used as the first layer of a network for tables.

A plain network is linear in each column at its first layer, and loses to trees where columns are skewed or have an
effect in steps. An encoding with several features per column lets the first layer represent any shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from selfcal._support.checks import in_range, positive_int

SQUASH_LIMIT = 3.0
"""Outliers are squashed smoothly to this many standard deviations."""


class PiecewiseLinear(nn.Module):
    """Piecewise-linear encoding of the chosen columns: per bin 0 below it, 1 above it, linear inside.

    The bins are quantile bins. The output starts with the input columns, whose outliers are squashed smoothly:
    ``x / sqrt(1 + (x / 3)²)``.

    Args:
        n_features: Columns of the input.
        columns: The columns to encode; a column with two values gains nothing from it.
        n_bins: Maximum number of bins per column.

    Example:
        >>> encoding = PiecewiseLinear(1, columns=[0], n_bins=2).fit(torch.tensor([[0.0], [1.0], [3.0]]))
        >>> encoding(torch.tensor([[2.0]]))
        tensor([[1.6641, 1.0000, 0.5000]])

    Reference:
        Gorishniy, Rubachev and Babenko, On embeddings for numerical features in tabular deep learning, 2022.
    """

    lower: Tensor
    width: Tensor

    def __init__(self, n_features: int, columns: Sequence[int], n_bins: int) -> None:
        super().__init__()
        self.columns = list(columns)
        self.n_bins = positive_int("n_bins", n_bins)
        self.n_outputs = n_features + len(self.columns) * n_bins
        self.register_buffer("lower", torch.full((len(self.columns), n_bins), math.inf))
        self.register_buffer("width", torch.ones(len(self.columns), n_bins))

    def fit(self, x: Tensor) -> Self:
        """Set the bin edges to the quantiles of these rows; the output of an unused bin is always 0."""
        self.lower.fill_(math.inf)
        self.width.fill_(1.0)
        quantiles = np.linspace(0, 1, self.n_bins + 1)
        for place, column in enumerate(self.columns):
            edges = torch.from_numpy(np.quantile(x[:, column].double().numpy(), quantiles)).float().unique()
            self.lower[place, : len(edges) - 1] = edges[:-1]
            self.width[place, : len(edges) - 1] = edges.diff()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the squashed columns, followed by the encoding."""
        encoded = ((x[:, self.columns, None] - self.lower) / self.width).clamp(0, 1)
        return torch.cat([squashed(x), encoded.flatten(1)], dim=1)

    def rows_last(self, x: Tensor) -> Tensor:
        """The encoding alone, as (columns, bins, rows)."""
        return ((x.T[self.columns, None] - self.lower[..., None]) / self.width[..., None]).clamp_(0, 1)

    def extra_repr(self) -> str:
        return f"columns={self.columns}, n_bins={self.n_bins}"


class PiecewiseEmbedding(nn.Module):
    """A piecewise-linear encoding of the chosen columns, followed by a small linear layer per column.

    The output starts with all input columns, squashed as in `PiecewiseLinear`. A network on top takes fewer numbers
    per column than there are bins.

    Args:
        n_features: Columns of the input.
        columns: The columns to encode.
        n_bins: Maximum number of bins per column.
        n_embedding: Outputs of the layer of each column.

    Example:
        >>> PiecewiseEmbedding(3, columns=[0, 2])(torch.zeros(5, 3)).shape
        torch.Size([5, 7])

    Reference:
        Gorishniy, Rubachev and Babenko, On embeddings for numerical features in tabular deep learning, 2022.
    """

    def __init__(
        self, n_features: int, columns: Sequence[int], n_bins: int = 16, n_embedding: int = 2
    ) -> None:
        super().__init__()
        self.bins = PiecewiseLinear(n_features, columns, n_bins)
        n, bound = len(self.bins.columns), n_bins**-0.5
        self.n_outputs = n_features + n * positive_int("n_embedding", n_embedding)
        self.weight = nn.Parameter(torch.empty(n, n_bins, n_embedding).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(n, 1, n_embedding))

    def fit(self, x: Tensor) -> Self:
        """Set the bin edges to the quantiles of these rows."""
        self.bins.fit(x)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the squashed columns, followed by the embedding."""
        if predicts(self):  # rows last, which is faster and rounds a little differently
            embedded = torch.baddbmm(self.bias.mT, self.weight.mT, self.bins.rows_last(x))
            return torch.cat([squashed(x.T), embedded.flatten(0, 1)]).T
        numbers, encoded = self.bins(x).tensor_split([x.shape[1]], dim=1)
        encoded = encoded.unflatten(1, self.weight.shape[:2]).transpose(0, 1)
        embedded = torch.baddbmm(self.bias, encoded, self.weight)
        return torch.cat([numbers, embedded.transpose(0, 1).flatten(1)], dim=1)

    def extra_repr(self) -> str:
        return f"n_embedding={self.weight.shape[2]}"


class Periodic(nn.Module):
    """Periodic features of the chosen columns with learned frequencies, followed by a small layer per column.

    With learned frequencies f and phases φ, column x becomes ``relu(cos(2π f x + φ) W + b)``. The output starts with
    all input columns, squashed as in `PiecewiseLinear`.

    Args:
        n_features: Columns of the input.
        columns: The columns to encode.
        n_frequencies: Frequencies per column.
        n_embedding: Outputs of the layer of each column.
        scale: The standard deviation of the initial frequencies.

    Reference:
        Gorishniy, Rubachev and Babenko, On embeddings for numerical features in tabular deep learning, 2022.
    """

    def __init__(
        self,
        n_features: int,
        columns: Sequence[int],
        n_frequencies: int = 16,
        n_embedding: int = 8,
        *,
        scale: float = 0.1,
    ) -> None:
        super().__init__()
        self.columns = list(columns)
        in_range("scale", scale, 0, open_low=True)
        n, bound = len(self.columns), positive_int("n_frequencies", n_frequencies) ** -0.5
        self.n_outputs = n_features + n * positive_int("n_embedding", n_embedding)
        self.frequency = nn.Parameter(torch.empty(n, 1, n_frequencies))
        if not self.frequency.is_meta:  # on the meta device torch would spend a second on preparing the draw
            nn.init.normal_(self.frequency, std=2 * math.pi * scale)
        self.phase = nn.Parameter(torch.empty(n, 1, n_frequencies).uniform_(-math.pi, math.pi))
        self.weight = nn.Parameter(torch.empty(n, n_frequencies, n_embedding).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n, 1, n_embedding).uniform_(-bound, bound))

    def fit(self, x: Tensor) -> Self:
        """Do nothing: all parameters are learned in training."""
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the squashed columns, followed by the encoding."""
        periodic = (x[:, self.columns].T[:, :, None] * self.frequency + self.phase).cos()
        embedded = torch.baddbmm(self.bias, periodic, self.weight).relu()
        return torch.cat([squashed(x), embedded.permute(1, 0, 2).flatten(1)], dim=1)

    def extra_repr(self) -> str:
        _, n_frequencies, n_embedding = self.weight.shape
        return f"columns={self.columns}, n_frequencies={n_frequencies}, n_embedding={n_embedding}"


class FourierFeatures(nn.Module):
    """Fourier features of all columns together, with learned frequencies: smooth functions of several columns.

    With learned frequency vectors W and phases φ, a row x becomes ``cos(x W + φ)``; a linear layer on top of many
    such features approximates a kernel machine. The output starts with the input columns, squashed as in
    `PiecewiseLinear`.

    Args:
        n_features: Columns of the input.
        n_frequencies: Number of Fourier features.
        min_frequency: The lowest initial angular frequency, in radians per standard deviation of the columns.
        max_frequency: The highest one; initial frequencies are log-uniform between the two.

    Example:
        >>> FourierFeatures(2, n_frequencies=8)(torch.zeros(5, 2)).shape
        torch.Size([5, 10])

    Reference:
        Rahimi and Recht, Random features for large-scale kernel machines, 2007.
    """

    def __init__(
        self,
        n_features: int,
        n_frequencies: int = 128,
        *,
        min_frequency: float = 0.3,
        max_frequency: float = 6.0,
    ) -> None:
        super().__init__()
        in_range("min_frequency", min_frequency, 0, open_low=True)
        in_range("max_frequency", max_frequency, min_frequency)
        self.n_outputs = n_features + positive_int("n_frequencies", n_frequencies)
        self.direction = nn.Parameter(torch.empty(n_features, n_frequencies))
        self.phase = nn.Parameter(torch.empty(n_frequencies).uniform_(-math.pi, math.pi))
        if not self.direction.is_meta:
            frequency = (
                torch.empty(n_frequencies).uniform_(math.log(min_frequency), math.log(max_frequency)).exp()
            )
            nn.init.normal_(self.direction, std=n_features**-0.5)
            self.direction.data *= frequency

    def fit(self, x: Tensor) -> Self:
        """Do nothing: all parameters are learned in training."""
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the squashed columns, followed by the Fourier features."""
        return torch.cat([squashed(x), torch.addmm(self.phase, x, self.direction).cos()], dim=1)

    def extra_repr(self) -> str:
        return f"n_frequencies={self.direction.shape[1]}"


def squashed(x: Tensor) -> Tensor:
    """Nearly the identity around 0, and bounded by ±`SQUASH_LIMIT`."""
    return x / (1 + (x / SQUASH_LIMIT).square()).sqrt()


def predicts(layer: nn.Module) -> bool:
    """Whether a layer predicts: neither trained nor traced for another program, and without gradients."""
    return not (layer.training or torch.is_grad_enabled() or torch.compiler.is_compiling())


def fast_cos_(x: Tensor) -> Tensor:
    """The cosine in place, without a gradient; that of NumPy is about three times as fast as that of torch."""
    if not x.is_cpu:
        return x.cos_()
    np.cos(x.numpy(), out=x.numpy())
    return x
