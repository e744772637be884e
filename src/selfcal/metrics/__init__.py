"""Judging probabilities: proper scores and calibration errors, in float64 whatever comes in."""

from selfcal._binning import Bins
from selfcal.metrics.calibration import (
    NoiseFloor,
    confidence_calibration_error,
    ece_noise_floor,
    expected_calibration_error,
    posterior_calibration_error,
    reliability_curve,
)
from selfcal.metrics.intervals import wilson_interval
from selfcal.metrics.scores import accuracy, brier_score, log_loss

__all__ = [
    "Bins",
    "NoiseFloor",
    "accuracy",
    "brier_score",
    "confidence_calibration_error",
    "ece_noise_floor",
    "expected_calibration_error",
    "log_loss",
    "posterior_calibration_error",
    "reliability_curve",
    "wilson_interval",
]
