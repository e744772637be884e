"""Outer models: hyperparameters of the loss, the network's input or the update, learned at the outer level."""

from selfcal.outer.class_weights import ClassWeights
from selfcal.outer.combined import Combined
from selfcal.outer.gamma import Gamma
from selfcal.outer.gamma_net import GammaNet
from selfcal.outer.input_noise import InputNoise
from selfcal.outer.label_smoothing import LabelSmoothing
from selfcal.outer.layer_decay import LayerDecay
from selfcal.outer.mixup_strength import MixupStrength
from selfcal.outer.sample_weights import SampleWeights
from selfcal.outer.start_at import StartAt
from selfcal.outer.temperature import Temperature
from selfcal.outer.unit_l2 import UnitL2
from selfcal.outer.weight_net import WeightNet

__all__ = [
    "ClassWeights",
    "Combined",
    "Gamma",
    "GammaNet",
    "InputNoise",
    "LabelSmoothing",
    "LayerDecay",
    "MixupStrength",
    "SampleWeights",
    "StartAt",
    "Temperature",
    "UnitL2",
    "WeightNet",
]
