"""Modules that describe themselves in plain values, and modules built from such descriptions.

| module | its spec |
|---|---|
| made by a function of `selfcal.models` | `{"name": "mlp", "arguments": {...}}` |
| a `Wrapper`, of other modules or of arrays | `{key: value}`, the key of its class and what `Wrapper.spec` returns |
| any other, whose code is not ours | `{"own": "Linear"}`, a placeholder for a network that the user provides |

A spec holds no weights: they are the `state_dict` of the module.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import nn

from selfcal import models
from selfcal._support.checks import shorten
from selfcal._support.json_values import as_json
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.models.origin import is_remembered, origin

MAX_DEPTH = 8
"""Of wrappers inside one another."""
MAX_WORD = 40
"""Letters of an argument that is a word."""

OWN = "own"
_RESERVED = (OWN, "name", "arguments", "default", "kind")
"""Names in a spec, or beside it in a stored model, that no wrapper can have as its key."""

Spec = dict[str, Any]
NETWORKS = tuple(name for name in models.__all__ if is_remembered(getattr(models, name)))
"""The functions of `selfcal.models` whose networks can be made again from a spec."""


class Wrapper(nn.Module, ABC):
    """A module around other modules that describes itself; all its tensors must be in its `state_dict`.

    A subclass names the key of its spec and needs no entry elsewhere: models that contain it can be saved and, once
    its class has been imported, loaded.

    Example:
        >>> class Doubled(Wrapper, key="doubled"):
        ...     def __init__(self, network):
        ...         super().__init__()
        ...         self.network = network
        ...
        ...     def forward(self, x):
        ...         return 2 * self.network(x)
        ...
        ...     def spec(self):
        ...         return spec_of(self.network)
        ...
        ...     @classmethod
        ...     def from_spec(cls, value, build):
        ...         return cls(build(value))
        >>> spec = spec_of(Doubled(models.mlp(2, 3, hidden=())))
        >>> spec["doubled"]["name"]
        'mlp'
        >>> Builder(2, 3)(spec)
        Doubled(
          (network): Sequential(
            (0): Linear(in_features=2, out_features=3, bias=True)
          )
        )
    """

    key: ClassVar[str]

    def __init_subclass__(cls, *, key: str, **options: Any) -> None:
        super().__init_subclass__(**options)
        if Wrapper not in cls.__bases__:
            raise ConfigError(f"{cls.__name__} must derive from Wrapper itself: wrap a wrapper instead.")
        taken = {other.key: _path(other) for other in wrappers()}
        if key in _RESERVED or taken.get(key, _path(cls)) != _path(
            cls
        ):  # a notebook may define a class again
            raise ConfigError(f"{cls.__name__} must have a unique key; {key!r} is taken.")
        cls.key = key

    @abstractmethod
    def spec(self) -> Any:
        """The value that `from_spec` needs, in plain types; a module inside is described by its `spec_of`."""

    @classmethod
    @abstractmethod
    def from_spec(cls, value: Any, build: Builder) -> Self:
        """The module that `spec` describes, with weights of any value.

        Args:
            value: As it was read from a file, not validated.
            build: Builds the modules inside from their specs, and has the number of features and classes.
        """

    def summary(self) -> str:
        """A short description for display."""
        return type(self).__name__


def wrappers() -> Iterator[type[Wrapper]]:
    """All wrapper classes that were imported, the latest first."""
    return (cls for cls in reversed(Wrapper.__subclasses__()) if "key" in vars(cls))


def spec_of(module: nn.Module) -> Spec:
    """The description of a module and of those inside it, in plain JSON values.

    Example:
        >>> spec_of(models.mlp(2, 3, hidden=(8,)))
        {'name': 'mlp', 'arguments': {'n_features': 2, 'n_classes': 3, 'hidden': [8], 'dropout': 0.0}}
        >>> spec_of(nn.Linear(2, 3))
        {'own': 'Linear'}
    """
    if isinstance(module, Wrapper):
        return {module.key: as_json(module.spec())}
    made = origin(module)
    return {OWN: type(module).__name__} if made is None else dict(as_json(made._asdict()))


def has_own(spec: Any) -> bool:
    """Whether a spec has a placeholder: a network that was not made by `selfcal.models`.

    Example:
        >>> has_own({"members": [{"name": "mlp", "arguments": {}}, {"own": "Linear"}]})
        True
    """
    if isinstance(spec, dict):
        return OWN in spec or any(map(has_own, spec.values()))
    return isinstance(spec, list) and any(map(has_own, spec))


def summary_of(module: nn.Module) -> str:
    """A short description of a module for display.

    Example:
        >>> summary_of(models.mlp(2, 3, hidden=(8,)))
        'hidden layers [8]'
    """
    if isinstance(module, Wrapper):
        return module.summary()
    made = origin(module)
    if made is None:
        return type(module).__name__
    hidden = as_json(made.arguments.get("hidden"))
    return made.name if hidden is None else f"hidden layers {hidden}"


@dataclass(frozen=True)
class NamedNetwork:
    """A network of `selfcal.models` by name and arguments, as a function ``(n_features, n_classes) -> module``.

    Example:
        >>> NamedNetwork("mlp", {"n_features": 4, "n_classes": 3, "hidden": []})(2, 5)
        Sequential(
          (0): Linear(in_features=2, out_features=5, bias=True)
        )
    """

    name: str
    arguments: dict[str, Any]

    def __call__(self, n_features: int, n_classes: int) -> nn.Module:
        """The network, untrained, for so many columns and classes."""
        sizes = {"n_features": n_features, "n_classes": n_classes}
        arguments = {name: sizes.get(name, value) for name, value in self.arguments.items()}
        module: nn.Module = getattr(models, self.name)(**arguments)
        return module


class Builder:
    """Builds untrained modules from specs, which may come from an untrusted file.

    Networks that a spec names take the features and classes given here, not those of the spec.

    Args:
        n_features: Columns of the input.
        n_classes: Classes, one logit each.
        own: Makes the network for a placeholder; by default a placeholder is an error.
        max_networks: Maximum number of networks to build, since every stored one has at least one tensor.

    Example:
        >>> Builder(2, 3)({"name": "mlp", "arguments": {"n_features": 2, "n_classes": 3, "hidden": []}})
        Sequential(
          (0): Linear(in_features=2, out_features=3, bias=True)
        )
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        own: Callable[[], nn.Module] | None = None,
        max_networks: int = 1000,
    ) -> None:
        self.n_features = n_features
        self.n_classes = n_classes
        self._own = own
        self._max_networks = max_networks
        self._n_networks = 0
        self._depth = 0

    def __call__(self, spec: Any) -> nn.Module:
        """The module that a spec describes.

        Raises:
            ModelFormatError: The spec is invalid, or exceeds a limit.
        """
        if not isinstance(spec, dict):
            raise ModelFormatError("A network must be described by its name and arguments, or as a wrapper.")
        for wrapper in wrappers():
            if wrapper.key in spec:
                return self._wrapped(wrapper, spec[wrapper.key])
        self.count_network()
        if OWN not in spec:
            return self._named(spec)(self.n_features, self.n_classes)
        if self._own is None:
            raise ModelFormatError(
                "The network is not one of selfcal.models. Pass the function that makes it."
            )
        return self._own()

    def count_network(self) -> None:
        """Count one more network; a wrapper without a network inside calls it itself.

        Raises:
            ModelFormatError: There are too many.
        """
        self._n_networks += 1
        if self._n_networks > self._max_networks:
            raise ModelFormatError(f"More than {self._max_networks} networks do not fit the stored weights.")

    def _wrapped(self, wrapper: type[Wrapper], value: Any) -> Wrapper:
        if self._depth == MAX_DEPTH:
            raise ModelFormatError(f"At most {MAX_DEPTH} wrappers may be inside one another.")
        self._depth += 1
        module = wrapper.from_spec(value, self)
        self._depth -= 1
        return module

    def _named(self, spec: Spec) -> NamedNetwork:
        name, arguments = spec.get("name"), spec.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ModelFormatError("A network must have 'name' (str) and 'arguments' (dict).")
        if name not in NETWORKS:
            raise ModelFormatError(f"A network must be one of {', '.join(NETWORKS)}; got {shorten(name)!r}.")
        known = inspect.signature(getattr(models, name)).parameters
        longest: dict[type, int] = {
            str: MAX_WORD,
            list: max(self._max_networks, self.n_features, self.n_classes),
        }
        for argument, value in arguments.items():
            short = type(value) in longest and len(value) <= longest[type(value)]
            if argument not in known or not (short or type(value) in (bool, int, float, type(None))):
                raise ModelFormatError(f"{name} takes no such argument: {shorten(argument)!r}.")
        return NamedNetwork(name, arguments)


def maker_of(module: nn.Module) -> NamedNetwork | None:
    """The function that makes the network, or the first one inside wrappers; None if `selfcal.models` made none.

    Example:
        >>> maker_of(models.mlp(2, 3, hidden=(8,)))
        NamedNetwork(name='mlp', arguments={'n_features': 2, 'n_classes': 3, 'hidden': [8], 'dropout': 0.0})
    """
    made = next(filter(None, map(origin, module.modules())), None)
    return None if made is None else NamedNetwork(made.name, as_json(made.arguments))


def _path(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__
