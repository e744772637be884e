"""The input of a network: one tensor, or several, with which the network is called as with arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from selfcal.errors import ConfigError

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""A network is called as ``module(x)``, ``module(*x)`` or ``module(**x)``."""

LABELS = ("labels", "label")
WEIGHT = "sample_weight"
"""The entries of a batch given as a dictionary that are not input of the network."""


def call(module: nn.Module, x: Inputs) -> object:
    """The network's output for its input.

    Example:
        >>> call(nn.Bilinear(2, 3, 4), (torch.zeros(5, 2), torch.zeros(5, 3))).shape
        torch.Size([5, 4])
    """
    args, keywords = arguments(x)
    return module(*args, **keywords)


def arguments(x: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """The positional and the keyword arguments that the network is called with."""
    if isinstance(x, Tensor):
        return (x,), {}
    return (x, {}) if isinstance(x, tuple) else ((), x)


def named(x: Inputs) -> dict[str, Tensor]:
    """The tensors of an input by names for messages.

    Example:
        >>> list(named((torch.zeros(2), torch.ones(2))))
        ['x[0]', 'x[1]']
    """
    if isinstance(x, Tensor):
        return {"x": x}
    return {f"x[{i}]": part for i, part in enumerate(x)} if isinstance(x, tuple) else x


def change(x: Inputs, function: Callable[[Tensor], Tensor]) -> Inputs:
    """The input with each of its tensors changed.

    Example:
        >>> change({"a": torch.zeros(2), "b": torch.ones(2)}, lambda part: part[:1])
        {'a': tensor([0.]), 'b': tensor([1.])}
    """
    if isinstance(x, Tensor):
        return function(x)
    if isinstance(x, tuple):
        return tuple(function(part) for part in x)
    return {name: function(part) for name, part in x.items()}


def taken(x: Inputs, rows: Tensor) -> Inputs:
    """These rows of the input."""
    return change(x, lambda part: part[rows])


def single(x: Inputs, what: str) -> Tensor:
    """The input, where only one tensor will do."""
    if isinstance(x, Tensor):
        return x
    raise ConfigError(
        f"{what} needs a network with one tensor as its input; got {', '.join(named(x))}. Use a method "
        "that does not change the input."
    )


def as_inputs(x: object) -> Inputs:
    """The input from a tensor or an array, or a sequence or mapping of them."""
    if isinstance(x, (Tensor, np.ndarray)):
        return tensor(x)
    if isinstance(x, Mapping) and x:
        return {str(name): tensor(part) for name, part in x.items()}
    if isinstance(x, (tuple, list)) and x:
        return tuple(tensor(part) for part in x)
    raise _unusable(x)


def split_labels(rows: Mapping[str, object]) -> tuple[Inputs, object, object]:
    """Input, labels and sample weights of rows given as a dictionary; labels and weights are None if missing.

    Example:
        >>> split_labels({"input_ids": torch.zeros(1, 2), "labels": torch.tensor([1])})
        ({'input_ids': tensor([[0., 0.]])}, tensor([1]), None)
    """
    given = dict(rows)
    y = next((given.pop(name) for name in LABELS if name in given), None)
    weight = given.pop(WEIGHT, None)
    return as_inputs(given), y, weight


def logits_in(output: object) -> object:
    """The logits in the output of a network, which may be an object or a dictionary that has them by that name."""
    if isinstance(output, Mapping):
        return output.get("logits", output)
    return getattr(output, "logits", output)


def tensor(part: object) -> Tensor:
    """The tensor, or the one with the values of an array."""
    if isinstance(part, Tensor):
        return part
    if isinstance(part, np.ndarray) and part.dtype.kind in "bifu":
        return torch.as_tensor(part)
    raise _unusable(part)


def _unusable(x: object) -> ConfigError:
    return ConfigError(
        "The input of a network must be a tensor or an array of numbers, or a tuple or dictionary of them; got "
        f"{type(x).__name__}. Convert it in the data set or in the loader's collate_fn."
    )
