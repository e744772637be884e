"""Norms of the gaps between confidence and accuracy, with or without debiasing."""

from __future__ import annotations

import math

import numpy as np

from selfcal._support import checks
from selfcal._support.binning import Bins, Norm, gap_norm
from selfcal._support.checks import Float
from selfcal.errors import ConfigError


def check_norm(norm: str, debias: bool = False) -> None:
    """Raise ConfigError for an unknown norm, or one that cannot be debiased."""
    checks.one_of("norm", norm, ("l1", "l2", "max"))
    if checks.boolean("debias", debias) and norm == "max":
        raise ConfigError(
            "debias=True needs norm 'l1' or 'l2'; got norm='max', whose noise is that of one bin."
        )


def error_of_bins(bins: Bins, norm: Norm, *, debias: bool = False) -> float:
    """Return the norm of the gaps, minus the expected contribution of label noise if `debias`.

    "l2": each squared gap less the unbiased estimate `acc (1 - acc) / (n - 1)` of the variance of its
    accuracy (a bin with n = 1 counts as zero), and zero if that leaves less (Kumar, Liang, Ma, Verified
    Uncertainty Calibration, NeurIPS 2019). "l1": twice the error less its mean when each accuracy is redrawn
    from its normal approximation, a folded normal with variance `acc (1 - acc) / n`, and again not less than
    zero. n is the effective count `(sum w)^2 / sum w^2` of the bin.
    """
    if not debias:
        return float(gap_norm(bins.share, bins.gap, norm))
    variance_per_row = bins.accuracy * (1 - bins.accuracy)
    if norm == "l2":
        several = bins.effective_count > 1 + 1e-9
        variance = variance_per_row / np.where(several, bins.effective_count - 1, 1.0)
        square = float(bins.share @ np.where(several, bins.gap**2 - variance, 0.0))
        return math.sqrt(max(0.0, square))
    deviation = np.sqrt(variance_per_row / np.maximum(bins.effective_count, 1.0))
    return max(0.0, float(bins.share @ (2 * np.abs(bins.gap) - _folded_normal_mean(bins.gap, deviation))))


def _folded_normal_mean(mean: Float, deviation: Float) -> Float:
    from scipy.special import erf

    scaled = mean / np.where(deviation > 0, deviation, 1.0) / np.sqrt(2)
    noisy = deviation * np.sqrt(2 / np.pi) * np.exp(-(scaled**2)) + mean * erf(scaled)
    return np.where(deviation > 0, noisy, np.abs(mean))
