"""Networks for tables: multilayer perceptrons, and encodings of columns before them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from selfcal._support.checks import in_range, one_of, positive_int
from selfcal._support.random_streams import Dropout
from selfcal.models.batch_ensemble import (
    BatchEnsembleLinear,
    MeanOfMembers,
    MemberDropout,
    MemberNetwork,
    SeparateLinear,
)
from selfcal.models.encodings import FourierFeatures, Periodic, PiecewiseEmbedding, PiecewiseLinear
from selfcal.models.layers import (
    ColumnScales,
    ParametricSELU,
    PeriodicEmbedding,
    RobustScaling,
    ScaledLinear,
    fit_layers,
)
from selfcal.models.origin import remembered


@remembered
def mlp(
    n_features: int, n_classes: int, *, hidden: Sequence[int] = (64, 64), dropout: float = 0.0
) -> nn.Module:
    """A multilayer perceptron with ReLU units.

    Args:
        n_features: Columns of the input.
        n_classes: Classes, one logit each.
        hidden: Width of each hidden layer.
        dropout: Fraction of hidden units left out in training.

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
            layers.append(Dropout(dropout))
        width = size
    return nn.Sequential(*layers, nn.Linear(width, n_classes))


@remembered
def tabular(
    n_features: int,
    n_classes: int,
    *,
    columns: Sequence[int] | None = None,
    encoding: str = "piecewise",
    hidden: Sequence[int] = (128, 128),
    dropout: float = 0.2,
) -> nn.Module:
    """A multilayer perceptron for tables, on an encoding of its numerical columns.

    Args:
        n_features: Columns of the input, of mean 0 and standard deviation 1.
        n_classes: Classes, one logit each.
        columns: The columns to encode; by default all. See `columns_to_encode`.
        encoding: ``"piecewise"``, a piecewise-linear encoding of each column, whose bins must be set before training
            (``module[0].fit(x)``); ``"periodic"``, periodic features of each column; ``"joint"``, Fourier features
            of all columns together.
        hidden: Width of each hidden layer; without any the model is additive in the columns.
        dropout: Fraction of hidden units left out in training.

    Example:
        >>> import torch
        >>> network = tabular(2, 5, hidden=(8,), columns=[0])
        >>> network[0].fit(torch.randn(100, 2)).n_outputs
        18
    """
    one_of("encoding", encoding, _ENCODINGS)
    columns = range(n_features) if columns is None else columns
    first = _ENCODINGS[encoding](n_features, columns)
    return nn.Sequential(first, *mlp(first.n_outputs, n_classes, hidden=hidden, dropout=dropout).children())


@remembered
def realmlp(
    n_features: int,
    n_classes: int,
    *,
    columns: Sequence[int] | None = None,
    hidden: Sequence[int] = (128, 128),
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


@remembered
def tabm(
    n_features: int,
    n_classes: int,
    *,
    columns: Sequence[int] | None = None,
    hidden: Sequence[int] = (64, 64),
    dropout: float = 0.1,
    n_members: int = 8,
) -> nn.Module:
    """Several multilayer perceptrons for tables in one network, with most weights in common (TabM).

    The members have a piecewise-linear embedding of the columns and the weight matrices of the hidden layers in
    common; the scales and biases of the hidden layers and the last layer are their own. In training the network
    returns the logits of every member, ``(rows, members, classes)``, and the mean of their losses is minimised; it
    predicts the mean of their probabilities.

    Args:
        n_features: Columns of the input, of mean 0 and standard deviation 1.
        n_classes: Classes, one logit each.
        columns: The columns to encode; by default all. See `columns_to_encode`.
        hidden: Width of each hidden layer.
        dropout: Fraction of hidden units left out in training, the same for all members.
        n_members: Number of members.

    Example:
        >>> import torch
        >>> network = tabm(2, 5, hidden=(16,))
        >>> network(torch.zeros(3, 2)).shape, network.eval()(torch.zeros(3, 2)).shape
        (torch.Size([3, 8, 5]), torch.Size([3, 5]))

    Reference:
        Gorishniy, Kotelnikov and Babenko, TabM: advancing tabular deep learning with parameter-efficient ensembling,
        2024.
    """
    in_range("dropout", dropout, 0, 1)
    first = PiecewiseEmbedding(n_features, range(n_features) if columns is None else columns)
    layers: list[nn.Module] = [first]
    width = first.n_outputs
    for place, size in enumerate(hidden):
        layer = BatchEnsembleLinear(n_members, width, positive_int("hidden", size), diverse=place == 0)
        layers += [layer, nn.ReLU(), MemberDropout(dropout)]
        width = size
    return MemberNetwork(*layers, SeparateLinear(n_members, width, n_classes), MeanOfMembers())


N_BINS = 16
_ENCODINGS: dict[str, Callable[[int, Sequence[int]], PiecewiseLinear | Periodic | FourierFeatures]] = {
    "piecewise": lambda n_features, columns: PiecewiseLinear(n_features, columns, N_BINS),
    "periodic": Periodic,
    "joint": lambda n_features, columns: FourierFeatures(n_features),
}

_KINDS: dict[str, tuple[Callable[..., nn.Module], dict[str, Any]]] = {
    "linear": (mlp, {"hidden": ()}),
    "mlp": (mlp, {"hidden": (64, 64)}),
    "additive": (tabular, {"encoding": "piecewise", "hidden": ()}),
    "tabular": (tabular, {"encoding": "piecewise", "hidden": (128, 128)}),
    "periodic": (tabular, {"encoding": "periodic", "hidden": (128, 128)}),
    "waves": (tabular, {"encoding": "joint", "hidden": (64,), "dropout": 0.0}),
    "tabm": (tabm, {"hidden": (64, 64)}),
    "realmlp": (realmlp, {"hidden": (128, 128)}),
}
FOR_TABLES = tuple(_KINDS)
"""The kinds of network that `for_table` builds."""


def for_table(kind: str, x: Tensor, n_classes: int, *, hidden: Sequence[int] | None = None) -> nn.Module:
    """Build a network of the given kind for the rows of a table.

    Args:
        kind: ``"linear"``; ``"mlp"``; ``"additive"``, a sum of one function of any shape per column; ``"tabular"``, a
            perceptron on a piecewise-linear encoding of the columns; ``"periodic"``, on periodic features of each
            column; ``"waves"``, on Fourier features of all columns together; ``"tabm"`` and ``"realmlp"``, see there.
        x: The rows, of mean 0 and standard deviation 1; they determine which columns are encoded, the bin edges, and
            initial weights.
        n_classes: Classes, one logit each.
        hidden: Width of each hidden layer, for the kinds that have some.

    Example:
        >>> import torch
        >>> for_table("additive", torch.randn(50, 2), 3)
        Sequential(
          (0): PiecewiseLinear(columns=[0, 1], n_bins=16)
          (1): Linear(in_features=34, out_features=3, bias=True)
        )
    """
    one_of("network", kind, FOR_TABLES)
    make, settings = _KINDS[kind]
    chosen = {"hidden": hidden} if settings["hidden"] and hidden is not None else {}
    encoded = {} if make is mlp else {"columns": columns_to_encode(x)}
    return fit_layers(make(x.shape[1], n_classes, **settings | chosen | encoded), x)


def columns_to_encode(x: Tensor) -> list[int]:
    """Return the columns to encode: those with more than two distinct values.

    Example:
        >>> import torch
        >>> columns_to_encode(torch.tensor([[0.0, 1.0], [1.0, 2.0], [0.0, 3.0]]))
        [1]
    """
    other = x != x[0]
    # a second value differs from the first one, and a third one from both
    second = x.gather(0, other.byte().argmax(dim=0, keepdim=True))
    return (other & (x != second)).any(dim=0).nonzero().flatten().tolist()


spread_columns = columns_to_encode
"""The former name of `columns_to_encode`."""
