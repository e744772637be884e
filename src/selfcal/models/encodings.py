"""What becomes of the numbers of a table before the first layer sees them.

A plain network must bend a straight line into whatever a column means, and loses to trees where columns are skewed or
matter in steps. Spread over many inputs, a column can have any shape from the first layer on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from selfcal._support.checks import in_range, positive_int

FAR = 3.0
"""How many standard deviations out a value begins to be pulled in."""


class PiecewiseLinear(nn.Module):
    """Every chosen column once more as its place within each of its bins: 0 below, 1 above, a straight line inside.

    The bins hold about as many rows each. The columns themselves come first, with far values pulled in smoothly:
    ``x / sqrt(1 + (x / 3)²)``.

    Args:
        n_features: Columns of the input.
        columns: Which of them are spread; a column of two values gains nothing by it.
        n_bins: Bins of each at most.

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
        """Place the bins by the quantiles of these rows; a bin that a column does not need stays at 0."""
        self.lower.fill_(math.inf)
        self.width.fill_(1.0)
        shares = np.linspace(0, 1, self.n_bins + 1)
        for place, column in enumerate(self.columns):
            edges = torch.from_numpy(np.quantile(x[:, column].double().numpy(), shares)).float().unique()
            self.lower[place, : len(edges) - 1] = edges[:-1]
            self.width[place, : len(edges) - 1] = edges.diff()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """The columns, and then the places in their bins."""
        places = ((x[:, self.columns, None] - self.lower) / self.width).clamp(0, 1)
        return torch.cat([_pulled_in(x), places.flatten(1)], dim=1)

    def extra_repr(self) -> str:
        return f"columns={self.columns}, n_bins={self.n_bins}"


class Periodic(nn.Module):
    """Every chosen column once more through waves of learned length, mixed by a small layer of its own.

    With learned frequencies f and phases φ, column x becomes ``relu(cos(2π f x + φ) W + b)``. All columns come first,
    with far values pulled in smoothly as `PiecewiseLinear` does.

    Args:
        n_features: Columns of the input.
        columns: Which of them are spread.
        n_waves: Waves for each.
        n_mixed: What is made of them.
        scale: The standard deviation of the frequencies at the start.

    Reference:
        Gorishniy, Rubachev and Babenko, On embeddings for numerical features in tabular deep learning, 2022.
    """

    def __init__(
        self,
        n_features: int,
        columns: Sequence[int],
        n_waves: int = 16,
        n_mixed: int = 8,
        *,
        scale: float = 0.1,
    ) -> None:
        super().__init__()
        self.columns = list(columns)
        in_range("scale", scale, 0, open_low=True)
        n, bound = len(self.columns), positive_int("n_waves", n_waves) ** -0.5
        self.n_outputs = n_features + n * positive_int("n_mixed", n_mixed)
        self.frequency = nn.Parameter(torch.empty(n, 1, n_waves))
        if (
            not self.frequency.is_meta
        ):  # where nothing is drawn, torch would take a second to get ready for it
            nn.init.normal_(self.frequency, std=2 * math.pi * scale)
        self.phase = nn.Parameter(torch.empty(n, 1, n_waves).uniform_(-math.pi, math.pi))
        self.weight = nn.Parameter(torch.empty(n, n_waves, n_mixed).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n, 1, n_mixed).uniform_(-bound, bound))

    def fit(self, x: Tensor) -> Self:
        """Nothing to learn from the rows before training."""
        return self

    def forward(self, x: Tensor) -> Tensor:
        """The columns, and then what was made of the waves."""
        waves = (x[:, self.columns].T[:, :, None] * self.frequency + self.phase).cos()
        mixed = torch.baddbmm(self.bias, waves, self.weight).relu()
        return torch.cat([_pulled_in(x), mixed.permute(1, 0, 2).flatten(1)], dim=1)

    def extra_repr(self) -> str:
        return f"columns={self.columns}, waves={tuple(self.weight.shape[1:])}"


class Waves(nn.Module):
    """All columns together through waves of learned direction and length: what is smooth in several of them at once.

    With learned directions W and phases φ, a row x becomes ``cos(x W + φ)``, a number for each wave; a linear layer
    on top of them is about as good as a kernel machine. The columns themselves come first, pulled in as by
    `PiecewiseLinear`.

    Args:
        n_features: Columns of the input.
        n_waves: Waves.
        slowest: What the slowest waves turn by over a standard deviation of every column, in radians.
        fastest: The same of the fastest; at the start, those between are as common on every scale.

    Example:
        >>> Waves(2, n_waves=8)(torch.zeros(5, 2)).shape
        torch.Size([5, 10])

    Reference:
        Rahimi and Recht, Random features for large-scale kernel machines, 2007.
    """

    def __init__(
        self, n_features: int, n_waves: int = 128, *, slowest: float = 0.3, fastest: float = 6.0
    ) -> None:
        super().__init__()
        in_range("slowest", slowest, 0, open_low=True)
        in_range("fastest", fastest, slowest)
        self.n_outputs = n_features + positive_int("n_waves", n_waves)
        self.direction = nn.Parameter(torch.empty(n_features, n_waves))
        self.phase = nn.Parameter(torch.empty(n_waves).uniform_(-math.pi, math.pi))
        if not self.direction.is_meta:
            speed = torch.empty(n_waves).uniform_(math.log(slowest), math.log(fastest)).exp()
            nn.init.normal_(self.direction, std=n_features**-0.5)
            self.direction.data *= speed

    def fit(self, x: Tensor) -> Self:
        """Nothing to learn from the rows before training."""
        return self

    def forward(self, x: Tensor) -> Tensor:
        """The columns, and then the waves."""
        return torch.cat([_pulled_in(x), torch.addmm(self.phase, x, self.direction).cos()], dim=1)

    def extra_repr(self) -> str:
        return f"waves={self.direction.shape[1]}"


def _pulled_in(x: Tensor) -> Tensor:
    """Nearly the same near 0, and never beyond ±3."""
    return x / (1 + (x / FAR).square()).sqrt()
