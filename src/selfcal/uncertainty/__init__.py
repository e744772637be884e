"""Uncertainty scores: how doubtful a prediction is, from probabilities, logits, several answers or distances."""

from selfcal.uncertainty._base import (
    FeatureScore,
    LogitScore,
    MemberScore,
    ProbabilityScore,
    UncertaintyScore,
)
from selfcal.uncertainty.logits import Energy, MaximumLogit, PNormLogit
from selfcal.uncertainty.mahalanobis import Mahalanobis
from selfcal.uncertainty.members import Disagreement, MutualInformation, VariationRatio
from selfcal.uncertainty.neighbors import KNearestNeighbors, TrustScore
from selfcal.uncertainty.openmax import OpenMax
from selfcal.uncertainty.probabilities import Entropy, Margin, MaximumProbability
from selfcal.uncertainty.reconstruction import Reconstruction

__all__ = [
    "Disagreement",
    "Energy",
    "Entropy",
    "FeatureScore",
    "KNearestNeighbors",
    "LogitScore",
    "Mahalanobis",
    "Margin",
    "MaximumLogit",
    "MaximumProbability",
    "MemberScore",
    "MutualInformation",
    "OpenMax",
    "PNormLogit",
    "ProbabilityScore",
    "Reconstruction",
    "TrustScore",
    "UncertaintyScore",
    "VariationRatio",
]
