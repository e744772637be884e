"""Methods that train several networks, which answer as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from selfcal import losses
from selfcal._support.checks import one_of
from selfcal.ensembles.folds import CrossFit, SameRows
from selfcal.hypergradients import OneStep
from selfcal.objectives import NLL
from selfcal.optimizers import Adam
from selfcal.outer import Combined, Gamma, InputNoise, LabelSmoothing, LayerDecay, Temperature, WeightNet
from selfcal.training.interfaces import OuterModel
from selfcal.training.recipe import Candidate, Recipe


def crossfit(
    *,
    folds: int = 5,
    repeats: int = 1,
    learn: str | Sequence[str] | None = None,
    outer_lr: float = 0.02,
    inner_steps: int = 5,
) -> Recipe:
    """As many networks as folds, each kept away from one; they answer together.

    Every row trains most of the networks and is honestly judged by one: no row is lost to validation.

    Args:
        folds: How many.
        repeats: How often, each time with other folds: more networks, and a better mean of them, for more time.
        learn: What is learned beside the networks from the rows held out, one name or several: ``"decay"`` (the
            weight decay of each layer), ``"smoothing"`` (of each class's label), ``"gamma"`` (of the focal loss),
            ``"noise"`` (on the features, in training), ``"temperature"`` (in training) or ``"weights"`` (of rows, by
            what the networks say about them). The networks share it.
        outer_lr: Step size of Adam on what is learned.
        inner_steps: Training steps between two of its steps.

    Example:
        >>> crossfit(folds=3).splitter
        CrossFit(folds=3, repeats=1)
        >>> crossfit(learn="decay").outer_model
        LayerDecay(start=0.3, bounds=(0.3, 10.0))
    """
    recipe = Recipe(name="crossfit", loss=losses.cross_entropy, splitter=CrossFit(folds, repeats))
    chosen = [learn] if isinstance(learn, str) else [] if learn is None else list(learn)
    learned = [_LEARNED[one_of("learn", name, _LEARNED)]() for name in chosen]
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


def ensemble(*, networks: int = 5) -> Recipe:
    """A deep ensemble: networks that differ in their random start alone, and answer together."""
    return Recipe(name="ensemble", loss=losses.cross_entropy, splitter=SameRows(networks))


def auto(*, folds: int = 5, repeats: int = 1) -> Recipe:
    """Several kinds of cross-fitted network, raced by what they say about rows they have not seen.

    Args:
        folds: Of the rows; each kind trains as many networks, and each is kept away from one.
        repeats: How often, each time with other folds.

    Example:
        >>> [candidate.network for candidate in auto().portfolio]
        ['mlp', 'linear', 'additive', 'tabular', 'periodic', 'waves']
    """
    kinds = ("mlp", "linear", "additive", "tabular", "periodic", "waves")
    recipe = crossfit(folds=folds, repeats=repeats)
    return Recipe(
        name="auto",
        loss=recipe.loss,
        splitter=recipe.splitter,
        portfolio=tuple(Candidate(kind, recipe) for kind in kinds),
    )
