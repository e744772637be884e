"""Several outer models as one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from torch import Tensor

from selfcal.errors import ConfigError
from selfcal.training.interfaces import OuterModel
from selfcal.training.types import Batch, OuterParams, Output, Sizes


@dataclass(frozen=True)
class Combined(OuterModel):
    """Several outer models side by side, each with parameters of its own.

    Their names begin with that of the model: ``"LayerDecay.log10_decay"``.

    Args:
        models: The outer models; no two may give the same hyperparameter.

    Example:
        >>> import torch
        >>> from selfcal.outer import Gamma, LayerDecay
        >>> both = Combined((LayerDecay(), Gamma()))
        >>> sorted(both.provides), both.decays
        (['gamma'], True)
        >>> list(both.init(Sizes(n_train=100, n_layers=2), like=torch.zeros(())))
        ['LayerDecay.log10_decay', 'Gamma.gamma']
    """

    models: tuple[OuterModel, ...]

    def __post_init__(self) -> None:
        if not self.models or not all(isinstance(model, OuterModel) for model in self.models):
            raise ConfigError(
                f"Combined needs outer models such as (LayerDecay(), Gamma()); got {self.models!r}."
            )
        given = Counter(
            name for model in self.models for name in [*model.provides, *["decay"] * model.decays]
        )
        twice = sorted(name for name, times in given.items() if times > 1)
        kinds = Counter(type(model).__name__ for model in self.models)
        twice += sorted(name for name, times in kinds.items() if times > 1)
        if twice:
            raise ConfigError(
                f"Outer models that are put together must each give something else; of {self.models!r} more than "
                f"one gives {', '.join(twice)}. Leave one out."
            )
        layers = {model.layer for model in self.models if model.reads_head}
        if len(layers) > 1:
            raise ConfigError(
                f"Outer models that are put together must look at the same layer; got {sorted(map(str, layers))}."
            )
        joined = {
            "provides": frozenset(given) - {"decay"},
            "reads_head": bool(layers),
            "layer": next(iter(layers), None),
            "decays": "decay" in given,
        }
        for name, value in joined.items():
            object.__setattr__(self, name, value)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """What each has before training."""
        return self._joined({model: model.init(sizes, like) for model in self.models})

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """What each gives for these rows."""
        given = (model(own, output, batch) for model, own in self._parted(outer).items())
        return {name: value for part in given for name, value in part.items()}

    def blurred(self, outer: OuterParams, x: Tensor) -> Tensor:
        """The rows as one after the other has blurred them."""
        for model, own in self._parted(outer).items():
            x = model.blurred(own, x)
        return x

    def decay(self, outer: OuterParams) -> Tensor:
        """That of the model that has one."""
        if not self.decays:
            return super().decay(outer)
        (decay,) = (model.decay(own) for model, own in self._parted(outer).items() if model.decays)
        return decay

    def project(self, outer: OuterParams) -> OuterParams:
        """Each to what it allows."""
        return self._joined({model: model.project(own) for model, own in self._parted(outer).items()})

    def _joined(self, parts: dict[OuterModel, OuterParams]) -> OuterParams:
        return {
            f"{type(model).__name__}.{name}": value
            for model, own in parts.items()
            for name, value in own.items()
        }

    def _parted(self, outer: OuterParams) -> dict[OuterModel, OuterParams]:
        """The parameters of each model under its own names."""
        starts = {model: f"{type(model).__name__}." for model in self.models}
        return {
            model: {
                name.removeprefix(start): value for name, value in outer.items() if name.startswith(start)
            }
            for model, start in starts.items()
        }
