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
    penalty = losses.margin_label_smoothing(logits, y, alpha=3.0, margin=1.0) - losses.cross_entropy(
        logits, y
    )
    assert penalty.tolist() == pytest.approx(
        [3.0, 0.0]
    )  # three classes, one of which lies 3 beyond the margin


def test_without_margin_every_distance_is_penalised():
    logits, y = torch.tensor([[2.0, 1.0]]), torch.tensor([0])
    penalty = losses.margin_label_smoothing(logits, y, alpha=1.0, margin=0.0) - losses.cross_entropy(
        logits, y
    )
    assert penalty.item() == pytest.approx(0.5)


class TestSmoothedFocal:
    LOGITS = torch.randn(20, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = torch.arange(20) % 5

    @pytest.mark.parametrize("gamma", [0.0, 0.5, 3.0])
    def test_without_smoothing_it_is_the_focal_loss(self, gamma):
        torch.testing.assert_close(
            losses.smoothed_focal(self.LOGITS, self.Y, gamma=gamma),
            losses.focal(self.LOGITS, self.Y, gamma=gamma),
        )

    @pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
    def test_without_gamma_it_is_label_smoothing_at_the_temperature(self, smoothing):
        torch.testing.assert_close(
            losses.smoothed_focal(self.LOGITS, self.Y, smoothing=smoothing, temperature=2.0),
            losses.label_smoothing(self.LOGITS / 2, self.Y, smoothing=smoothing),
        )

    def test_all_three_by_hand(self):
        """p = (4/5, 1/5) at temperature 2; target (0.9, 0.1); γ = 1."""
        logits = torch.tensor([[2.0, 0.0]]) * torch.tensor(4.0).log()
        value = losses.smoothed_focal(logits, torch.tensor([0]), gamma=1.0, smoothing=0.2, temperature=2.0)
        p = torch.tensor([0.8, 0.2])
        expected = -(torch.tensor([0.9, 0.1]) * (1 - p) * p.log()).sum()
        assert value.item() == pytest.approx(expected.item())

    def test_the_temperature_can_be_learned_row_by_row(self):
        temperature = torch.linspace(0.5, 2, 20, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda t: losses.smoothed_focal(self.LOGITS, self.Y, gamma=0.5, temperature=t), temperature
        )
        with pytest.raises(ConfigError, match="temperature must be a number in"):
            losses.smoothed_focal(self.LOGITS, self.Y, temperature=0.0)
