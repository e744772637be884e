"""What the outer level minimises on data the inner level does not see."""

from selfcal.objectives.confidence_bce import ConfidenceBCE, smooth_max

__all__ = ["ConfidenceBCE", "smooth_max"]
