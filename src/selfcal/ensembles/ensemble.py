"""The description of an ensemble: what its members are, and which rows each is trained on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from selfcal.ensembles.folds import Split, Splitter
from selfcal.errors import ConfigError
from selfcal.training.recipe import Recipe

if TYPE_CHECKING:
    from torch import nn

    from selfcal.ensembles.pooling import Trainer
    from selfcal.ensembles.settings import MemberSettings
    from selfcal.ensembles.training import Rows


class Candidate(ABC):
    """A kind of model that is trained on some rows and predicts others; each member is trained on one split."""

    name: str
    """Its name in `selection_` and in reports."""

    @property
    @abstractmethod
    def method(self) -> str:
        """The name of the method that trains it."""

    @abstractmethod
    def trainer(self, rows: Rows, splits: Sequence[Split], settings: MemberSettings) -> Trainer:
        """Prepare the training of one member for each split."""

    def served(self, members: Sequence[nn.Module]) -> Sequence[nn.Module]:
        """What predicts new rows as a part of a pool, with the mean of its probabilities; by default the members."""
        return members


@dataclass(frozen=True)
class NetworkCandidate(Candidate):
    """A kind of network, and the recipe that each network of this kind is trained by.

    Args:
        name: The kind, one of `models.FOR_TABLES`.
        recipe: The recipe.

    Example:
        >>> from selfcal import losses
        >>> NetworkCandidate("mlp", Recipe(name="plain", loss=losses.cross_entropy)).name
        'mlp'
    """

    name: str
    recipe: Recipe

    def __post_init__(self) -> None:
        if not isinstance(self.recipe, Recipe):
            raise ConfigError(f"Candidate {self.name!r} must have a Recipe; got {self.recipe!r}.")
        if self.recipe.calibrator is not None:
            raise ConfigError(
                f"An ensemble fits a temperature to held-out predictions; recipe {self.recipe.name!r} of candidate "
                f"{self.name!r} must not have a calibrator. Leave the calibrator out."
            )
        if self.recipe.predictive is not None:
            raise ConfigError(
                f"The members of an ensemble predict by their logits; recipe {self.recipe.name!r} of candidate "
                f"{self.name!r} must not have a predictive. Use it as a method of its own."
            )

    @property
    def method(self) -> str:
        """The name of the recipe."""
        return self.recipe.name

    def trainer(self, rows: Rows, splits: Sequence[Split], settings: MemberSettings) -> Trainer:
        """Trains the networks side by side."""
        from selfcal.ensembles.settings import NetworkTrainer

        return NetworkTrainer(self, rows, splits, settings)


@dataclass(frozen=True)
class Ensemble:
    """A method that trains several models and combines them.

    Each candidate trains one member per split. The predictions for held-out rows decide which candidates are trained
    further, if time is short, and the weight of each in the mixture that predicts.

    Args:
        name: The name of the method.
        candidates: Networks with their recipes, or other models; the first one is trained in any case.
        splitter: Splits the rows into training and held-out rows for each member.

    Example:
        >>> from selfcal import losses
        >>> from selfcal.ensembles import CrossFit
        >>> plain = Recipe(name="plain", loss=losses.cross_entropy)
        >>> Ensemble("bagged", (NetworkCandidate("mlp", plain),), CrossFit(folds=3)).splitter
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
        for candidate in self.candidates:
            if not isinstance(candidate, Candidate):
                raise ConfigError(
                    f"Ensemble {self.name!r}: a candidate must be a Candidate such as NetworkCandidate('mlp', "
                    f"recipe); got {candidate!r}."
                )

    @property
    def networks(self) -> tuple[NetworkCandidate, ...]:
        """The candidates that are networks."""
        return tuple(one for one in self.candidates if isinstance(one, NetworkCandidate))

    def with_network(self, kind: str) -> Ensemble:
        """The same ensemble with this kind of network alone, once for each recipe."""
        recipes = dict.fromkeys(candidate.recipe for candidate in self.networks)
        if not recipes:
            raise ConfigError(f"Ensemble {self.name!r} trains no networks: leave out network={kind!r}.")
        return replace(self, candidates=tuple(NetworkCandidate(kind, recipe) for recipe in recipes))
