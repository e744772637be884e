"""Prediction sets: the classes a row may be of, with a guaranteed coverage of the true one."""

from selfcal.conformal.classifier import ConformalClassifier
from selfcal.conformal.evaluation import SetCounts, SetScores, evaluate_sets
from selfcal.conformal.guarantee import CoverageGuarantee, rows_for_coverage
from selfcal.conformal.novelty import NoveltyDetector
from selfcal.conformal.scores import APS, LAC, RAPS, ConformityScore

__all__ = [
    "APS",
    "LAC",
    "RAPS",
    "ConformalClassifier",
    "ConformityScore",
    "CoverageGuarantee",
    "NoveltyDetector",
    "SetCounts",
    "SetScores",
    "evaluate_sets",
    "rows_for_coverage",
]
