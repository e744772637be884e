import pytest
import torch
from torch.nn import functional as F

from selfcal import losses
from selfcal.errors import ConfigError


@pytest.mark.parametrize("smoothing", [0.0, 0.05, 0.3, 1.0])
def test_label_smoothing_is_torchs(smoothing):
    logits, y = torch.randn(20, 5, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 5
    torch.testing.assert_close(
        losses.label_smoothing(logits, y, smoothing=smoothing),
        F.cross_entropy(logits, y, reduction="none", label_smoothing=smoothing),
    )


def test_smoothing_is_a_share():
    with pytest.raises(ConfigError, match=r"smoothing must be a number in \[0.0, 1.0\]; got 1.5"):
        losses.label_smoothing(torch.zeros(1, 2), torch.tensor([0]), smoothing=1.5)


def test_margin_by_hand():
    logits, y = torch.tensor([[5.0, 4.5, 1.0], [0.0, 0.5, 0.9]]), torch.tensor([1, 0])
    price = losses.margin_label_smoothing(logits, y, alpha=3.0, margin=1.0) - losses.cross_entropy(logits, y)
    assert price.tolist() == pytest.approx([3.0, 0.0])  # three classes, one of which lies 3 beyond the margin


def test_no_margin_is_a_price_on_every_distance():
    logits, y = torch.tensor([[2.0, 1.0]]), torch.tensor([0])
    price = losses.margin_label_smoothing(logits, y, alpha=1.0, margin=0.0) - losses.cross_entropy(logits, y)
    assert price.item() == pytest.approx(0.5)
