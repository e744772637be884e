"""Recipes: the parts of a method that trains one network."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass

from selfcal._support.checks import positive_int
from selfcal.errors import ConfigError
from selfcal.training.interfaces import (
    BatchTransform,
    Calibrator,
    DataSelection,
    Hypergradient,
    Loss,
    Objective,
    OptimizerRule,
    OuterModel,
    Predictive,
)

DEFAULT_NETWORK = "mlp"


@dataclass(frozen=True, repr=False)
class Recipe:
    """The parts of a method that trains one network. Incompatible parts fail here, not in training.

    `network` is the kind of network that the classifier trains unless the user chooses one, of `models.FOR_TABLES`.
    """

    name: str
    loss: Loss
    transform: BatchTransform | None = None
    selection: DataSelection | None = None
    outer_model: OuterModel | None = None
    objective: Objective | None = None
    hypergradient: Hypergradient | None = None
    outer_optimizer: OptimizerRule | None = None
    inner_steps: int = 1
    predictive: Predictive | None = None
    calibrator: Calibrator | None = None
    network: str = DEFAULT_NETWORK

    def __post_init__(self) -> None:
        positive_int("inner_steps", self.inner_steps)
        for name, kind in _PARTS.items():
            part = getattr(self, name)
            if part is not None and not isinstance(part, kind):
                raise ConfigError(
                    f"Recipe {self.name!r}: {name} must be a {kind.__name__} object; got {part!r}."
                )
        given = [name for name in _OUTER_LEVEL if getattr(self, name) is not None]
        missing = [name for name in _OUTER_LEVEL if name not in given]
        if missing and given not in ([], ["outer_model"]):
            raise ConfigError(
                f"Recipe {self.name!r} has an outer level without {', '.join(missing)}. "
                f"Pass all of {', '.join(_OUTER_LEVEL)}, or the outer model alone, whose hyperparameters then stay "
                "as they start, or none."
            )
        changes_update = self.outer_model is not None and self.outer_model.changes_update
        if changes_update and self.hypergradient and not self.hypergradient.differentiates_update:
            raise ConfigError(
                f"Recipe {self.name!r}: {self.outer_model!r} changes the update of the parameters and needs a "
                f"hypergradient that differentiates the update; got {self.hypergradient!r}. Use a hypergradient "
                "that differentiates through the inner steps."
            )
        signature = inspect.signature(self.loss).parameters
        default = signature["reduction"].default if "reduction" in signature else "none"
        reduction = getattr(self.loss, "reduction", default)
        if reduction != "none":
            raise ConfigError(
                f"Recipe {self.name!r}: the loss must return one value per row, because rows are weighted; got a "
                f'loss with reduction={reduction!r}. Use reduction="none".'
            )
        keywords = list(signature.values())[2:]
        providers = (self.transform, self.outer_model)
        provided = frozenset().union(*(part.provides for part in providers if part is not None))
        accepted = {"weight", "penalty", *(k.name for k in keywords)}
        required = {k.name for k in keywords if k.default is k.empty}
        if provided - accepted or required - provided:
            raise ConfigError(
                f"Recipe {self.name!r}: the parts do not fit. Outer model and transform provide "
                f"{', '.join(sorted(provided)) or 'nothing'}; the loss accepts {', '.join(sorted(accepted))} "
                f"and requires {', '.join(sorted(required)) or 'nothing'}."
            )

    def __repr__(self) -> str:
        """The parts that are set, the loss by its name, so that equal recipes have equal reprs in every process."""
        loss, called = self.loss, ""
        if isinstance(self.loss, functools.partial):
            settings = (f"{name}={value!r}" for name, value in self.loss.keywords.items())
            loss, called = self.loss.func, f"({', '.join(settings)})"
        parts = {
            name: getattr(self, name)
            for name in ("transform", "selection", *_OUTER_LEVEL, "predictive", "calibrator")
        }
        shown = [f"{name}={part!r}" for name, part in parts.items() if part is not None]
        steps = [f"inner_steps={self.inner_steps}"] if self.is_bilevel else []
        kind = [f"network={self.network!r}"] if self.network != DEFAULT_NETWORK else []
        given = [
            f"name={self.name!r}",
            f"loss={getattr(loss, '__name__', loss)}{called}",
            *shown,
            *steps,
            *kind,
        ]
        return f"Recipe({', '.join(given)})"

    @property
    def is_bilevel(self) -> bool:
        """Whether there is an outer level, which learns the hyperparameters of the outer model."""
        return self.objective is not None

    @property
    def needs_outer_data(self) -> bool:
        """Whether rows must be held out from training for the outer level or a calibrator."""
        fitted = self.calibrator is not None or (self.predictive is not None and self.predictive.held_out)
        return self.is_bilevel or fitted


_OUTER_LEVEL = ("outer_model", "objective", "hypergradient", "outer_optimizer")
_PARTS = {
    "transform": BatchTransform,
    "selection": DataSelection,
    "outer_model": OuterModel,
    "objective": Objective,
    "hypergradient": Hypergradient,
    "outer_optimizer": OptimizerRule,
    "calibrator": Calibrator,
    "predictive": Predictive,
}
