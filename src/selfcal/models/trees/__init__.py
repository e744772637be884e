"""Ensembles of decision trees that scikit-learn fitted, as modules that take the same rows as networks."""

from selfcal.models.trees.columns import TreeColumns
from selfcal.models.trees.module import Trees

__all__ = ["TreeColumns", "Trees"]
