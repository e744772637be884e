"""What the outer level can own: parameters that shape the training loss."""

from selfcal.outer.sample_weights import SampleWeights

__all__ = ["SampleWeights"]
