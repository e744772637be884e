"""The named methods, each a short composition of parts. Only this module names concrete methods."""

from __future__ import annotations

from collections.abc import Callable

from selfcal import calibrators
from selfcal._checks import one_of
from selfcal.hypergradients import OneStep
from selfcal.interfaces import Calibrator, Hypergradient, Recipe
from selfcal.losses import cross_entropy
from selfcal.objectives import ConfidenceBCE
from selfcal.optimizers import NormalizedSGD
from selfcal.outer import SampleWeights

__all__ = ["Recipe", "bo4sc", "isoreg", "named", "names", "post_hoc", "standard"]


def standard() -> Recipe:
    """Plain training with cross-entropy."""
    return Recipe(name="standard", loss=cross_entropy)


def post_hoc(calibrator: Calibrator, name: str | None = None) -> Recipe:
    """Plain training, then a calibrator fitted on rows kept back from it.

    Example:
        >>> post_hoc(calibrators.TemperatureScaling()).name
        'TemperatureScaling'
    """
    return Recipe(name=name or type(calibrator).__name__, loss=cross_entropy, calibrator=calibrator)


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
        loss=cross_entropy,
        outer_model=SampleWeights(link=link, normalize=normalize),
        objective=ConfidenceBCE(beta=beta),
        hypergradient=hypergradient or OneStep(),
        outer_optimizer=NormalizedSGD(lr=outer_lr),
        inner_steps=inner_steps,
    )


_NAMED: dict[str, Callable[[], Recipe]] = {"standard": standard, "isoreg": isoreg, "bo4sc": bo4sc}
_POST_HOC: dict[str, Callable[[], Calibrator]] = {
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


def names() -> list[str]:
    """The names of all methods.

    Example:
        >>> names()[:3]
        ['standard', 'isoreg', 'bo4sc']
    """
    return [*_NAMED, *_POST_HOC]


def named(name: str) -> Recipe:
    """The recipe of that name with its default settings.

    Example:
        >>> named("bo4sc").inner_steps
        10
    """
    one_of("method", name, names())
    return post_hoc(_POST_HOC[name](), name) if name in _POST_HOC else _NAMED[name]()
