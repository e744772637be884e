"""Layers of RealMLP, a perceptron for tables, with its parametrisation and its initialisation by data.

Adam moves every parameter by about its step size, however large the gradient is. A parameter p that should move c
times as far is therefore written as ``p = c q``, and q is trained: one step size serves all parameters.

Reference:
    Holzmüller, Grinsztajn and Steinwart, Better by default: strong pre-tuned MLPs and boosted trees on tabular data,
    2024.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfcal.models.encodings import fast_cos_, predicts, squashed
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
        n, bound, largest = len(self.columns), N_FREQUENCIES**-0.5 / SLOW_STEP, math.pi / SLOW_STEP
        self.n_outputs = n_features + n * N_EMBEDDING
        self.frequency = nn.Parameter(torch.empty(n, 1, N_FREQUENCIES))
        if not self.frequency.is_meta:  # on the meta device torch would spend a second on preparing the draw
            nn.init.normal_(self.frequency, std=FREQUENCY_SCALE / SLOW_STEP)
        self.phase = nn.Parameter(torch.empty(n, 1, N_FREQUENCIES).uniform_(-largest, largest))
        self.weight = nn.Parameter(torch.empty(n, N_FREQUENCIES, N_EMBEDDING).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(n, 1, N_EMBEDDING).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Return the columns, followed by the embeddings."""
        frequency, phase = (2 * math.pi * SLOW_STEP) * self.frequency, SLOW_STEP * self.phase
        if predicts(self):  # rows last, which is faster and rounds a little differently
            periodic = fast_cos_(torch.addcmul(phase.mT, x.T[self.columns, None], frequency.mT))
            embedded = torch.baddbmm(self.bias.mT, self.weight.mT, periodic, beta=SLOW_STEP, alpha=SLOW_STEP)
            return torch.cat([x.T, embedded.flatten(0, 1)]).T
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


def fit_layers(network: nn.Module, x: Tensor) -> nn.Module:
    """Initialise each layer that has a method `fit` by the rows `x`, as they come out of the layers before it.

    Example:
        >>> x = torch.randn(100, 2)
        >>> network = fit_layers(nn.Sequential(RobustScaling(2), ScaledLinear(2, 1)), x)
        >>> round(network(x).std(correction=0).item(), 3)
        1.0
    """
    x = x[:: max(1, len(x) // MAX_FITTING_ROWS)]
    with torch.no_grad(), evaluating(network):
        for layer in network.children():
            if callable(fit := getattr(layer, "fit", None)):
                fit(x)
            x = layer(x)
    return network
