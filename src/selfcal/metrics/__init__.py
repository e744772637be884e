"""Evaluation of probabilities: proper scores, calibration errors and selective prediction, in float64."""

from selfcal._support.binning import Bins
from selfcal.metrics.area_intervals import area_interval
from selfcal.metrics.bootstrap import bootstrap_interval, calibration_error_interval
from selfcal.metrics.calibration import (
    NoiseFloor,
    adaptive_calibration_error,
    confidence_calibration_error,
    ece_noise_floor,
    expected_calibration_error,
    maximum_calibration_error,
    posterior_calibration_error,
    reliability_curve,
)
from selfcal.metrics.classwise import (
    binary_calibration_error,
    classwise_calibration_error,
    top_label_conditional_calibration_error,
)
from selfcal.metrics.comparison import Comparison, compare
from selfcal.metrics.confidence import overconfidence, sharpness, underconfidence
from selfcal.metrics.decomposition import Decomposition, brier_decomposition, log_loss_decomposition
from selfcal.metrics.discrimination import roc_auc, roc_auc_interval
from selfcal.metrics.intervals import (
    Interval,
    clopper_pearson_interval,
    mean_interval,
    score_interval,
    wilson_interval,
)
from selfcal.metrics.kernel import kde_calibration_error, mmce, sece, smooth_calibration_error
from selfcal.metrics.multiclass import kernel_calibration_test
from selfcal.metrics.scores import accuracy, brier_score, log_loss
from selfcal.metrics.selective import (
    RiskCoverageCurve,
    augrc,
    aurc,
    confidence_risk_coverage_curve,
    coverage_at_risk,
    excess_aurc,
    risk_at_coverage,
    risk_coverage_curve,
)
from selfcal.metrics.significance import (
    CalibrationTest,
    consistency_test,
    kolmogorov_smirnov_test,
    kuiper_test,
    spiegelhalter_test,
)
from selfcal.metrics.streaming import CalibrationAccumulator, RunningCalibration
from selfcal.metrics.summary import CalibrationReport, calibration_report
from selfcal.metrics.sweep import BinSweep, calibration_error_by_bins

__all__ = [
    "BinSweep",
    "Bins",
    "CalibrationAccumulator",
    "CalibrationReport",
    "CalibrationTest",
    "Comparison",
    "Decomposition",
    "Interval",
    "NoiseFloor",
    "RiskCoverageCurve",
    "RunningCalibration",
    "accuracy",
    "adaptive_calibration_error",
    "area_interval",
    "augrc",
    "aurc",
    "binary_calibration_error",
    "bootstrap_interval",
    "brier_decomposition",
    "brier_score",
    "calibration_error_by_bins",
    "calibration_error_interval",
    "calibration_report",
    "classwise_calibration_error",
    "clopper_pearson_interval",
    "compare",
    "confidence_calibration_error",
    "confidence_risk_coverage_curve",
    "consistency_test",
    "coverage_at_risk",
    "ece_noise_floor",
    "excess_aurc",
    "expected_calibration_error",
    "kde_calibration_error",
    "kernel_calibration_test",
    "kolmogorov_smirnov_test",
    "kuiper_test",
    "log_loss",
    "log_loss_decomposition",
    "maximum_calibration_error",
    "mean_interval",
    "mmce",
    "overconfidence",
    "posterior_calibration_error",
    "reliability_curve",
    "risk_at_coverage",
    "risk_coverage_curve",
    "roc_auc",
    "roc_auc_interval",
    "score_interval",
    "sece",
    "sharpness",
    "smooth_calibration_error",
    "spiegelhalter_test",
    "top_label_conditional_calibration_error",
    "underconfidence",
    "wilson_interval",
]
