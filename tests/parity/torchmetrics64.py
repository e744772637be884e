"""torchmetrics in float64: its public functions round to float32 first, the binning inside them need not."""

import numpy as np
import torch
from torchmetrics.functional.classification.calibration_error import _ce_compute


def binned_error(correct, confidence, n_bins=15, norm="l1", debias=False):
    correct = torch.from_numpy(np.asarray(correct, dtype=np.float64))
    return float(_ce_compute(torch.from_numpy(confidence), correct, n_bins, norm=norm, debias=debias))


def top_label_error(y, probs, n_bins=15, norm="l1", debias=False):
    return binned_error(probs.argmax(axis=1) == y, probs.max(axis=1), n_bins, norm, debias)
