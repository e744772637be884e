import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import log_loss

from selfcal import objectives
from selfcal.errors import ConfigError
from selfcal.objectives import ConfidenceBCE, smooth_max
from tests.objectives.batches import value


@given(n_classes=st.integers(2, 400), seed=st.integers(0, 2**16), spread=st.floats(0, 50, allow_nan=False))
def test_default_sharpness_keeps_the_gap_under_a_hundredth(n_classes, seed, spread):
    logits = spread * torch.randn(
        20, n_classes, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    probs = logits.softmax(dim=1)
    gap = probs.max(dim=1).values - smooth_max(probs)
    assert gap.min() >= -1e-12
    assert gap.max() < 0.01


@pytest.mark.parametrize("n_classes", [2, 5, 100, 1000])
def test_the_gap_bound_is_attained(n_classes):
    """All but one class equal is the worst case; the stated bound is its exact gap."""
    top = torch.linspace(1 / n_classes, 1, 20001, dtype=torch.float64)
    rest = (1 - top) / (n_classes - 1)
    probs = torch.cat([top[:, None], rest[:, None].expand(-1, n_classes - 1)], dim=1)
    worst = (top - smooth_max(probs)).max().item()
    assert worst == pytest.approx(objectives.confidence_bce.MAX_GAP, rel=1e-3)


def test_equals_the_log_loss_of_being_right():
    generator = np.random.default_rng(0)
    logits, y = 3 * generator.normal(size=(200, 4)), generator.integers(0, 4, 200)
    probs = softmax(logits, axis=1)
    expected = log_loss(probs.argmax(1) == y, probs.max(axis=1))
    got = value(ConfidenceBCE(beta=1e5), torch.from_numpy(logits), torch.from_numpy(y))
    assert got.item() == pytest.approx(expected, rel=1e-6)


def test_bad_beta():
    with pytest.raises(ConfigError, match="beta must be"):
        ConfidenceBCE(beta=-1)
