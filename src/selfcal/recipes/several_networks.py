"""Methods that train several networks and combine their predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sklearn.ensemble import ExtraTreesClassifier

from selfcal import losses
from selfcal._support.checks import one_of
from selfcal.ensembles import (
    Boosting,
    Candidate,
    ClassifierCandidate,
    CrossFit,
    Discriminant,
    Ensemble,
    NetworkCandidate,
    SameRows,
)
from selfcal.errors import ConfigError
from selfcal.hypergradients import OneStep
from selfcal.models import FOR_TABLES
from selfcal.objectives import NLL
from selfcal.optimizers import Adam
from selfcal.outer import Combined, Gamma, InputNoise, LabelSmoothing, LayerDecay, Temperature, WeightNet
from selfcal.training.interfaces import OuterModel
from selfcal.training.recipe import Recipe


def crossfit(
    *,
    folds: int = 5,
    repeats: int = 1,
    learn: str | OuterModel | Sequence[str | OuterModel] | None = None,
    outer_lr: float = 0.02,
    inner_steps: int = 5,
) -> Ensemble:
    """One network per fold, each trained on all other folds; their probabilities are averaged.

    Every row is used to train all networks but one, and that one gives an out-of-fold prediction for it: no row is
    lost to validation.

    Args:
        folds: Number of folds.
        repeats: Number of repetitions with different folds: more networks, and a better average, for more time.
        learn: Hyperparameters to learn from the held-out rows, one name or several: ``"decay"`` (the
            weight decay of each layer), ``"smoothing"`` (of each class's label), ``"gamma"`` (of the focal loss),
            ``"noise"`` (on the features, in training), ``"temperature"`` (in training) or ``"weights"`` (of rows, by
            the networks' predictions for them); or an outer model. It is common to all networks.
        outer_lr: Step size of Adam on what is learned.
        inner_steps: Training steps between two of its steps.

    Example:
        >>> crossfit(folds=3).splitter
        CrossFit(folds=3, repeats=1)
        >>> crossfit(learn="decay").networks[0].recipe.outer_model
        LayerDecay(start=0.3, bounds=(0.3, 10.0))
    """
    recipe = _learning(learn, outer_lr, inner_steps)
    return Ensemble("crossfit", (NetworkCandidate("tabular", recipe),), CrossFit(folds, repeats))


def _learning(
    learn: str | OuterModel | Sequence[str | OuterModel] | None, outer_lr: float, inner_steps: int
) -> Recipe:
    """Cross-entropy, with what is learned beside it."""
    recipe = Recipe(name="crossfit", loss=losses.cross_entropy)
    chosen = [learn] if isinstance(learn, (str, OuterModel)) else [] if learn is None else list(learn)
    learned = [
        one if isinstance(one, OuterModel) else _LEARNED[one_of("learn", one, _LEARNED)]() for one in chosen
    ]
    if not learned:
        return recipe
    model = learned[0] if len(learned) == 1 else Combined(tuple(learned))
    return replace(
        recipe,
        loss=losses.smoothed_focal if model.provides - {"weight"} else recipe.loss,
        outer_model=model,
        objective=NLL(),
        hypergradient=OneStep(),
        outer_optimizer=Adam(lr=outer_lr, betas=(0.9, 0.99)),
        inner_steps=inner_steps,
    )


# Through one step, less decay looks better for as long as the networks still learn: it may only rise.
_LEARNED: dict[str, Callable[[], OuterModel]] = {
    "decay": lambda: LayerDecay(start=0.3, bounds=(0.3, 10.0)),
    "smoothing": LabelSmoothing,
    "gamma": lambda: Gamma(start=0.0),
    "noise": InputNoise,
    "temperature": Temperature,
    "weights": WeightNet,
}


def ensemble(*, networks: int = 5) -> Ensemble:
    """A deep ensemble: networks that differ only in their random initialisation and the order of the rows."""
    recipe = Recipe(name="ensemble", loss=losses.cross_entropy)
    return Ensemble("ensemble", (NetworkCandidate("tabular", recipe),), SameRows(networks))


DEFAULT_CANDIDATES = (
    "boosting",
    "realmlp",
    "extra-trees",
    "boosting-additive",
    "discriminant",
    "tabm",
    "waves",
    "linear",
)
"""The candidates of `auto` by name, the most useful first."""


def auto(*, folds: int = 5, repeats: int = 2, candidates: Sequence[Any] = DEFAULT_CANDIDATES) -> Ensemble:
    """Several kinds of cross-fitted network and trees, pooled by the log loss of their out-of-fold predictions.

    Args:
        folds: Of the rows; each candidate trains as many models, each on all folds but one.
        repeats: Number of repetitions with different folds, for candidates that have a part in the pool and if time
            allows.
        candidates: What is trained: ``"boosting"``, ``"boosting-additive"``, ``"boosting-small"`` and
            ``"extra-trees"``, trees by scikit-learn; ``"discriminant"``, discriminant analysis; kinds of network, one
            of `models.FOR_TABLES`; any classifier with `fit` and `predict_proba`; or a `Candidate`. The most useful
            first: the last ones are not trained if time runs out.

    Example:
        >>> [candidate.name for candidate in auto(candidates=["boosting", "linear"]).candidates]
        ['boosting', 'linear']
        >>> from sklearn.naive_bayes import GaussianNB
        >>> auto(candidates=[*DEFAULT_CANDIDATES, GaussianNB()]).candidates[-1].name
        'GaussianNB'
    """
    if isinstance(candidates, str) or not isinstance(candidates, Sequence):
        raise ConfigError(
            f"candidates must be a list of names, classifiers or candidates; got {candidates!r}."
        )
    return Ensemble("auto", tuple(map(_candidate, candidates)), CrossFit(folds, repeats))


def _candidate(given: Any) -> Candidate:
    if isinstance(given, Candidate):
        return given
    if not isinstance(given, str):
        return ClassifierCandidate(given)
    one_of("candidate", given, (*_OTHERS, *FOR_TABLES))
    return _OTHERS[given]() if given in _OTHERS else NetworkCandidate(given, crossfit().networks[0].recipe)


_OTHERS: dict[str, Callable[[], Candidate]] = {
    "boosting": Boosting,
    "boosting-additive": lambda: Boosting(
        "boosting-additive", leaves=8, learning_rate=0.1, max_features=0.5, l2=0.0, additive=True
    ),
    "boosting-small": lambda: Boosting(
        "boosting-small", leaves=8, learning_rate=0.1, max_features=0.5, l2=0.0
    ),
    "extra-trees": lambda: ClassifierCandidate(ExtraTreesClassifier(60), "extra-trees", max_rows=10_000),
    "discriminant": Discriminant,
}
