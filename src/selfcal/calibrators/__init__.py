"""Post-hoc calibrators: scikit-learn style objects that map logits to calibrated probabilities."""

from selfcal.calibrators.isotonic_confidence import IsotonicConfidence

__all__ = ["IsotonicConfidence"]
