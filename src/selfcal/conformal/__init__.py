"""Prediction sets: the classes a row may be of, with a guaranteed coverage of the true one.

scikit-learn is loaded only when a name that needs it is first used, so that sets can be evaluated without it.
"""

from typing import TYPE_CHECKING

from selfcal._support.lazy_names import lazy_names
from selfcal.conformal.evaluation import SetCounts, SetScores, evaluate_sets
from selfcal.conformal.guarantee import CoverageGuarantee, rows_for_coverage
from selfcal.conformal.scores import APS, LAC, RAPS, ConformityScore

if TYPE_CHECKING:
    from selfcal.conformal.classifier import ConformalClassifier
    from selfcal.conformal.novelty import NoveltyDetector

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

__getattr__ = lazy_names(__name__, {"ConformalClassifier": "classifier", "NoveltyDetector": "novelty"})
