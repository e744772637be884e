"""Histogram binning: the frequency of the class in each bin of its probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from selfcal._support import checks
from selfcal._support.binning import Chunk, Strategy, bin_chunks, bin_index
from selfcal._support.checks import Float
from selfcal.calibrators._base import SMALLEST
from selfcal.calibrators._one_vs_rest import Curve, OneVsRest

Numbers = TypeVar("Numbers", float, Float)


class HistogramBinning(OneVsRest):
    """Replace the probability of a class by its observed frequency in the bin of that probability.

    With bins of the softmax probability of a class, of total weight n of which m is of the class, the
    calibrated probability is ``(m + 1/k) / (n + 1)``: one row of weight one, divided equally between the k
    classes, is added to every bin, so that no probability is zero. An empty bin predicts its midpoint. Each class has
    its bins, and the rows are normalised; two classes use those of the second. Rows in the same bins
    tie, so the choice of class may change.

    Args:
        n_bins: Number of bins (at most, for "quantile").
        strategy: "quantile" for bins of equal weight, "uniform" for bins of equal width.
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        curves_: For each class its `edges` and `values`.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, -4.0], [0.0, -3.0], [0.0, 3.0], [0.0, 4.0]])
        >>> calibrator = HistogramBinning(n_bins=2, safeguard=False).fit(logits, [0, 1, 1, 1])
        >>> calibrator.predict_proba([[0.0, -2.0], [0.0, 9.0]]).round(3)
        array([[0.167, 0.833],
               [0.167, 0.833]])
        >>> calibrator.curves_[0].values.round(3)
        array([0.5  , 0.833])

    Reference:
        Zadrozny and Elkan, Obtaining calibrated probability estimates from decision trees and naive Bayesian
        classifiers, 2001.
    """

    curves_: tuple[Steps, ...]

    def __init__(self, n_bins: int = 15, strategy: Strategy = "quantile", *, safeguard: bool = True) -> None:
        super().__init__(safeguard=safeguard)
        self.n_bins = n_bins
        self.strategy = strategy

    def _check_settings(self) -> None:
        super()._check_settings()
        checks.positive_int("n_bins", self.n_bins)
        checks.one_of("strategy", self.strategy, ("quantile", "uniform"))

    def _fit_binary(self, log_odds: Float, is_class: NDArray[np.bool_], weight: Float) -> Curve:
        rows = Chunk(probability(log_odds), is_class, weight)
        bins = bin_chunks([rows], n_bins=self.n_bins, strategy=self.strategy)
        seen = smoothed(bins.accuracy, bins.weight, self.n_classes_)
        return Steps(bins.edges, np.where(bins.weight > 0, seen, bins.accuracy))


@dataclass(frozen=True, eq=False)
class Steps:
    """A curve that is constant in each bin of the probability."""

    edges: Float
    values: Float

    def __call__(self, log_odds: Float) -> Float:
        return self.values[bin_index(probability(log_odds), self.edges)]


def probability(log_odds: Float) -> Float:
    """Return the probability for these log odds; above zero, so that impossible rows have a separate bin."""
    return np.maximum(expit(log_odds), SMALLEST)


def smoothed(frequency: Numbers, weight: Any, n_classes: int) -> Numbers:
    """Return the frequency after one more row that is divided equally between the classes."""
    return (frequency * weight + 1 / n_classes) / (weight + 1)
