"""Rows with probabilities that are wrong in a known way, continuous or in steps."""

import numpy as np


def draw(n, rng, *, classes=4, steps=None):
    """Probabilities that are too sharp, and labels; with `steps`, probabilities are multiples of 1 / steps."""
    true = rng.dirichlet(np.full(classes, 0.7) * np.arange(1, classes + 1), n)
    y = (true.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=classes - 1)
    probs = true**1.5
    probs /= probs.sum(axis=1, keepdims=True)
    if steps is not None:
        last = np.floor(probs * steps)
        probs = last / steps
        probs[:, 0] += 1 - probs.sum(axis=1)
    return probs, y
