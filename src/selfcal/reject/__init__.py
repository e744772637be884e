"""The reject option: a classifier that abstains where it is not confident, with a guarantee for its predictions."""

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
