"""The network of a user's own function, checked before training begins."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from selfcal.errors import ConfigError
from selfcal.training.problem import evaluating


def own_network(make: Callable[[int, int], nn.Module], x: Tensor, n_classes: int) -> nn.Module:
    """The network that the function makes for these rows, after a check that it returns logits."""
    module = make(x.shape[1], n_classes)
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"network must be a function (n_features, n_classes) -> nn.Module; it returned {module!r}."
        )
    module = copy.deepcopy(module)  # layers that the function shares between calls stay as they are
    _check_output(module, x[:8], n_classes)
    return module


def _check_output(module: nn.Module, x: Tensor, n_classes: int) -> None:
    """Try the network on a few rows, so that a wrong one fails here and not in the middle of training."""
    try:
        with torch.no_grad(), evaluating(module):
            output = module(x)
    except Exception as error:
        raise ConfigError(
            f"network must take float32 rows of {x.shape[1]} columns; it failed on the first {len(x)}: {error}"
        ) from error
    shape = tuple(output.shape) if isinstance(output, Tensor) else f"a {type(output).__name__}"
    if shape != (len(x), n_classes):
        raise ConfigError(
            f"network must return logits of shape (rows, classes), here {(len(x), n_classes)}; got {shape}. "
            "Give its last layer n_classes outputs."
        )
    if bool((output >= 0).all()) and bool(((output.sum(dim=1) - 1).abs() < 1e-4).all()):
        raise ConfigError(
            "network must return logits; it returned probabilities. Leave out the final softmax."
        )
