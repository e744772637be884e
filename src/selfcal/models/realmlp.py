"""A multilayer perceptron for tables with the parametrisation and the defaults of RealMLP.

Adam moves every parameter by about its step size, however large the gradient is. A parameter p that should move c
times as far is therefore written as ``p = c q``, and q is trained: one step size serves all parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfcal._support.checks import in_range, positive_int
from selfcal._support.random_streams import Dropout
from selfcal.models.encodings import squashed
from selfcal.models.origin import remembered
from selfcal.training.problem import evaluating

SCALE_STEP, SLOW_STEP = 6.0, 0.1
"""The step of the column scales, and of biases, activations and embeddings, relative to that of the weights."""
N_FREQUENCIES, N_EMBEDDING, FREQUENCY_SCALE = 16, 3, 0.1
"""Frequencies and outputs of the embedding of a column, and the standard deviation of the initial frequencies."""
MIXED_ROWS = 5
"""Rows whose mean, with random weights, a hidden unit is centred at before training."""
MAX_FITTING_ROWS = 10_000
"""Rows that determine the initial weights."""
MAX_SCALED = 1e6
"""Values beyond it are clipped before they are squashed, whose square could overflow."""


class RobustScaling(nn.Module):
    """Columns minus their median, divided by their interquartile range, with outliers squashed to ±3.

    Where the quartiles are equal, half the range takes the place of their distance; a constant column becomes 0.

    Args:
        n_features: Columns of the input.

    Example:
        >>> RobustScaling(1).fit(torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0]]))(torch.tensor([[4.0], [1e9]]))
        tensor([[0.9487],
                [3.0000]])
    """

    centre: Tensor
    factor: Tensor

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(n_features))
        self.register_buffer("factor", torch.ones(n_features))

    def fit(self, x: Tensor) -> Self:
        """Set the medians and the spreads to those of these rows."""
        lowest, low, median, high, highest = np.quantile(x.double().numpy(), [0, 0.25, 0.5, 0.75, 1], axis=0)
        spread = np.where(high > low, high - low, (highest - lowest) / 2)
        factor = np.divide(1, spread, out=np.zeros_like(spread), where=spread > np.finfo(np.float32).tiny)
        self.centre.copy_(torch.from_numpy(median))
        self.factor.copy_(torch.from_numpy(factor))
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled columns."""
        return squashed(((x - self.centre) * self.factor).clamp(-MAX_SCALED, MAX_SCALED))


class PeriodicEmbedding(nn.Module):
    """A smooth function of each chosen column, as a few numbers beside the column itself.

    With learned frequencies f and phases φ, column x becomes ``cos(2π f x + φ) W + b``. The output starts with all
    input columns.

    Args:
        n_features: Columns of the input.
        columns: The columns to embed.

    Reference:
        Gorishniy, Rubachev and Babenko, On embeddings for numerical features in tabular deep learning, 2022.
    """

    def __init__(self, n_features: int, columns: Sequence[int]) -> None:
        super().__init__()
        self.columns = list(columns)
        n, bound = len(self.columns), N_FREQUENCIES**-0.5 / SLOW_STEP
        self.n_outputs = n_features + n * N_EMBEDDING
        self.frequency = nn.Parameter(torch.empty(n, 1, N_FREQUENCIES))
        if not self.frequency.is_meta:  # on the meta device torch would spend a second on preparing the draw
            nn.init.normal_(self.frequency, std=FREQUENCY_SCALE / SLOW_STEP)
        self.phase = nn.Parameter(torch.empty(n, 1, N_FREQUENCIES).uniform_(-math.pi, math.pi) / SLOW_STEP)
        self.weight = nn.Parameter(torch.empty(n, N_FREQUENCIES, N_EMBEDDING).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n, 1, N_EMBEDDING).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Return the columns, followed by the embeddings."""
        frequency, phase = (2 * math.pi * SLOW_STEP) * self.frequency, SLOW_STEP * self.phase
        periodic = torch.addcmul(phase, x[:, self.columns].T[:, :, None], frequency).cos()
        embedded = torch.baddbmm(self.bias, periodic, self.weight, beta=SLOW_STEP, alpha=SLOW_STEP)
        return torch.cat([x, embedded.permute(1, 0, 2).flatten(1)], dim=1)

    def extra_repr(self) -> str:
        return f"columns={self.columns}"


class ColumnScales(nn.Module):
    """Multiplies each column by a learned number, 1 before training: a soft selection of columns.

    Args:
        n_features: Columns of the input.

    Example:
        >>> ColumnScales(2)(torch.tensor([[3.0, 4.0]]))
        tensor([[3., 4.]], grad_fn=<MulBackward0>)
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((n_features,), 1 / SCALE_STEP))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled columns."""
        return x * (SCALE_STEP * self.weight)


class ScaledLinear(nn.Linear):
    """A linear layer in the neural tangent parametrisation, ``x W / √n + b`` for n inputs, initialised by data.

    Reference:
        Jacot, Gabriel and Hongler, Neural tangent kernel: convergence and generalization in neural networks, 2018.
    """

    def reset_parameters(self) -> None:
        """Standard normal weights and no bias."""
        if not self.weight.is_meta:
            nn.init.normal_(self.weight)
        nn.init.zeros_(self.bias)

    def fit(self, x: Tensor) -> Self:
        """Give every output unit variance on these rows, and let it be 0 at a random mean of a few of them."""
        with torch.no_grad():
            output = F.linear(x, self.weight) / math.sqrt(self.in_features)
            spread = output.std(dim=0, correction=0)
            spread[spread == 0] = 1.0
            self.weight /= spread[:, None]
            shares = torch.empty(MIXED_ROWS, self.out_features).exponential_()
            rows = torch.randint(len(x), shares.shape)
            centre = ((output / spread).gather(0, rows) * shares).sum(dim=0) / shares.sum(dim=0)
            self.bias.copy_(-centre / SLOW_STEP)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs."""
        return F.linear(x, self.weight / math.sqrt(self.in_features), SLOW_STEP * self.bias)


class ParametricSELU(nn.Module):
    """``x + α (selu(x) - x)`` with a learned α for each unit, 1 before training.

    Args:
        n_units: Units.

    Reference:
        Klambauer, Unterthiner, Mayr and Hochreiter, Self-normalizing neural networks, 2017.
    """

    def __init__(self, n_units: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((n_units,), 1 / SLOW_STEP))

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations."""
        return torch.lerp(x, F.selu(x), SLOW_STEP * self.weight)


@remembered
def realmlp(
    n_features: int,
    n_classes: int,
    *,
    columns: Sequence[int] | None = None,
    hidden: Sequence[int] = (128, 128, 128),
    dropout: float = 0.15,
) -> nn.Module:
    """A multilayer perceptron for tables, with the parametrisation of RealMLP.

    Columns are scaled robustly, and the chosen ones get a small periodic embedding. A learned scale for each column,
    linear layers in the neural tangent parametrisation and parametric SELU units follow. Their initial values should
    be set by data before training (`fit_layers`).

    Args:
        n_features: Columns of the input.
        n_classes: Classes, one logit each.
        columns: The columns to embed; by default all. See `columns_to_encode`.
        hidden: Width of each hidden layer.
        dropout: Fraction of hidden units left out in training.

    Example:
        >>> realmlp(2, 5, hidden=(8,), columns=[0], dropout=0)
        Sequential(
          (0): RobustScaling()
          (1): PeriodicEmbedding(columns=[0])
          (2): ColumnScales()
          (3): ScaledLinear(in_features=5, out_features=8, bias=True)
          (4): ParametricSELU()
          (5): ScaledLinear(in_features=8, out_features=5, bias=True)
        )

    Reference:
        Holzmüller, Grinsztajn and Steinwart, Better by default: strong pre-tuned MLPs and boosted trees on tabular
        data, 2024.
    """
    in_range("dropout", dropout, 0, 1)
    columns = range(n_features) if columns is None else columns
    embedding = PeriodicEmbedding(n_features, columns)
    layers: list[nn.Module] = [RobustScaling(n_features), embedding, ColumnScales(embedding.n_outputs)]
    width = embedding.n_outputs
    for size in hidden:
        layers += [ScaledLinear(width, positive_int("hidden", size)), ParametricSELU(size)]
        if dropout:
            layers.append(Dropout(dropout))
        width = size
    head = ScaledLinear(width, n_classes)
    nn.init.zeros_(head.weight)
    return nn.Sequential(*layers, head)


def fit_layers(network: nn.Module, x: Tensor) -> nn.Module:
    """Initialise each layer by the rows `x`, as they come out of the layers before it.

    Example:
        >>> network = fit_layers(realmlp(2, 5, hidden=(8,)), torch.randn(100, 2))
        >>> network[:4](torch.zeros(1, 2)).shape
        torch.Size([1, 8])
    """
    x = x[:: max(1, len(x) // MAX_FITTING_ROWS)]
    with torch.no_grad(), evaluating(network):
        for layer in network.children():
            if isinstance(layer, (RobustScaling, ScaledLinear)):
                layer.fit(x)
            x = layer(x)
    return network
