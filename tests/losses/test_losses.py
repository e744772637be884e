"""Contracts of every per-row loss."""

import pytest
import torch

from selfcal import losses

LOSSES = [getattr(losses, name) for name in losses.__all__]


@pytest.fixture(params=LOSSES, ids=lambda loss: loss.__name__)
def loss(request):
    return request.param


def rows(n=6, k=3):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, k, dtype=torch.float64, generator=generator), torch.arange(n) % k


def test_one_value_per_row_in_the_rows_order(loss):
    logits, y = rows()
    values, order = loss(logits, y), torch.tensor([3, 1, 5, 0, 2, 4])
    assert values.shape == (6,)
    torch.testing.assert_close(loss(logits[order], y[order]), values[order])


def test_gradient(loss):
    logits, y = rows()
    assert torch.autograd.gradcheck(lambda z: loss(z, y), logits.requires_grad_())


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_extreme_logits_stay_finite(loss, size):
    logits = (size * torch.eye(3)).requires_grad_()
    values = loss(logits, torch.tensor([0, 1, 2]))
    (grad,) = torch.autograd.grad(values.sum(), logits)
    assert values.isfinite().all()
    assert grad.isfinite().all()


def test_cross_entropy_by_hand():
    logits = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    value = losses.cross_entropy(logits, torch.tensor([0]))
    assert value.item() == pytest.approx(1.3132616875182228)
