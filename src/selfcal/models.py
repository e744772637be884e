"""Networks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from selfcal._checks import in_range, positive_int


def mlp(
    n_features: int, n_classes: int, *, hidden: Sequence[int] = (64, 64), dropout: float = 0.0
) -> nn.Module:
    """A multilayer perceptron with ReLU units.

    Args:
        n_features: Columns of the input.
        n_classes: Classes, one logit each.
        hidden: Width of each hidden layer.
        dropout: Share of hidden units left out in training.

    Example:
        >>> mlp(2, 5, hidden=(8,))
        Sequential(
          (0): Linear(in_features=2, out_features=8, bias=True)
          (1): ReLU()
          (2): Linear(in_features=8, out_features=5, bias=True)
        )
    """
    in_range("dropout", dropout, 0, 1)
    layers: list[nn.Module] = []
    width = n_features
    for size in hidden:
        layers += [nn.Linear(width, positive_int("hidden", size)), nn.ReLU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        width = size
    return nn.Sequential(*layers, nn.Linear(width, n_classes))
