import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from scipy.stats import entropy

from selfcal import losses
from selfcal.errors import ConfigError
from tests.losses.batches import batch_term, rows


def by_loops(logits, y, unsure, counts):
    """The four sums, row by row."""
    probs = torch.softmax(logits, dim=1).numpy()
    sums = dict.fromkeys(("AU", "AC", "IU", "IC"), 0.0)
    for p, label in zip(probs, y.numpy(), strict=True):
        h, right = entropy(p), p.argmax() == label
        u, size = unsure(h / np.log(len(p))), counts(p.max(), right)
        sums["AU" if right else "IU"] += size * u * np.tanh(h)
        sums["AC" if right else "IC"] += size * (1 - u) * (1 - np.tanh(h))
    return np.log(1 + (sums["AU"] + sums["IC"]) / (sums["AC"] + sums["IU"]))


@pytest.mark.parametrize("threshold", [0.2, 0.5])
def test_avuc_by_loops(threshold):
    expected = by_loops(*rows(), lambda h: h > threshold, lambda c, right: c if right else 1 - c)
    assert batch_term(losses.avuc, *rows(), threshold=threshold) == pytest.approx(expected)


@pytest.mark.parametrize(("threshold", "temperature"), [(0.5, 1.0), (0.2, 0.1)])
def test_soft_avuc_by_loops(threshold, temperature):
    expected = by_loops(*rows(), lambda h: expit((logit(h) - logit(threshold)) / temperature), lambda *_: 1.0)
    value = batch_term(losses.soft_avuc, *rows(), threshold=threshold, temperature=temperature)
    assert value == pytest.approx(expected)


def test_a_sharp_threshold_is_a_hard_one():
    expected = by_loops(*rows(), lambda h: h > 0.3, lambda *_: 1.0)
    assert batch_term(losses.soft_avuc, *rows(), threshold=0.3, temperature=1e-6) == pytest.approx(expected)


@pytest.mark.parametrize("loss", [losses.avuc, losses.soft_avuc], ids=["avuc", "soft_avuc"])
def test_the_threshold_is_a_share(loss):
    with pytest.raises(ConfigError, match="threshold must be a number in"):
        loss(*rows(), threshold=1.5)
