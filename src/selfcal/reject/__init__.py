"""The reject option: a classifier that says "I don't know", with a promise about what it does say."""

from selfcal.reject.classifier import ABSTAIN, SelectiveClassifier
from selfcal.reject.rules import Costs, Guarantee
from selfcal.reject.thresholds import risk_bound, rows_needed, threshold_for_coverage, threshold_for_risk

__all__ = [
    "ABSTAIN",
    "Costs",
    "Guarantee",
    "SelectiveClassifier",
    "risk_bound",
    "rows_needed",
    "threshold_for_coverage",
    "threshold_for_risk",
]
