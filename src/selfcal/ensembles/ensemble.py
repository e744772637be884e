"""The description of an ensemble: what its members are, and which rows each is trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from selfcal.ensembles.folds import Splitter
from selfcal.errors import ConfigError
from selfcal.training.recipe import Recipe


class Candidate(NamedTuple):
    """A kind of network, and the recipe that each network of this kind is trained by."""

    network: str
    recipe: Recipe


@dataclass(frozen=True)
class Ensemble:
    """A method that trains several networks and combines them.

    Each candidate trains one network per split. The predictions for held-out rows decide which candidates are trained
    further, if time is short, and the weight of each in the mixture that predicts.

    Args:
        name: The name of the method.
        candidates: Kinds of network with their recipes; the first one is always trained in full.
        splitter: Splits the rows into training and held-out rows for each network.

    Example:
        >>> from selfcal import losses
        >>> from selfcal.ensembles import CrossFit
        >>> plain = Recipe(name="plain", loss=losses.cross_entropy)
        >>> Ensemble("bagged", (Candidate("mlp", plain),), CrossFit(folds=3)).splitter
        CrossFit(folds=3, repeats=1)
    """

    name: str
    candidates: tuple[Candidate, ...]
    splitter: Splitter

    def __post_init__(self) -> None:
        if not isinstance(self.splitter, Splitter):
            raise ConfigError(
                f"Ensemble {self.name!r}: splitter must be a Splitter such as CrossFit(); got {self.splitter!r}."
            )
        if not self.candidates:
            raise ConfigError(f"Ensemble {self.name!r} must have at least one candidate; got none.")
        for network, recipe in self.candidates:
            if not isinstance(recipe, Recipe):
                raise ConfigError(
                    f"Ensemble {self.name!r}: candidate {network!r} must have a Recipe; got {recipe!r}."
                )
            if recipe.calibrator is not None:
                raise ConfigError(
                    f"Ensemble {self.name!r} fits a temperature to held-out predictions; recipe {recipe.name!r} must "
                    "not have a calibrator. Leave the calibrator out."
                )

    def with_network(self, kind: str) -> Ensemble:
        """The same ensemble with this kind of network alone, once for each recipe."""
        recipes = dict.fromkeys(recipe for _, recipe in self.candidates)
        return replace(self, candidates=tuple(Candidate(kind, recipe) for recipe in recipes))
