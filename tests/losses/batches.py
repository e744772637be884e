"""Rows for the losses of whole batches, and what such a loss adds to cross-entropy."""

import numpy as np
import torch

from selfcal import losses


def rows(n=60, k=4):
    return torch.randn(n, k, generator=torch.Generator().manual_seed(3)).double() * 2, torch.arange(n) % k


def batch_term(loss, logits, y, **settings):
    """The batch's part of the loss, which must be the same in each row."""
    values = (loss(logits, y, alpha=1.0, **settings) - losses.cross_entropy(logits, y)).numpy()
    np.testing.assert_allclose(values, values[0], atol=1e-12)
    return values[0]
