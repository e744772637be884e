"""Several models that predict as one: folds, training side by side, selection, mixing and distillation."""

from selfcal.ensembles.ensemble import Candidate, Ensemble
from selfcal.ensembles.folds import CrossFit, SameRows, Split, Splitter

__all__ = ["Candidate", "CrossFit", "Ensemble", "SameRows", "Split", "Splitter"]
