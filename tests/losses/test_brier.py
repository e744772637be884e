import pytest
import torch

from selfcal import losses, metrics


def test_mean_is_the_brier_score():
    logits, y = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)).double(), torch.arange(50) % 4
    score = metrics.brier_score(y.numpy(), torch.softmax(logits, dim=1).numpy())
    assert losses.brier(logits, y).mean().item() == pytest.approx(score)


def test_from_nought_to_two():
    logits = torch.tensor([[1e4, 0.0], [0.0, 1e4]])
    assert losses.brier(logits, torch.tensor([0, 0])).tolist() == [0.0, 2.0]
