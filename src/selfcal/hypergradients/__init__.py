"""Ways to differentiate the outer loss through the inner steps."""

from selfcal.hypergradients.one_step import OneStep
from selfcal.hypergradients.unrolled import Unrolled

__all__ = ["OneStep", "Unrolled"]
