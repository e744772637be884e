"""Methods that train one network and predict by several answers, or by a posterior of its last layer."""

from __future__ import annotations

from selfcal import losses
from selfcal.predictive import LastLayerLaplace, Members, MonteCarloDropout
from selfcal.training.recipe import Recipe


def mc_dropout(*, passes: int = 32) -> Recipe:
    """Plain training of a network with dropout, which predicts the mean of several passes with dropout on.

    Example:
        >>> mc_dropout(passes=8).predictive
        MonteCarloDropout(passes=8)
    """
    return Recipe(
        name="mc_dropout",
        loss=losses.cross_entropy,
        predictive=MonteCarloDropout(passes=passes),
        network="tabular",
    )


def laplace(
    *,
    structure: str = "kron",
    predictive: str = "sampled",
    prior_precision: float | None = None,
    samples: int = 32,
) -> Recipe:
    """Plain training, then a Gaussian posterior of the last layer's weights.

    Args:
        structure: ``"full"`` or ``"kron"``, of the Hessian; see `predictive.LastLayerLaplace`.
        predictive: ``"sampled"`` or ``"probit"``.
        prior_precision: By default that of the largest marginal likelihood.
        samples: Number of sampled last layers.

    Example:
        >>> laplace(structure="full").predictive.structure
        'full'
    """
    posterior = LastLayerLaplace(structure, predictive, prior_precision, samples)
    return Recipe(name="laplace", loss=losses.cross_entropy, predictive=posterior)


def batch_ensemble() -> Recipe:
    """Plain training of several members in one network, with most weights in common.

    Example:
        >>> batch_ensemble().network
        'tabm'
    """
    return Recipe(name="batch_ensemble", loss=losses.cross_entropy, predictive=Members(), network="tabm")
