"""The named methods, each a short composition of parts. Only this module names concrete methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from selfcal import calibrators, losses
from selfcal._checks import boolean, one_of
from selfcal.hypergradients import OneStep
from selfcal.interfaces import Calibrator, Hypergradient, Loss, Objective, OuterModel
from selfcal.losses.module import fixed, name_of
from selfcal.objectives import DECE, NLL, SECE, ConfidenceBCE
from selfcal.optimizers import Adam, NormalizedSGD
from selfcal.outer import (
    Combined,
    Gamma,
    GammaNet,
    InputNoise,
    LabelSmoothing,
    LayerDecay,
    SampleWeights,
    Temperature,
    UnitL2,
    WeightNet,
)
from selfcal.recipe import Candidate, Recipe
from selfcal.sharing import CrossFit, SameRows
from selfcal.transforms import Mixup

__all__ = [
    "Recipe",
    "auto",
    "bo4sc",
    "brier",
    "ce_dece",
    "ce_sece",
    "crossfit",
    "ensemble",
    "entropy",
    "flsd",
    "focal",
    "gamma_net",
    "gamma_net_dece",
    "gamma_net_sece",
    "isoreg",
    "label_smoothing",
    "lp_norm",
    "mbls",
    "mdca",
    "mixup",
    "mmce",
    "named",
    "names",
    "post_hoc",
    "soft_avuc",
    "soft_ece",
    "standard",
    "with_loss",
]


def standard() -> Recipe:
    """Plain training with cross-entropy."""
    return Recipe(name="standard", loss=losses.cross_entropy)


def post_hoc(calibrator: Calibrator, name: str | None = None) -> Recipe:
    """Plain training, then a calibrator fitted on rows kept back from it.

    Example:
        >>> post_hoc(calibrators.TemperatureScaling()).name
        'TemperatureScaling'
    """
    return Recipe(name=name or type(calibrator).__name__, loss=losses.cross_entropy, calibrator=calibrator)


def with_loss(loss: Loss, name: str | None = None, **settings: float | str) -> Recipe:
    """Plain training with another loss.

    Example:
        >>> with_loss(losses.soft_ece, n_bins=10).name
        'soft_ece'
    """
    return Recipe(name=name or name_of(loss), loss=fixed(loss, **settings))


def focal(*, gamma: float = 1.0) -> Recipe:
    """Rows the network knows count less: the loss is ``-(1 - p_y)^γ log p_y``."""
    return with_loss(losses.focal, gamma=gamma)


def flsd() -> Recipe:
    """Focal loss with γ by sample: 5 where the label has a probability under 0.2, else 3."""
    return with_loss(losses.flsd)


def label_smoothing(*, smoothing: float = 0.05) -> Recipe:
    """A share of each label is spread over all classes."""
    return with_loss(losses.label_smoothing, smoothing=smoothing)


def mbls(*, alpha: float = 0.1, margin: float = 10.0) -> Recipe:
    """Logits more than a margin under the largest have a price: margin-based label smoothing."""
    return with_loss(losses.margin_label_smoothing, "mbls", alpha=alpha, margin=margin)


def lp_norm(*, alpha: float = 0.01, p: float = 1.0) -> Recipe:
    """The norm of the logits has a price."""
    return with_loss(losses.lp_norm, alpha=alpha, p=p)


def entropy(*, alpha: float = 0.1) -> Recipe:
    """The entropy of the prediction has a reward."""
    return with_loss(losses.entropy_regularized, "entropy", alpha=alpha)


def brier() -> Recipe:
    """The Brier score instead of cross-entropy."""
    return with_loss(losses.brier)


def mmce(*, alpha: float = 2.0, bandwidth: float = 0.4, weighted: bool = False) -> Recipe:
    """The batch's maximum mean calibration error has a price; `weighted` evens out right and wrong rows."""
    loss = losses.weighted_mmce if boolean("weighted", weighted) else losses.mmce
    return with_loss(loss, "mmce", alpha=alpha, bandwidth=bandwidth)


def mixup(*, alpha: float = 1.0) -> Recipe:
    """Rows are mixed in pairs, and so are their labels."""
    return Recipe(name="mixup", loss=losses.mixed_cross_entropy, transform=Mixup(alpha=alpha))


def mdca(*, alpha: float = 1.0) -> Recipe:
    """The distance between how often classes come in a batch and how often they are said to has a price."""
    return with_loss(losses.mdca, alpha=alpha)


def soft_ece(*, alpha: float = 1.0, n_bins: int = 15, temperature: float = 0.01, norm: str = "l2") -> Recipe:
    """The batch's expected calibration error in soft bins has a price."""
    return with_loss(losses.soft_ece, alpha=alpha, n_bins=n_bins, temperature=temperature, norm=norm)


def soft_avuc(*, alpha: float = 1.0, threshold: float = 0.5, temperature: float = 1.0) -> Recipe:
    """Rows that are right but unsure, or wrong but sure, have a price."""
    return with_loss(losses.soft_avuc, alpha=alpha, threshold=threshold, temperature=temperature)


def isoreg(*, floor: str = "none") -> Recipe:
    """Plain training, then isotonic regression of being right on the confidence."""
    one_of("floor", floor, ("none", "chance"))
    return post_hoc(calibrators.IsotonicConfidence(floor=floor), "isoreg")


def bo4sc(
    *,
    inner_steps: int = 10,
    outer_lr: float = 0.003,
    hypergradient: Hypergradient | None = None,
    beta: float | None = None,
    link: str = "identity",
    normalize: bool = False,
) -> Recipe:
    """Bilevel self-calibration: a weight per training row, learned so that the confidence is honest.

    Args:
        inner_steps: Training steps between two outer steps (T in the paper).
        outer_lr: How far the average weight moves in one outer step (its log odds, with the sigmoid link).
            Small is safe: there are more weights than outer rows, and a large step fits their noise.
        hypergradient: How to differentiate through the training steps: `OneStep` (the default) looks at the
            last one, `Unrolled` at all of them, as the paper does.
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
        >>> crossfit(folds=3).sharing
        CrossFit(folds=3, repeats=1)
        >>> crossfit(learn="decay").outer_model
        LayerDecay(start=0.3, bounds=(0.3, 10.0))
    """
    recipe = Recipe(name="crossfit", loss=losses.cross_entropy, sharing=CrossFit(folds, repeats))
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
    return Recipe(name="ensemble", loss=losses.cross_entropy, sharing=SameRows(networks))


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
        sharing=recipe.sharing,
        portfolio=tuple(Candidate(kind, recipe) for kind in kinds),
    )


def gamma_net_sece(*, bandwidth: float = 0.1, outer_lr: float = 3e-4, every: int = 1) -> Recipe:
    """FL_γ-SECE: focal loss with γ by sample from a γ-Net that minimises the smooth ECE.

    Args:
        bandwidth: Of the kernel of the smooth ECE. The paper has 0.01; on batches of a few hundred rows the
            gradient is then mostly noise.
        outer_lr: Step size of Adam on the γ-Net.
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
    or the outer level stands still for the next thousand steps.
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


_NAMED: dict[str, Callable[[], Recipe]] = {
    "auto": auto,
    "crossfit": crossfit,
    "ensemble": ensemble,
    "standard": standard,
    "isoreg": isoreg,
    "bo4sc": bo4sc,
    "gamma_net_sece": gamma_net_sece,
    "gamma_net_dece": gamma_net_dece,
    "gamma_net": gamma_net,
    "ce_dece": ce_dece,
    "ce_sece": ce_sece,
    "focal": focal,
    "flsd": flsd,
    "label_smoothing": label_smoothing,
    "mbls": mbls,
    "lp_norm": lp_norm,
    "entropy": entropy,
    "brier": brier,
    "mixup": mixup,
    "mmce": mmce,
    "mdca": mdca,
    "soft_ece": soft_ece,
    "soft_avuc": soft_avuc,
}
POST_HOC: dict[str, Callable[[], Calibrator]] = {
    "temperature": calibrators.TemperatureScaling,
    "ensemble_temperature": calibrators.EnsembleTemperatureScaling,
    "attended_temperature": calibrators.AttendedTemperatureScaling,
    "vector": calibrators.VectorScaling,
    "matrix": calibrators.MatrixScaling,
    "dirichlet": calibrators.DirichletCalibration,
    "platt": calibrators.PlattScaling,
    "beta": calibrators.BetaCalibration,
    "isotonic": calibrators.IsotonicCalibration,
    "histogram": calibrators.HistogramBinning,
    "bbq": calibrators.BBQ,
    "scaling_binning": calibrators.ScalingBinning,
    "polynomial": calibrators.PolynomialCalibration,
    "field_aware": calibrators.FieldAwareCalibration,
}
"""The calibrators that can follow any training, by name."""


def names() -> list[str]:
    """The names of all methods.

    Example:
        >>> names()[:3]
        ['auto', 'crossfit', 'ensemble']
    """
    return [*_NAMED, *POST_HOC]


def named(name: str) -> Recipe:
    """The recipe of that name with its default settings.

    Example:
        >>> named("bo4sc").inner_steps
        10
    """
    one_of("method", name, names())
    return post_hoc(POST_HOC[name](), name) if name in POST_HOC else _NAMED[name]()
