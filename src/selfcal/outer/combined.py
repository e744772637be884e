"""Several outer models as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from selfcal.errors import ConfigError
from selfcal.training.inputs import Inputs
from selfcal.training.interfaces import OptimizerRule, OuterModel
from selfcal.training.types import Batch, NetworkParams, OuterParams, Output, Sizes


@dataclass(frozen=True)
class Combined(OuterModel):
    """Several outer models side by side, each with its own parameters.

    The names of the parameters begin with the name of the model: ``"LayerDecay.log10_decay"``.

    Args:
        models: The outer models; no two may be of one class or provide the same hyperparameter.

    Example:
        >>> import torch
        >>> from selfcal.outer import Gamma, LayerDecay
        >>> both = Combined((LayerDecay(), Gamma()))
        >>> sorted(both.provides), both.changes_update
        (['gamma'], True)
        >>> list(both.init(Sizes(n_train=100, shapes={"weight": (3, 2)}), like=torch.zeros(())))
        ['LayerDecay.log10_decay', 'Gamma.gamma']
    """

    models: tuple[OuterModel, ...]

    def __post_init__(self) -> None:
        if not self.models or not all(isinstance(model, OuterModel) for model in self.models):
            raise ConfigError(
                f"Combined needs a tuple of outer models such as (LayerDecay(), Gamma()); got {self.models!r}."
            )
        given = Counter(name for model in self.models for name in model.provides)
        twice = sorted(name for name, times in given.items() if times > 1)
        kinds = Counter(type(model).__name__ for model in self.models)
        twice += sorted(name for name, times in kinds.items() if times > 1)
        if twice:
            raise ConfigError(
                f"Combined outer models must each provide something different; of {self.models!r} more than one "
                f"provides {', '.join(twice)}. Leave one out."
            )
        layers = {model.layer for model in self.models if model.reads_head}
        if len(layers) > 1:
            raise ConfigError(
                f"Combined outer models must read the same layer; got {sorted(map(str, layers))}. Pass the same "
                "layer= to each."
            )
        joined = {
            "provides": frozenset(given),
            "reads_head": bool(layers),
            "layer": next(iter(layers), None),
            "changes_update": any(model.changes_update for model in self.models),
        }
        for name, value in joined.items():
            object.__setattr__(self, name, value)

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """The parameters of each model before training."""
        return self._joined({model: model.init(sizes, like) for model in self.models})

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """The hyperparameters of each model for these rows."""
        given = (model(own, output, batch) for model, own in self._by_model(outer).items())
        return {name: value for part in given for name, value in part.items()}

    def network_input(self, outer: OuterParams, x: Inputs) -> Inputs:
        """The input after each model in turn has changed it."""
        for model, own in self._by_model(outer).items():
            x = model.network_input(own, x)
        return x

    def update_term(self, outer: OuterParams, members: Sequence[NetworkParams]) -> list[NetworkParams]:
        """The sum of what each model adds to the update."""
        total: list[NetworkParams] = [{} for _ in members]
        for model, own in self._by_model(outer).items():
            for summed, term in zip(total, model.update_term(own, members), strict=True):
                for name, value in term.items():
                    summed[name] = summed[name] + value if name in summed else value
        return total

    def adapt_optimizer(self, rule: OptimizerRule) -> OptimizerRule:
        """The rule without the settings that any of the models replaces."""
        for model in self.models:
            rule = model.adapt_optimizer(rule)
        return rule

    def project(self, outer: OuterParams) -> OuterParams:
        """The projection of each model."""
        return self._joined({model: model.project(own) for model, own in self._by_model(outer).items()})

    def _joined(self, parts: dict[OuterModel, OuterParams]) -> OuterParams:
        return {
            f"{type(model).__name__}.{name}": value
            for model, own in parts.items()
            for name, value in own.items()
        }

    def _by_model(self, outer: OuterParams) -> dict[OuterModel, OuterParams]:
        """The parameters of each model under its own names."""
        starts = {model: f"{type(model).__name__}." for model in self.models}
        return {
            model: {
                name.removeprefix(start): value for name, value in outer.items() if name.startswith(start)
            }
            for model, start in starts.items()
        }
