import numpy as np
import pytest
import torch

from selfcal import losses, metrics
from selfcal.errors import ConfigError
from tests.losses.batches import batch_term, rows


def test_mdca_class_by_class():
    logits, y = rows(200)
    probs = torch.softmax(logits, dim=1).numpy()
    gaps = [abs(probs[:, k].mean() - np.mean(y.numpy() == k)) for k in range(4)]
    assert batch_term(losses.mdca, logits, y) == pytest.approx(np.mean(gaps))


@pytest.mark.parametrize(
    ("delta", "expected"),
    [(0.5, 0.3**2 / 2), (0.1, 0.1 * (0.3 - 0.05))],
    ids=["quadratic", "linear"],
)
def test_huber_gap_by_hand(delta, expected):
    """Confidences of .9 and .7, one of the two rows right: .8 - .5."""
    logits = torch.tensor([[0.9, 0.1], [0.3, 0.7]]).double().log()
    assert batch_term(losses.huber_gap, logits, torch.tensor([0, 0]), delta=delta) == pytest.approx(expected)


@pytest.mark.parametrize("n_bins", [7, 15])
def test_sharp_bins_give_the_expected_calibration_error(n_bins):
    """Unsure rows are right and sure ones wrong: gaps of one sign would add up to the same in any bins."""
    logits, _ = rows(200)
    confidence, choice = torch.softmax(logits, dim=1).max(dim=1)
    y = torch.where(confidence < 0.7, choice, (choice + 1) % 4)
    probs = torch.softmax(logits, dim=1).numpy()
    hard = metrics.expected_calibration_error(y.numpy(), probs, n_bins=n_bins)
    assert batch_term(
        losses.soft_ece, logits, y, n_bins=n_bins, norm="l1", temperature=1e-9
    ) == pytest.approx(hard)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_soft_bins_by_loops(norm):
    logits, y = rows(30)
    probs = torch.softmax(logits, dim=1).numpy()
    c, a = probs.max(axis=1), probs.argmax(axis=1) == y.numpy()
    centres = (np.arange(5) + 0.5) / 5
    members = np.array([[np.exp(-((ci - m) ** 2) / 0.02) for m in centres] for ci in c])
    members /= members.sum(axis=1, keepdims=True)
    power, total = int(norm[1]), 0.0
    for j in range(5):
        mass = members[:, j].sum()
        gap = (members[:, j] @ a - members[:, j] @ c) / mass
        total += mass / 30 * abs(gap) ** power
    value = batch_term(losses.soft_ece, logits, y, n_bins=5, temperature=0.02, norm=norm)
    assert value == pytest.approx(total ** (1 / power))


@pytest.mark.parametrize(("name", "value"), [("n_bins", 0), ("temperature", 0.0), ("norm", "l3")])
def test_settings_out_of_range(name, value):
    with pytest.raises(ConfigError, match=name):
        losses.soft_ece(*rows(4), **{name: value})


def test_the_bend_of_the_huber_loss_must_be_positive():
    with pytest.raises(ConfigError, match="delta"):
        losses.huber_gap(*rows(4), delta=0.0)
