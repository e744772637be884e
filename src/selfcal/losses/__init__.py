"""Per-row losses: pure functions ``(logits, y, **hyperparameters) -> (n,) values``; the caller reduces.

Those that measure a whole batch add its term to each row, so that the mean over the rows is right; sample weights
do not enter that term itself. `LossModule` makes an `nn.Module` of any of them.
"""

from selfcal.losses.brier import brier
from selfcal.losses.calibration_error import huber_gap, mdca, soft_ece
from selfcal.losses.cross_entropy import cross_entropy, soft_cross_entropy
from selfcal.losses.focal import bsce_gra, dual_focal, flsd, focal
from selfcal.losses.mixed import mixed_cross_entropy
from selfcal.losses.mmce import mmce, weighted_mmce
from selfcal.losses.module import LossModule
from selfcal.losses.pairwise import cpc
from selfcal.losses.penalties import entropy_regularized, lp_norm
from selfcal.losses.smoothing import label_smoothing, margin_label_smoothing, smoothed_focal
from selfcal.losses.uncertainty import avuc, soft_avuc

__all__ = [
    "LossModule",
    "avuc",
    "brier",
    "bsce_gra",
    "cpc",
    "cross_entropy",
    "dual_focal",
    "entropy_regularized",
    "flsd",
    "focal",
    "huber_gap",
    "label_smoothing",
    "lp_norm",
    "margin_label_smoothing",
    "mdca",
    "mixed_cross_entropy",
    "mmce",
    "smoothed_focal",
    "soft_avuc",
    "soft_cross_entropy",
    "soft_ece",
    "weighted_mmce",
]
