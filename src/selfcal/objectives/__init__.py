"""Objectives that the outer level minimises, on data the inner level does not see.

Objectives can be added and multiplied by weights: ``NLL() + 0.5 * DECE()``. All count the rows by their sample
weights.
"""

from selfcal.objectives.calibration_error import DECE, SECE, soft_accuracy
from selfcal.objectives.confidence_bce import ConfidenceBCE, smooth_max
from selfcal.objectives.mmce import MMCE
from selfcal.objectives.nll import NLL
from selfcal.training.interfaces import WeightedSum

__all__ = ["DECE", "MMCE", "NLL", "SECE", "ConfidenceBCE", "WeightedSum", "smooth_max", "soft_accuracy"]
