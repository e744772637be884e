"""How a trained network predicts, if not by its own logits: by several answers, or a posterior of its last layer."""

from selfcal.predictive.clipping import FeatureClipping
from selfcal.predictive.laplace import LastLayerLaplace
from selfcal.predictive.mc_dropout import MonteCarloDropout
from selfcal.predictive.members import Members

__all__ = ["FeatureClipping", "LastLayerLaplace", "Members", "MonteCarloDropout"]
