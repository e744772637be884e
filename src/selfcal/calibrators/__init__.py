"""Post-hoc calibrators: scikit-learn style objects that map logits to calibrated probabilities."""

from __future__ import annotations

from selfcal.calibrators._base import LogitCalibrator
from selfcal.calibrators.attended_temperature import AttendedTemperatureScaling
from selfcal.calibrators.bbq import BBQ
from selfcal.calibrators.beta import BetaCalibration
from selfcal.calibrators.dirichlet import DirichletCalibration
from selfcal.calibrators.ensemble_temperature import EnsembleTemperatureScaling
from selfcal.calibrators.field_aware import FieldAwareCalibration
from selfcal.calibrators.histogram import HistogramBinning
from selfcal.calibrators.isotonic import IsotonicCalibration
from selfcal.calibrators.isotonic_confidence import IsotonicConfidence
from selfcal.calibrators.matrix import MatrixScaling
from selfcal.calibrators.platt import PlattScaling
from selfcal.calibrators.polynomial import PolynomialCalibration
from selfcal.calibrators.scaling_binning import ScalingBinning
from selfcal.calibrators.smart import SMART
from selfcal.calibrators.structured_matrix import StructuredMatrixScaling
from selfcal.calibrators.temperature import TemperatureScaling
from selfcal.calibrators.vector import VectorScaling

__all__ = [
    "BBQ",
    "SMART",
    "AttendedTemperatureScaling",
    "BetaCalibration",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "FieldAwareCalibration",
    "HistogramBinning",
    "IsotonicCalibration",
    "IsotonicConfidence",
    "MatrixScaling",
    "PlattScaling",
    "PolynomialCalibration",
    "ScalingBinning",
    "StructuredMatrixScaling",
    "TemperatureScaling",
    "VectorScaling",
]

POST_HOC: dict[str, type[LogitCalibrator]] = {
    "temperature": TemperatureScaling,
    "ensemble_temperature": EnsembleTemperatureScaling,
    "attended_temperature": AttendedTemperatureScaling,
    "smart": SMART,
    "vector": VectorScaling,
    "matrix": MatrixScaling,
    "structured_matrix": StructuredMatrixScaling,
    "dirichlet": DirichletCalibration,
    "platt": PlattScaling,
    "beta": BetaCalibration,
    "isotonic": IsotonicCalibration,
    "histogram": HistogramBinning,
    "bbq": BBQ,
    "scaling_binning": ScalingBinning,
    "polynomial": PolynomialCalibration,
    "field_aware": FieldAwareCalibration,
}
"""The calibrators that can follow any training, by the name of the method."""
