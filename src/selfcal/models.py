"""Networks: a multilayer perceptron for tables, ResNets and a VGG for small images."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec

import torch
from torch import Tensor, nn

from selfcal._checks import in_range, one_of, positive_int
from selfcal._random import Dropout
from selfcal.encodings import Periodic, PiecewiseLinear, Waves

EXPANSION = 4
"""A bottleneck block ends in so many times its inner channels."""


P = ParamSpec("P")


class Origin(NamedTuple):
    """Which function of this module made a network, and with which arguments."""

    name: str
    arguments: dict[str, object]


def origin(module: nn.Module) -> Origin | None:
    """How to make such a network again (untrained), if it was made here and is still what it was.

    Example:
        >>> origin(mlp(2, 5, hidden=(8,)))
        Origin(name='mlp', arguments={'n_features': 2, 'n_classes': 5, 'hidden': (8,), 'dropout': 0.0})
    """
    made = vars(module).get("_origin")
    if not isinstance(made, Origin):
        return None
    with torch.device("meta"):
        again = globals()[made.name](**made.arguments)
    return made if repr(again) == repr(module) else None


def _remembered(make: Callable[P, nn.Module]) -> Callable[P, nn.Module]:
    """The same function, whose networks know their origin."""

    @functools.wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> nn.Module:
        module = make(*args, **kwargs)
        call = inspect.signature(make).bind(*args, **kwargs)
        call.apply_defaults()
        vars(module)["_origin"] = Origin(make.__name__, call.arguments)
        return module

    return made


@_remembered
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
            layers.append(Dropout(dropout))
        width = size
    return nn.Sequential(*layers, nn.Linear(width, n_classes))


@_remembered
def tabular(
    n_features: int,
    n_classes: int,
    *,
    columns: Sequence[int] | None = None,
    encoding: str = "piecewise",
    hidden: Sequence[int] = (128, 128),
    dropout: float = 0.2,
) -> nn.Module:
    """A multilayer perceptron for tables: each chosen column is spread over many inputs first.

    Args:
        n_features: Columns of the input, of mean 0 and standard deviation 1.
        n_classes: Classes, one logit each.
        columns: Which columns are spread; by default all. See `spread_columns`.
        encoding: ``"piecewise"`` spreads a column over bins, which must be placed before training
            (``module[0].fit(x)``); ``"periodic"`` over waves; ``"joint"`` puts waves through all columns at once.
        hidden: Width of each hidden layer; none makes a model in which the effects of the columns add up.
        dropout: Share of hidden units left out in training.

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


N_BINS = 16
_ENCODINGS: dict[str, Callable[[int, Sequence[int]], PiecewiseLinear | Periodic | Waves]] = {
    "piecewise": lambda n_features, columns: PiecewiseLinear(n_features, columns, N_BINS),
    "periodic": Periodic,
    "joint": lambda n_features, columns: Waves(n_features),
}

_SPREAD: dict[str, dict[str, Any]] = {
    "additive": {"encoding": "piecewise", "hidden": ()},
    "tabular": {"encoding": "piecewise", "hidden": (128, 128)},
    "periodic": {"encoding": "periodic", "hidden": (128, 128)},
    "waves": {"encoding": "joint", "hidden": (64,), "dropout": 0.0},
}
FOR_TABLES = ("linear", "mlp", *_SPREAD)
"""The kinds of network that `for_table` makes."""


def for_table(kind: str, x: Tensor, n_classes: int, *, hidden: Sequence[int] | None = None) -> nn.Module:
    """A network of a kind for the rows of a table.

    Args:
        kind: ``"linear"``; ``"mlp"``; ``"additive"``, where every column has an effect of any shape and the effects
            add up; ``"tabular"``, a perceptron on columns that are spread over bins; ``"periodic"``, over waves;
            ``"waves"``, on waves through all columns at once.
        x: The rows, of mean 0 and standard deviation 1: they tell which columns to spread, and where bins begin.
        n_classes: Classes, one logit each.
        hidden: Width of each hidden layer, for those kinds that have some.

    Example:
        >>> import torch
        >>> for_table("additive", torch.randn(50, 2), 3)
        Sequential(
          (0): PiecewiseLinear(columns=[0, 1], n_bins=16)
          (1): Linear(in_features=34, out_features=3, bias=True)
        )
    """
    one_of("network", kind, FOR_TABLES)
    n_features = x.shape[1]
    if kind in ("linear", "mlp"):
        return mlp(n_features, n_classes, hidden=() if kind == "linear" else _widths(hidden, (64, 64)))
    shape = _SPREAD[kind]
    if shape["hidden"]:
        shape = {**shape, "hidden": _widths(hidden, shape["hidden"])}
    network = tabular(n_features, n_classes, columns=spread_columns(x), **shape)
    first = next(network.children())
    assert isinstance(first, (PiecewiseLinear, Periodic, Waves))
    first.fit(x)
    return network


def _widths(hidden: Sequence[int] | None, usual: Sequence[int]) -> Sequence[int]:
    return usual if hidden is None else hidden


def spread_columns(x: Tensor) -> list[int]:
    """The columns worth spreading over several inputs: those with more than two values.

    Example:
        >>> import torch
        >>> spread_columns(torch.tensor([[0.0, 1.0], [1.0, 2.0], [0.0, 3.0]]))
        [1]
    """
    other = x != x[0]  # than the first value; the next line finds a second, and a third is neither
    second = x.gather(0, other.byte().argmax(dim=0, keepdim=True))
    return (other & (x != second)).any(dim=0).nonzero().flatten().tolist()


@_remembered
def resnet18(n_classes: int = 10, *, width: int = 64, channels: int = 3) -> nn.Module:
    """ResNet-18 for small images: a 3 x 3 first convolution of stride 1 and no pooling before the blocks.

    Args:
        n_classes: Classes, one logit each.
        width: Channels of the first stage; the later ones have 2, 4 and 8 times as many. 64 is the paper's.
        channels: Channels of the images: 3 for colour, 1 for grey. They may have any size from 28 x 28 up.

    Example:
        >>> import torch
        >>> resnet18(10, width=8)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])

    Reference:
        K. He, X. Zhang, S. Ren, J. Sun, Deep residual learning for image recognition, CVPR 2016.
    """
    return _resnet(_basic, 1, (2, 2, 2, 2), n_classes=n_classes, width=width, channels=channels)


@_remembered
def resnet50(n_classes: int = 10, *, width: int = 64, channels: int = 3) -> nn.Module:
    """ResNet-50 for small images: bottleneck blocks that end in four times their inner channels.

    Args:
        n_classes: Classes, one logit each.
        width: Inner channels of the first stage; the later ones have 2, 4 and 8 times as many. 64 is the paper's.
        channels: Channels of the images: 3 for colour, 1 for grey. They may have any size from 28 x 28 up.

    Example:
        >>> import torch
        >>> resnet50(100, width=4, channels=1)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 100])

    Reference:
        K. He, X. Zhang, S. Ren, J. Sun, Deep residual learning for image recognition, CVPR 2016.
    """
    return _resnet(_bottleneck, EXPANSION, (3, 4, 6, 3), n_classes=n_classes, width=width, channels=channels)


@_remembered
def vgg16(n_classes: int = 10, *, width: int = 64, channels: int = 3) -> nn.Module:
    """VGG-16 with batch normalisation for small images: 13 convolutions, five pools, one linear layer.

    Args:
        n_classes: Classes, one logit each.
        width: Channels of the first stage; the later ones have 2, 4, 8 and 8 times as many. 64 is the paper's.
        channels: Channels of the images: 3 for colour, 1 for grey. They may have any size from 28 x 28 up.

    Example:
        >>> import torch
        >>> vgg16(10, width=8, channels=1)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])

    Reference:
        K. Simonyan, A. Zisserman, Very deep convolutional networks for large-scale image recognition, ICLR 2015.
    """
    layers: list[nn.Module] = []
    inside = positive_int("channels", channels)
    positive_int("width", width)
    for convolutions, factor in ((2, 1), (2, 2), (3, 4), (3, 8), (3, 8)):
        for _ in range(convolutions):
            layers += [*_convolution(inside, factor * width, bias=True), _relu()]
            inside = factor * width
        layers.append(
            nn.MaxPool2d(2, ceil_mode=True)
        )  # rounding up, an image of 28 x 28 survives five halvings
    return _classifier(layers, inside, n_classes)


class _Residual(nn.Module):
    """What a few layers add to their own input, which goes round them by the shortcut."""

    def __init__(self, way: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.way = way
        self.shortcut = shortcut
        self.relu = _relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.way(x) + self.shortcut(x))


class _Planes(nn.Module):
    """The same image, one channel after the other in memory.

    With the channels of a pixel side by side (`torch.channels_last`), the backward pass of torch 2.13 through narrow
    convolutions corrupts memory on CPUs with AVX2 and without AVX-512, and crashes on several threads elsewhere.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous()


def _resnet(
    way: Callable[[int, int, int], nn.Module],
    expansion: int,
    blocks: Sequence[int],
    *,
    n_classes: int,
    width: int,
    channels: int,
) -> nn.Module:
    """Four stages of residual blocks; each but the first halves the image and doubles the channels."""
    inside = positive_int("width", width)
    layers: list[nn.Module] = [*_convolution(positive_int("channels", channels), inside), _relu()]
    for stage, n_blocks in enumerate(blocks):
        for block in range(n_blocks):
            stride = 2 if stage and not block else 1
            inner = width * 2**stage
            outside = expansion * inner
            same = stride == 1 and inside == outside
            shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inside, outside, 1, stride))
            layers.append(_Residual(way(inside, inner, stride), shortcut))
            inside = outside
    return _classifier(layers, inside, n_classes)


def _basic(inside: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(*_convolution(inside, width, 3, stride), _relu(), *_convolution(width, width))


def _bottleneck(inside: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        *_convolution(inside, width, 1),
        _relu(),
        *_convolution(width, width, 3, stride),
        _relu(),
        *_convolution(width, EXPANSION * width, 1),
    )


def _convolution(
    inside: int, outside: int, size: int = 3, stride: int = 1, *, bias: bool = False
) -> list[nn.Module]:
    return [nn.Conv2d(inside, outside, size, stride, size // 2, bias=bias), nn.BatchNorm2d(outside)]


def _relu() -> nn.ReLU:
    """In place: what it overwrites, the output of a normalisation or a sum, no derivative needs again."""
    return nn.ReLU(inplace=True)


def _classifier(layers: list[nn.Module], features: int, n_classes: int) -> nn.Module:
    """The layers, the mean over the image and one linear layer."""
    head = nn.Linear(features, positive_int("n_classes", n_classes, low=2))
    return nn.Sequential(_Planes(), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
