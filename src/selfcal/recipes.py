"""The named methods, each a short composition of parts. Only this module names concrete methods."""

from __future__ import annotations

from collections.abc import Callable

from selfcal._checks import one_of
from selfcal.calibrators import IsotonicConfidence
from selfcal.hypergradients import OneStep
from selfcal.interfaces import Hypergradient, Recipe
from selfcal.losses import cross_entropy
from selfcal.objectives import ConfidenceBCE
from selfcal.optimizers import NormalizedSGD
from selfcal.outer import SampleWeights

__all__ = ["Recipe", "bo4sc", "isoreg", "named", "standard"]


def standard() -> Recipe:
    """Plain training with cross-entropy."""
    return Recipe(name="standard", loss=cross_entropy)


def isoreg(*, floor: str = "none") -> Recipe:
    """Plain training, then isotonic regression of being right on the confidence."""
    one_of("floor", floor, ("none", "chance"))
    return Recipe(name="isoreg", loss=cross_entropy, calibrator=IsotonicConfidence(floor=floor))


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
        loss=cross_entropy,
        outer_model=SampleWeights(link=link, normalize=normalize),
        objective=ConfidenceBCE(beta=beta),
        hypergradient=hypergradient or OneStep(),
        outer_optimizer=NormalizedSGD(lr=outer_lr),
        inner_steps=inner_steps,
    )


_NAMED: dict[str, Callable[[], Recipe]] = {"standard": standard, "isoreg": isoreg, "bo4sc": bo4sc}


def named(name: str) -> Recipe:
    """The recipe of that name with its default settings.

    Example:
        >>> named("bo4sc").inner_steps
        10
    """
    return _NAMED[one_of("method", name, _NAMED)]()
