"""What the user of the classifier sets, and whether it makes sense."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from torch import Tensor, nn

from selfcal import models, recipes
from selfcal._support import checks
from selfcal._support.checks import Int
from selfcal.ensembles.settings import MemberSettings
from selfcal.errors import ConfigError
from selfcal.training.recipe import Candidate, Recipe

FULL_BATCH_UP_TO, BATCH = 1024, 256


class ClassifierSettings(BaseEstimator):
    """The settings of `SelfCalibratedClassifier`, which tells what they mean, and what follows from them alone."""

    def __init__(
        self,
        method: str | Recipe = "auto",
        *,
        network: Callable[[int, int], nn.Module] | str | None = None,
        hidden: Sequence[int] | None = None,
        learning_rate: float | None = None,
        batch_size: int | str | None = "auto",
        max_epochs: int = 500,
        early_stopping: bool = True,
        validation_fraction: float = 0.3,
        patience: int | None = 10,
        noisy_labels: bool = False,
        n_networks: int | None = None,
        time_budget: float = 60.0,
        standardize: bool = True,
        random_state: int | np.random.RandomState | None = None,
        verbose: bool | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.method = method
        self.network = network
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.noisy_labels = noisy_labels
        self.n_networks = n_networks
        self.time_budget = time_budget
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint_dir = checkpoint_dir

    @property
    def trains_several(self) -> bool:
        """Whether the method trains several networks; it then holds rows out from them by itself."""
        return self._recipe().splitter is not None

    def probability_copies(self, codes: Int, groups: Int) -> int:
        """How many numbers a fit of several networks holds at most for each row and class: in the race, or after it.

        A candidate keeps the votes on each row, what they come to, and a copy of that; looking for wrong labels takes
        17 in all.
        """
        splitter = self._recipe().splitter
        assert splitter is not None
        shares = splitter.splits(codes, groups, seed=0)
        votes = int(np.bincount(np.concatenate([share.held_out for share in shares])).max())
        return max(17, len(self._candidates()) * (votes + 3) + 10)

    def _recipe(self) -> Recipe:
        if isinstance(self.method, Recipe):
            return self.method
        if isinstance(self.method, str):
            return recipes.named(self.method)
        raise ConfigError(f"method must be a recipe name or a Recipe; got {self.method!r}.")

    def _seed(self) -> int:
        if self.random_state is None:  # fresh entropy: NumPy's global stream is left as it is
            return int(np.random.default_rng().integers(2**31 - 1))
        try:
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        except ValueError as error:
            raise ConfigError(
                f"random_state must be None, a whole number or a numpy.random.RandomState; {error}."
            ) from None

    def _check_settings(self) -> None:
        for name in ("early_stopping", "noisy_labels", "standardize"):
            checks.boolean(name, getattr(self, name))
        if self.learning_rate is not None:
            checks.in_range("learning_rate", self.learning_rate, 0, open_low=True)
        checks.in_range("time_budget", self.time_budget, 0, open_low=True)
        checks.in_range("validation_fraction", self.validation_fraction, 0, 0.9, open_low=True)
        checks.positive_int("max_epochs", self.max_epochs)
        if self.patience is not None:
            checks.positive_int("patience, if not None,", self.patience)
        if self.n_networks not in (None, 1):
            raise ConfigError(f"n_networks must be None or 1; got {self.n_networks!r}.")
        for name, asked in (("n_networks", self.n_networks is not None), ("noisy_labels", self.noisy_labels)):
            if asked and not self.trains_several:
                raise ConfigError(
                    f"{name} is for methods that train several networks, such as 'auto'; got it with "
                    f"{self._recipe().name!r}."
                )
        if self.batch_size is not None and self.batch_size != "auto":
            checks.positive_int("batch_size, if neither 'auto' nor None,", self.batch_size)
        if self.checkpoint_dir is not None and not isinstance(self.random_state, (int, np.integer)):
            raise ConfigError(
                "checkpoint_dir needs a whole number as random_state, so that a fit started again is the same fit; "
                f"got {self.random_state!r}."
            )
        if self.hidden is not None and not isinstance(self.hidden, (list, tuple, np.ndarray)):
            raise ConfigError(
                f"hidden must hold the width of each hidden layer, such as (64, 64); got {self.hidden!r}."
            )
        for layer, width in enumerate(self.hidden if self.hidden is not None else ()):
            checks.positive_int(f"hidden[{layer}]", width)
        if isinstance(self.network, str):
            checks.one_of("network", self.network, models.FOR_TABLES)
        elif self.network is not None and (isinstance(self.network, nn.Module) or not callable(self.network)):
            raise ConfigError(
                "network must be a function (n_features, n_classes) -> nn.Module, so that every fit starts anew; "
                f"got {self.network!r}. Pass for instance `lambda n_features, n_classes: nn.Linear(n_features, "
                "n_classes)`."
            )

    def _batch_size(self, n_train: int) -> int | None:
        if self.batch_size == "auto":
            return None if n_train <= FULL_BATCH_UP_TO else BATCH
        return None if self.batch_size is None else int(self.batch_size)

    def _member_settings(self, make: Callable[[str, Tensor, int], nn.Module], seed: int) -> MemberSettings:
        return MemberSettings(
            make=make,
            rate=None if self.learning_rate is None else float(self.learning_rate),
            max_epochs=self.max_epochs,
            batch_size=BATCH if self.batch_size == "auto" else self._batch_size(0),
            early_stopping=self.early_stopping,
            patience=self.patience,
            seed=seed,
            verbose=self.verbose,
            folder=None if self.checkpoint_dir is None else Path(self.checkpoint_dir),
        )

    def _candidates(self) -> Sequence[Candidate]:
        """What is raced; a network that the user chose is the only one."""
        recipe = self._recipe()
        candidates = recipe.portfolio or (Candidate("tabular", recipe),)
        if self.network is None:
            return candidates
        kind = self.network if isinstance(self.network, str) else "own"
        return [Candidate(kind, recipe) for recipe in dict.fromkeys(c.recipe for c in candidates)]
