"""Methods whose outer level learns hyperparameters for calibrated confidences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from selfcal import losses
from selfcal._support.checks import one_of
from selfcal.errors import ConfigError
from selfcal.hypergradients import OneStep
from selfcal.objectives import DECE, MMCE, NLL, SECE, ConfidenceBCE
from selfcal.optimizers import Adam, NormalizedSGD, Rate, StepDecay
from selfcal.outer import (
    ClassWeights,
    Gamma,
    GammaNet,
    InputNoise,
    LabelSmoothing,
    LayerDecay,
    MixupStrength,
    SampleWeights,
    StartAt,
    UnitL2,
    WeightNet,
)
from selfcal.training.interfaces import Hypergradient, Loss, Objective, OuterModel
from selfcal.training.recipe import Recipe


def bo4sc(
    *,
    inner_steps: int = 10,
    outer_lr: float = 0.003,
    hypergradient: Hypergradient | None = None,
    beta: float | None = None,
    link: str = "identity",
    normalize: bool = False,
) -> Recipe:
    """Bilevel self-calibration: a weight per training row, learned so that the confidence is calibrated.

    Args:
        inner_steps: Training steps between two outer steps (T in the paper).
        outer_lr: How far the average weight moves in one outer step (its log odds, with the sigmoid link).
            Small is safe: there are more weights than outer rows, and a large step fits their noise.
        hypergradient: How to differentiate through the training steps: `OneStep` (the default) goes through the
            last one, `Unrolled` through all of them, as the paper does.
        beta: Sharpness of the smooth maximum; by default it depends on the number of classes.
        link: ``"identity"`` projects the weights to [0, 1]; ``"sigmoid"`` learns their log odds.
        normalize: Divide the training loss by the mean weight instead of leaving it as it is.

    Example:
        >>> bo4sc(inner_steps=5).objective
        ConfidenceBCE(beta=None)

    Reference:
        Sanguin, Pakrashi, Viola and Rinaldi, Exploring the potential of bilevel optimization for
        calibrating neural networks, 2024.
    """
    return Recipe(
        name="bo4sc",
        loss=losses.cross_entropy,
        outer_model=SampleWeights(link=link, normalize=normalize),
        objective=ConfidenceBCE(beta=beta),
        hypergradient=hypergradient or OneStep(),
        outer_optimizer=NormalizedSGD(lr=outer_lr),
        inner_steps=inner_steps,
    )


def gamma_net_sece(*, bandwidth: float = 0.1, outer_lr: float = 3e-4, every: int = 1) -> Recipe:
    """FL_γ-SECE: focal loss with γ by sample from a γ-Net that minimises the smooth ECE.

    Args:
        bandwidth: Of the kernel of the smooth ECE. The paper has 0.01; on batches of a few hundred rows the
            gradient is then mostly noise.
        outer_lr: Step size of Adam on the γ-Net. With thousands of outer steps, 1e-5: larger ones make γ wander.
        every: Training steps for each outer step.

    Example:
        >>> gamma_net_sece().outer_model
        GammaNet(directions=None, temperature=0.01, layer=None, seed=0)

    Reference:
        Towards unbiased calibration using meta-regularization (anonymous submission).
    """
    return _meta(
        "gamma_net_sece", losses.focal, GammaNet(), SECE(bandwidth=bandwidth), outer_lr=outer_lr, every=every
    )


def gamma_net_dece(*, n_bins: int = 15, outer_lr: float = 3e-4, every: int = 1) -> Recipe:
    """FL_γ-DECE: as `gamma_net_sece`, with the differentiable binned ECE."""
    return _meta(
        "gamma_net_dece", losses.focal, GammaNet(), DECE(n_bins=n_bins), outer_lr=outer_lr, every=every
    )


def gamma_net_mmce(*, bandwidth: float = 0.4, outer_lr: float = 1e-5, every: int = 1) -> Recipe:
    """FL_γ-MMCE: as `gamma_net_sece`, with the maximum mean calibration error and small steps.

    Of the calibration errors, this one has the clearest gradient on a single batch. With it, γ-Net can take steps so
    small that γ follows the confidence of the network in the course of training instead of wandering; it takes some
    thousands of them.

    Args:
        bandwidth: Of the kernel of the calibration error.
        outer_lr: Step size of Adam on the γ-Net.
        every: Training steps for each outer step.
    """
    return _meta(
        "gamma_net_mmce", losses.focal, GammaNet(), MMCE(bandwidth=bandwidth), outer_lr=outer_lr, every=every
    )


def gamma_net(*, outer_lr: float = 3e-4, every: int = 1) -> Recipe:
    """FL_γ: as `gamma_net_sece`, with the log loss."""
    return _meta("gamma_net", losses.focal, GammaNet(), NLL(), outer_lr=outer_lr, every=every)


def ce_dece(*, n_bins: int = 15, outer_lr: float = 1e-4, every: int = 1) -> Recipe:
    """CE-DECE: an L2 coefficient for each unit of the head, learned so that log loss and binned ECE fall."""
    objective = NLL() + DECE(n_bins=n_bins)
    return _meta("ce_dece", losses.cross_entropy, UnitL2(), objective, outer_lr=outer_lr, every=every)


def ce_sece(*, bandwidth: float = 0.1, outer_lr: float = 1e-4, every: int = 1) -> Recipe:
    """CE-SECE: as `ce_dece`, with the smooth ECE."""
    objective = NLL() + SECE(bandwidth=bandwidth)
    return _meta("ce_sece", losses.cross_entropy, UnitL2(), objective, outer_lr=outer_lr, every=every)


def one_run(learn: str, *, outer_lr: Rate | None = None, inner_steps: int = 10) -> Recipe:
    """Learn one hyperparameter in the training run that uses it, instead of training once for each of its values.

    Args:
        learn: ``"gamma"`` (of the focal loss), ``"smoothing"`` (of each class's label), ``"decay"`` (the weight decay
            of each layer), ``"noise"`` (on the features), ``"mixup"`` (its strength), ``"classes"`` (their weights)
            or ``"weights"`` (of rows, by the network's predictions for them).
        outer_lr: Step size of Adam on it; by default one that suits its scale.
        inner_steps: Training steps between two of its steps.

    Example:
        >>> one_run(learn="smoothing").outer_model
        LabelSmoothing(start=0.05, n_classes=None, shared=True)
    """
    part = _LEARNED[one_of("learn", learn, _LEARNED)]
    return Recipe(
        name="one_run",
        loss=part.loss,
        outer_model=part.model,
        objective=NLL(),
        hypergradient=OneStep(),
        outer_optimizer=Adam(lr=part.rate if outer_lr is None else outer_lr, betas=(0.9, 0.99)),
        inner_steps=inner_steps,
    )


@dataclass(frozen=True)
class _Learned:
    """What `one_run` learns, with its loss and a step size on its scale."""

    model: OuterModel
    rate: Rate
    loss: Loss = losses.cross_entropy


_LEARNED = {
    "gamma": _Learned(Gamma(start=1.0), 0.15, losses.focal),
    "smoothing": _Learned(
        LabelSmoothing(start=0.05, shared=True),
        StepDecay(0.015, after=(5,), factor=0.2),
        losses.label_smoothing,
    ),
    "decay": _Learned(LayerDecay(start=1.0, bounds=(1e-3, 30.0)), 0.07),
    "noise": _Learned(InputNoise(start=0.2, bounds=(0.01, 2.0)), 0.07),
    "mixup": _Learned(MixupStrength(start=0.3), 0.03, losses.mixed_cross_entropy),
    "classes": _Learned(ClassWeights(), StepDecay(0.3, after=(5,), factor=1 / 3)),
    "weights": _Learned(WeightNet(), 0.03),
}


def restarted(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe without its outer level, with the hyperparameters that it has learned: they stay.

    A network that is trained once more with them has no past with others, and needs no rows for the outer level.

    Args:
        recipe: The recipe with an outer level.
        values: The outer parameters that it has learned: `TrainingResult.outer_params`, or `outer_params_`.

    Example:
        >>> restarted(one_run(learn="gamma"), {"gamma": 2.0}).outer_model
        StartAt(model=Gamma(start=1.0), values=(('gamma', 2.0),))
    """
    if recipe.outer_model is None:
        raise ConfigError(f"The recipe must have an outer level; got {recipe!r}. Use it as it is.")
    return replace(
        recipe,
        outer_model=StartAt(recipe.outer_model, values),
        objective=None,
        hypergradient=None,
        outer_optimizer=None,
    )


def _meta(
    name: str, loss: Loss, outer_model: OuterModel, objective: Objective, *, outer_lr: float, every: int
) -> Recipe:
    """An outer step after every few batches, through the last training step, by Adam.

    Hypergradients shrink with the inner step size, often tenfold at once: Adam's memory of their size must be short,
    or the outer level hardly moves for the next thousand steps.
    """
    return Recipe(
        name=name,
        loss=loss,
        outer_model=outer_model,
        objective=objective,
        hypergradient=OneStep(),
        outer_optimizer=Adam(lr=outer_lr, betas=(0.9, 0.99)),
        inner_steps=every,
    )
