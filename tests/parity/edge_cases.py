"""Data on which the peers differ from each other; `correct` and `confidence` unless said otherwise."""

import numpy as np


def at_the_edges():
    """Most confidences are exactly k / 8."""
    rng = np.random.default_rng(0)
    confidence = np.concatenate([rng.integers(4, 8, 300) / 8, rng.uniform(0.5, 1, 100)])
    return rng.random(400) < 0.75, confidence


def half_of_them_one():
    """Half of the confidences are exactly 1 (too sure), the others in the same last tenth (not sure enough)."""
    rng = np.random.default_rng(0)
    confidence = np.where(rng.random(400) < 0.5, 1.0, rng.uniform(0.9, 1.0, 400))
    return rng.random(400) < np.where(confidence == 1, 0.9, 1.0), confidence


def two_columns(correct, confidence):
    """The same as labels and probabilities of two classes, for confidences of at least a half."""
    return np.where(correct, 0, 1), np.column_stack([confidence, 1 - confidence])


def many_confident_rows(n):
    """Float32 labels and probabilities of a calibrated and very sure model."""
    rng = np.random.default_rng(0)
    top = rng.random(n, dtype=np.float32)
    top *= np.float32(-0.01)
    top += np.float32(1)
    return (rng.random(n, dtype=np.float32) > top).astype(np.int64), np.stack([top, 1 - top], axis=1)


def a_little_above_one():
    """Labels and float32 probabilities, one of which is 1.0000001."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(5, 0.3), size=500).astype(np.float32)
    probs[0] = [np.nextafter(np.float32(1), np.float32(2)), 0, 0, 0, 0]
    return rng.integers(0, 5, 500), probs


def float32_logits(true_temperature=1.8):
    """Labels and float32 logits that need a temperature near the true one."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, size=(4000, 10))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return y, (true_temperature * logits).astype(np.float32)


def a_class_nobody_has():
    """Labels 0..3 and probabilities of five classes."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(5, 0.5), size=400)
    return probs[:, :4].argmax(axis=1), probs
