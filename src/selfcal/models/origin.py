"""The origin of a network: the function and arguments that built it, so that it can be stored without code."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple, ParamSpec

import torch
from torch import nn

P = ParamSpec("P")


class Origin(NamedTuple):
    """The function of `selfcal.models` that built a network, and its arguments."""

    name: str
    arguments: dict[str, object]


def origin(module: nn.Module) -> Origin | None:
    """Return how to build such a network again (untrained), if it was built here and is unchanged.

    Example:
        >>> from selfcal.models import mlp
        >>> origin(mlp(2, 5, hidden=(8,)))
        Origin(name='mlp', arguments={'n_features': 2, 'n_classes': 5, 'hidden': (8,), 'dropout': 0.0})
    """
    if "_made_by" not in vars(module):
        return None
    make, arguments = vars(module)["_made_by"]
    with torch.device("meta"):
        again = make(**arguments)
    return Origin(make.__name__, arguments) if repr(again) == repr(module) else None


def remembered(make: Callable[P, nn.Module]) -> Callable[P, nn.Module]:
    """Decorate a function so that `origin` recognises the networks it returns."""

    @functools.wraps(make)
    def made(*args: P.args, **kwargs: P.kwargs) -> nn.Module:
        module = make(*args, **kwargs)
        call = inspect.signature(make).bind(*args, **kwargs)
        call.apply_defaults()
        vars(module)["_made_by"] = made, call.arguments
        return module

    vars(made)["_remembered"] = True
    return made


def is_remembered(function: object) -> bool:
    """Whether the networks that a function makes record their origin."""
    return getattr(function, "_remembered", False) is True
