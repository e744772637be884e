"""Predictions for property tests: generic ones, and those with probabilities of exactly 0, 1 and k/n."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st


@st.composite
def predictions(draw, max_rows=30, max_classes=5):
    """Labels and probabilities (float64); about half of the tables hold only multiples of 1/12."""
    n, k = draw(st.integers(1, max_rows)), draw(st.integers(2, max_classes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        probs = rng.multinomial(12, rng.dirichlet(np.ones(k)), size=n) / 12
    else:
        probs = rng.dirichlet(np.full(k, 0.5), size=n)
    return rng.integers(0, k, n), probs


def weights_for(n, seed=0):
    """Whole weights, some of them 0: their sums are exact in any order."""
    weights = np.random.default_rng(seed).integers(0, 4, n).astype(float)
    weights[0] = 2.0
    return weights


def binnings():
    """Every way to bin and to measure a gap."""
    return st.fixed_dictionaries(
        {
            "n_bins": st.integers(1, 20),
            "strategy": st.sampled_from(["uniform", "quantile"]),
            "norm": st.sampled_from(["l1", "l2", "max"]),
            "closed": st.sampled_from(["right", "left"]),
        }
    )
