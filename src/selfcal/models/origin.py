"""Networks that know how they were made, so that they can be stored without their code."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import NamedTuple, ParamSpec

import torch
from torch import nn

P = ParamSpec("P")


class Origin(NamedTuple):
    """Which function of `selfcal.models` made a network, and with which arguments."""

    name: str
    arguments: dict[str, object]


def origin(module: nn.Module) -> Origin | None:
    """How to make such a network again (untrained), if it was made here and is still what it was.

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
    """The same function, whose networks know their origin."""

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
    """Whether the networks that a function makes know their origin."""
    return getattr(function, "_remembered", False) is True
