"""Hypergradients: derivatives of the outer loss through the inner steps."""

from selfcal.hypergradients.conjugate_gradient import ConjugateGradient
from selfcal.hypergradients.finite_difference import FiniteDifference
from selfcal.hypergradients.neumann import Neumann
from selfcal.hypergradients.nystrom import Nystrom
from selfcal.hypergradients.one_step import OneStep
from selfcal.hypergradients.unrolled import Unrolled

__all__ = ["ConjugateGradient", "FiniteDifference", "Neumann", "Nystrom", "OneStep", "Unrolled"]
