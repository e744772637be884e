"""Several models that predict as one: folds, training side by side, selection, pooling and distillation."""

from selfcal.ensembles.boosting import Boosting
from selfcal.ensembles.classifiers import ClassifierCandidate
from selfcal.ensembles.discriminant import Discriminant
from selfcal.ensembles.ensemble import Candidate, Ensemble, NetworkCandidate
from selfcal.ensembles.folds import CrossFit, SameRows, Split, Splitter

__all__ = [
    "Boosting",
    "Candidate",
    "ClassifierCandidate",
    "CrossFit",
    "Discriminant",
    "Ensemble",
    "NetworkCandidate",
    "SameRows",
    "Split",
    "Splitter",
]
