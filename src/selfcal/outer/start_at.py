"""An outer model that starts from values that were learned before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from selfcal.errors import ConfigError
from selfcal.training.inputs import Inputs
from selfcal.training.interfaces import OptimizerRule, OuterModel
from selfcal.training.types import Batch, NetworkParams, OuterParams, Output, Sizes


@dataclass(frozen=True)
class StartAt(OuterModel):
    """Another outer model, from given values of its parameters on.

    In a recipe without an outer level, the values stay as they are: a network can be trained once more with what an
    earlier run has learned.

    Args:
        model: The outer model.
        values: Its parameters by name, such as `TrainingResult.outer_params`.

    Example:
        >>> import torch
        >>> from selfcal.outer import Gamma
        >>> again = StartAt(Gamma(), {"gamma": 2.5})
        >>> again.init(Sizes(n_train=100), like=torch.zeros(()))
        {'gamma': tensor(2.5000)}
    """

    model: OuterModel
    values: Any

    def __post_init__(self) -> None:
        if not isinstance(self.model, OuterModel) or not isinstance(self.values, (Mapping, tuple)):
            raise ConfigError(
                "StartAt needs an outer model and its parameters by name, such as result.outer_params; got "
                f"{self.model!r} and {self.values!r}."
            )
        named = {str(name): _plain(value) for name, value in dict(self.values).items()}
        object.__setattr__(
            self, "values", tuple(named.items())
        )  # so that equal models are equal, also as keys
        for name in ("provides", "reads_head", "layer", "changes_update"):
            object.__setattr__(self, name, getattr(self.model, name))

    def init(self, sizes: Sizes, like: Tensor) -> OuterParams:
        """The given values."""
        start, values = self.model.init(sizes, like), dict(self.values)
        given = {name: torch.tensor(value).to(like) for name, value in values.items()}
        wanted = {name: tuple(value.shape) for name, value in start.items()}
        if {name: tuple(value.shape) for name, value in given.items()} != wanted:
            raise ConfigError(
                f"The values of {self.model!r} must have the shapes {wanted}; got "
                f"{ {name: tuple(value.shape) for name, value in given.items()} }."
            )
        return {name: given[name] for name in start}

    def __call__(self, outer: OuterParams, output: Output, batch: Batch) -> dict[str, Tensor]:
        """Those of the model."""
        return self.model(outer, output, batch)

    def network_input(self, outer: OuterParams, x: Inputs) -> Inputs:
        """That of the model."""
        return self.model.network_input(outer, x)

    def update_term(self, outer: OuterParams, members: Sequence[NetworkParams]) -> list[NetworkParams]:
        """That of the model."""
        return self.model.update_term(outer, members)

    def adapt_optimizer(self, rule: OptimizerRule) -> OptimizerRule:
        """That of the model."""
        return self.model.adapt_optimizer(rule)

    def project(self, outer: OuterParams) -> OuterParams:
        """That of the model."""
        return self.model.project(outer)


def _plain(value: Any) -> Any:
    """Numbers in nested tuples."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else float(value)
