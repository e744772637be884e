"""Networks for small images: ResNets and a VGG."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from selfcal._support.checks import positive_int
from selfcal.models.origin import remembered

EXPANSION = 4
"""Ratio of output channels to inner channels of a bottleneck block."""


@remembered
def resnet8(n_classes: int = 10, *, width: int = 16, channels: int = 3) -> nn.Module:
    """ResNet-8 for experiments on a CPU: three stages of one block, and a first convolution of stride 2.

    Args:
        n_classes: Classes, one logit each.
        width: Channels of the first stage; the later ones have 2 and 4 times as many.
        channels: Channels of the images: 3 for colour, 1 for grey. They may have any size from 28 x 28 up.

    Example:
        >>> import torch
        >>> resnet8(10, width=8, channels=1)(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])

    Reference:
        K. He, X. Zhang, S. Ren, J. Sun, Deep residual learning for image recognition, CVPR 2016, section 4.2 (with
        stride 1 at first, and more blocks).
    """
    return _resnet(_basic, 1, (1, 1, 1), n_classes=n_classes, width=width, channels=channels, stride=2)


@remembered
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


@remembered
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


@remembered
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
        layers.append(nn.MaxPool2d(2, ceil_mode=True))  # rounded up, 28 x 28 can be halved five times
    return _classifier(layers, inside, n_classes)


class _Residual(nn.Module):
    """A residual block: ``relu(layers(x) + shortcut(x))``."""

    def __init__(self, way: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.way = way
        self.shortcut = shortcut
        self.relu = _relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.way(x) + self.shortcut(x))


class _Planes(nn.Module):
    """Make the memory layout of the images contiguous (NCHW).

    In `torch.channels_last` layout, the backward pass of torch 2.13 through narrow
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
    stride: int = 1,
) -> nn.Module:
    """Stages of residual blocks; each but the first halves the image and doubles the channels."""
    inside = positive_int("width", width)
    layers: list[nn.Module] = [
        *_convolution(positive_int("channels", channels), inside, stride=stride),
        _relu(),
    ]
    for stage, n_blocks in enumerate(blocks):
        for block in range(n_blocks):
            step = 2 if stage and not block else 1
            inner = width * 2**stage
            outside = expansion * inner
            same = step == 1 and inside == outside
            shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inside, outside, 1, step))
            layers.append(_Residual(way(inside, inner, step), shortcut))
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
    """In place: it overwrites the output of a normalisation or a sum, which no derivative needs."""
    return nn.ReLU(inplace=True)


def _classifier(layers: list[nn.Module], features: int, n_classes: int) -> nn.Module:
    """The layers, the mean over the image and one linear layer."""
    head = nn.Linear(features, positive_int("n_classes", n_classes, low=2))
    return nn.Sequential(_Planes(), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
