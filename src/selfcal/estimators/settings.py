"""The settings of the classifier, and checks of their values."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from torch import nn

from selfcal import models, recipes
from selfcal._support import checks
from selfcal.ensembles import Ensemble
from selfcal.ensembles.settings import MemberSettings
from selfcal.errors import ConfigError
from selfcal.models.factory import OWN, NetworkFactory
from selfcal.tabular.inference import checked_kinds
from selfcal.training.recipe import Recipe

FULL_BATCH_UP_TO, BATCH = 1024, 256


class ClassifierSettings(BaseEstimator):
    """The settings of `SelfCalibratedClassifier`, where they are documented, and what follows from them alone."""

    def __init__(
        self,
        method: str | Recipe | Ensemble = "auto",
        *,
        network: Callable[[int, int], nn.Module] | str | None = None,
        hidden: Sequence[int] | None = None,
        learning_rate: float | None = None,
        batch_size: int | str | None = "auto",
        max_epochs: int = 500,
        early_stopping: bool = True,
        validation_fraction: float = 0.3,
        patience: int | None = 10,
        class_weight: Mapping[Any, float] | str | None = None,
        noisy_labels: bool = False,
        n_networks: int | None = None,
        time_budget: float = 60.0,
        n_jobs: int | None = None,
        standardize: bool = True,
        kinds: Mapping[str, str] | None = None,
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
        self.class_weight = class_weight
        self.noisy_labels = noisy_labels
        self.n_networks = n_networks
        self.time_budget = time_budget
        self.n_jobs = n_jobs
        self.standardize = standardize
        self.kinds = kinds
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint_dir = checkpoint_dir

    def trains_several(self) -> bool:
        """Whether the method trains several networks; it then holds out rows from them itself."""
        return isinstance(self._method(), Ensemble)

    def probability_copies(self) -> int:
        """Maximum number of values that a fit of several networks holds for each row and class.

        A candidate keeps the predictions for each row, their mean and its logarithm, and copies of these; the label
        audit takes 17.
        """
        ensemble = self._method()
        assert isinstance(ensemble, Ensemble)
        candidates = ensemble.candidates if self.network is None else ensemble.with_network(OWN).candidates
        return max(17, len(candidates) * (ensemble.splitter.predictions_per_row + 5) + 12)

    def _method(self) -> Recipe | Ensemble:
        if isinstance(self.method, (Recipe, Ensemble)):
            return self.method
        if isinstance(self.method, str):
            return recipes.named(self.method)
        raise ConfigError(
            f"method must be the name of a method, a Recipe or an Ensemble; got {self.method!r}."
        )

    def _seed(self) -> int:
        if self.random_state is None:  # fresh entropy: NumPy's global stream is left as it is
            return int(np.random.default_rng().integers(2**31 - 1))
        try:
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        except ValueError as error:
            raise ConfigError(
                f"random_state must be None, a whole number or a numpy.random.RandomState; {error}."
            ) from None

    def check_settings(self) -> None:
        """Raise the error that `fit` would raise about the settings, before there is any data."""
        self._method()
        self._check_settings()
        self._check_method()

    def _check_settings(self) -> None:
        for name in ("early_stopping", "noisy_labels", "standardize"):
            checks.boolean(name, getattr(self, name))
        if self.learning_rate is not None:
            checks.in_range("learning_rate", self.learning_rate, 0, open_low=True)
        checks.in_range("time_budget", self.time_budget, 0, open_low=True)
        checks.in_range("validation_fraction", self.validation_fraction, 0, 0.9, open_low=True)
        checks.positive_int("max_epochs", self.max_epochs)
        checks.n_jobs(self.n_jobs)
        if self.patience is not None:
            checks.positive_int("patience, if not None,", self.patience)
        if self.n_networks not in (None, 1):
            raise ConfigError(f"n_networks must be None or 1; got {self.n_networks!r}.")
        if self.batch_size is not None and self.batch_size != "auto":
            checks.positive_int("batch_size, if neither 'auto' nor None,", self.batch_size)
        self._check_mappings()
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
                "network must be a function (n_features, n_classes) -> nn.Module, so that every fit starts afresh; "
                f"got {self.network!r}. Pass for instance `lambda n_features, n_classes: nn.Linear(n_features, "
                "n_classes)`."
            )

    def _check_mappings(self) -> None:
        if not (
            self.class_weight is None
            or isinstance(self.class_weight, Mapping)
            or (isinstance(self.class_weight, str) and self.class_weight == "balanced")
        ):
            raise ConfigError(
                "class_weight must be None, 'balanced' or a dictionary with a weight for each class; got "
                f"{self.class_weight!r}."
            )
        if self.kinds is not None:
            if not isinstance(self.kinds, Mapping) or not all(
                isinstance(k, str) for k in self.kinds.values()
            ):
                raise ConfigError(
                    f"kinds must be a dictionary such as {{'zip': 'category'}}; got {self.kinds!r}."
                )
            checked_kinds(self.kinds)

    def _check_method(self) -> None:
        """Whether the settings are for this method; a loaded model may know only a description of it."""
        for name, asked in (("n_networks", self.n_networks is not None), ("noisy_labels", self.noisy_labels)):
            if asked and not self.trains_several():
                raise ConfigError(
                    f"{name} is for methods that train several networks, such as 'auto'; got it with "
                    f"{self._method().name!r}."
                )

    def _batch_size(self, n_train: int) -> int | None:
        if self.batch_size == "auto":
            return None if n_train <= FULL_BATCH_UP_TO else BATCH
        return None if self.batch_size is None else int(self.batch_size)

    def _kind(self) -> str | None:
        """The kind of network that the user chose; None for that of the method."""
        return self.network if self.network is None or isinstance(self.network, str) else OWN

    def _factory(self, n_classes: int) -> NetworkFactory:
        own = self.network if callable(self.network) else None
        return NetworkFactory(n_classes, self.hidden, own)

    def _member_settings(self, n_classes: int, seed: int) -> MemberSettings:
        return MemberSettings(
            make=self._factory(n_classes),
            rate=None if self.learning_rate is None else float(self.learning_rate),
            max_epochs=self.max_epochs,
            batch_size=BATCH if self.batch_size == "auto" else self._batch_size(0),
            early_stopping=self.early_stopping,
            patience=self.patience,
            seed=seed,
            verbose=self.verbose,
            folder=None if self.checkpoint_dir is None else Path(self.checkpoint_dir),
        )
