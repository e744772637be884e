"""What the outer level can own: parameters that shape the training loss."""

from selfcal.outer.gamma import Gamma
from selfcal.outer.gamma_net import GammaNet
from selfcal.outer.label_smoothing import LabelSmoothing
from selfcal.outer.sample_weights import SampleWeights
from selfcal.outer.unit_l2 import UnitL2

__all__ = ["Gamma", "GammaNet", "LabelSmoothing", "SampleWeights", "UnitL2"]
