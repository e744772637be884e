"""Methods whose outer level learns hyperparameters for calibrated confidences."""

from __future__ import annotations

from selfcal import losses
from selfcal.hypergradients import OneStep
from selfcal.objectives import DECE, MMCE, NLL, SECE, ConfidenceBCE
from selfcal.optimizers import Adam, NormalizedSGD
from selfcal.outer import GammaNet, SampleWeights, UnitL2
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
