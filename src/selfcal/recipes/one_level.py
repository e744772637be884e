"""Methods without an outer level: a loss, a change of the batches or the data, or a calibrator after training."""

from __future__ import annotations

from selfcal import calibrators, losses
from selfcal._support.checks import boolean, one_of
from selfcal.losses.module import fixed, name_of
from selfcal.predictive import FeatureClipping
from selfcal.selections import DynamicPruning
from selfcal.training.interfaces import Calibrator, Loss
from selfcal.training.recipe import Recipe
from selfcal.transforms import Mixup


def standard() -> Recipe:
    """Plain training with cross-entropy."""
    return Recipe(name="standard", loss=losses.cross_entropy)


def post_hoc(calibrator: Calibrator, name: str | None = None) -> Recipe:
    """Plain training, then a calibrator fitted on held-out rows.

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
    """Rows that are predicted well have less weight: the loss is ``-(1 - p_y)^γ log p_y``."""
    return with_loss(losses.focal, gamma=gamma)


def flsd() -> Recipe:
    """Focal loss with γ by sample: 5 where the label has a probability under 0.2, else 3."""
    return with_loss(losses.flsd)


def dual_focal(*, gamma: float = 5.0) -> Recipe:
    """Focal loss that also asks for a distance between the label and the next class."""
    return with_loss(losses.dual_focal, gamma=gamma)


def bsce_gra(*, gamma: float = 2.0) -> Recipe:
    """Gradients of cross-entropy scaled by the distance between prediction and label, to the power γ."""
    return with_loss(losses.bsce_gra, gamma=gamma)


def label_smoothing(*, smoothing: float = 0.05) -> Recipe:
    """A fraction of each label is spread over all classes."""
    return with_loss(losses.label_smoothing, smoothing=smoothing)


def mbls(*, alpha: float = 0.1, margin: float = 10.0) -> Recipe:
    """Margin-based label smoothing: a penalty on logits more than a margin below the largest."""
    return with_loss(losses.margin_label_smoothing, "mbls", alpha=alpha, margin=margin)


def lp_norm(*, alpha: float = 0.01, p: float = 1.0) -> Recipe:
    """Cross-entropy with a penalty on the norm of the logits."""
    return with_loss(losses.lp_norm, alpha=alpha, p=p)


def entropy(*, alpha: float = 0.1) -> Recipe:
    """Cross-entropy minus a multiple of the entropy of the prediction."""
    return with_loss(losses.entropy_regularized, "entropy", alpha=alpha)


def brier() -> Recipe:
    """The Brier score instead of cross-entropy."""
    return with_loss(losses.brier)


def cpc(*, alpha: float = 1.0, beta: float = 1.0) -> Recipe:
    """Each pair of classes as a two-class problem: the label against others, and others against one another."""
    return with_loss(losses.cpc, alpha=alpha, beta=beta)


def mmce(*, alpha: float = 2.0, bandwidth: float = 0.4, weighted: bool = False) -> Recipe:
    """A penalty on the batch's maximum mean calibration error; `weighted` balances right and wrong rows."""
    loss = losses.weighted_mmce if boolean("weighted", weighted) else losses.mmce
    return with_loss(loss, "mmce", alpha=alpha, bandwidth=bandwidth)


def mixup(*, alpha: float = 1.0) -> Recipe:
    """Rows are mixed in pairs, and so are their labels."""
    return Recipe(name="mixup", loss=losses.mixed_cross_entropy, transform=Mixup(alpha=alpha))


def mdca(*, alpha: float = 1.0) -> Recipe:
    """A penalty on the difference between the frequency of each class in a batch and its mean probability."""
    return with_loss(losses.mdca, alpha=alpha)


def dynamic_pruning(
    *,
    alpha: float = 10.0,
    delta: float = 0.05,
    fraction: float = 0.1,
    every: int = 5,
    momentum: float = 0.3,
    least: float = 0.5,
) -> Recipe:
    """A penalty on the gap between the batch's confidence and accuracy; the least confident rows leave the data."""
    return Recipe(
        name="dynamic_pruning",
        loss=fixed(losses.huber_gap, alpha=alpha, delta=delta),
        selection=DynamicPruning(fraction=fraction, every=every, momentum=momentum, least=least),
    )


def soft_ece(*, alpha: float = 1.0, n_bins: int = 15, temperature: float = 0.01, norm: str = "l2") -> Recipe:
    """A penalty on the batch's expected calibration error in soft bins."""
    return with_loss(losses.soft_ece, alpha=alpha, n_bins=n_bins, temperature=temperature, norm=norm)


def soft_avuc(*, alpha: float = 1.0, threshold: float = 0.5, temperature: float = 1.0) -> Recipe:
    """A penalty on rows that are right but uncertain, or wrong but certain."""
    return with_loss(losses.soft_avuc, alpha=alpha, threshold=threshold, temperature=temperature)


def feature_clipping() -> Recipe:
    """Plain training, then a threshold at which the network's features are clipped, fitted on held-out rows."""
    return Recipe(name="feature_clipping", loss=losses.cross_entropy, predictive=FeatureClipping())


def isoreg(*, floor: str = "none") -> Recipe:
    """Plain training, then isotonic regression of correctness on confidence."""
    one_of("floor", floor, ("none", "chance"))
    return post_hoc(calibrators.IsotonicConfidence(floor=floor), "isoreg")
