"""Scaling-binning: temperature scaling whose confidences are replaced by their means in bins."""

from __future__ import annotations

from selfcal._support import checks
from selfcal._support.binning import Chunk, bin_chunks, bin_index
from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import LogitCalibrator
from selfcal.calibrators.isotonic_confidence import with_confidence
from selfcal.calibrators.temperature import TemperatureScaling


class ScalingBinning(LogitCalibrator):
    """Fit a temperature, then replace the scaled confidence by its mean in the bin.

    The confidence ``max softmax(z / T)`` is put into bins of equal weight, and each bin predicts the mean of the
    scaled confidence over its rows, not of the correctness: such a mean varies less than a frequency. As there are
    only `n_bins` different confidences, their calibration error can be measured without bias from binning. This is
    the top-label form; the rest is divided between the other classes as in temperature scaling. The paper fits, bins
    and averages on three parts of the data; here all rows are used for all three. With two
    classes the choice never changes; with more it may where the first two classes nearly tie.

    Args:
        n_bins: Maximum number of bins; equal confidences are in one.

    Attributes:
        temperature_: The temperature of the first step.
        edges_: Edges of the bins of the scaled confidence.
        values_: The confidence of each bin.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[s, 0.0] for s in (1, 2, 3, 6, 7, 8)])
        >>> calibrator = ScalingBinning(n_bins=2).fit(logits, [1, 0, 0, 0, 0, 1])
        >>> calibrator.confidence(logits).round(3)
        array([0.558, 0.558, 0.558, 0.693, 0.693, 0.693])

    Reference:
        Kumar, Liang and Ma, Verified uncertainty calibration, 2019.
    """

    scaling_: TemperatureScaling
    temperature_: float
    edges_: Float
    values_: Float

    def __init__(self, n_bins: int = 15) -> None:
        self.n_bins = n_bins

    def _check_settings(self) -> None:
        checks.positive_int("n_bins", self.n_bins)

    def _fit(self, z: Float, codes: Int, weight: Float) -> None:
        self.scaling_ = TemperatureScaling().fit(z, codes, weight)
        self.temperature_ = self.scaling_.temperature_
        rows = Chunk(self.scaling_.confidence(z), z.argmax(axis=1) == codes, weight)
        bins = bin_chunks([rows], n_bins=self.n_bins, strategy="quantile")
        self.edges_, self.values_ = bins.edges, bins.confidence

    def _map(self, z: Float) -> Float:
        probs = self.scaling_.predict_proba(z)
        confidence = self.values_[bin_index(probs.max(axis=1), self.edges_)]
        return with_confidence(probs, z.argmax(axis=1), confidence)
