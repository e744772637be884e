"""Predictions with a known truth: labels drawn from a softmax, probabilities sharpened by a factor."""

import numpy as np
from scipy.special import softmax


def drawn(n, *, sharper=1.0, k=4, seed=0):
    """Labels, probabilities (calibrated if `sharper` is 1) and the true posterior."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(scale=2.0, size=(n, k))
    posterior = softmax(logits, axis=1)
    y = (posterior.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, k - 1)
    return y, softmax(sharper * logits, axis=1), posterior


def distance_to_uniform(p_values):
    """The Kolmogorov distance of p-values to the uniform distribution on [0, 1]."""
    p = np.sort(p_values)
    steps = np.arange(len(p) + 1) / len(p)
    return max(np.max(steps[1:] - p), np.max(p - steps[:-1]))
