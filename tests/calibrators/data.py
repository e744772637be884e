"""Logits for tests of calibrators."""

import numpy as np


def overconfident(n=400, n_classes=3, seed=0):
    """Labels from the softmax of logits, and these logits twice too large and tilted towards the first class."""
    rng = np.random.default_rng(seed)
    z = rng.normal(0, 1.5, size=(n, n_classes))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return 2 * z + np.linspace(0.5, 0, n_classes), y


def weights(n, seed=1):
    return np.random.default_rng(seed).random(n)
