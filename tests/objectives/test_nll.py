import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

from selfcal.objectives import NLL
from tests.objectives.batches import rows, value


@pytest.mark.parametrize("weighted", [False, True])
def test_is_the_log_loss(weighted):
    logits, y = rows()
    weight = np.random.default_rng(0).uniform(0, 3, len(y)) if weighted else np.ones(len(y))
    expected = log_loss(y.numpy(), torch.softmax(logits, dim=1).numpy(), sample_weight=weight)
    got = value(NLL(), logits, y, torch.from_numpy(weight) if weighted else None)
    assert got.item() == pytest.approx(expected)


def test_by_hand():
    logits = torch.tensor([[np.log(3.0), 0.0], [np.log(3.0), 0.0]])
    got = value(NLL(), logits, torch.tensor([0, 1]), torch.tensor([3.0, 1.0])).item()
    assert got == pytest.approx(-(3 * np.log(0.75) + np.log(0.25)) / 4)
