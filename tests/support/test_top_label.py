import pytest
import torch

from selfcal._support.top_label import bin_memberships, kernel_norm, known_labels, root
from selfcal.errors import DataError


def test_root_is_flat_where_its_slope_would_be_infinite():
    square = torch.tensor([0.0, 1e-40, 1e-30, 1e-13, 4.0], requires_grad=True)
    value = root(square)
    (slope,) = torch.autograd.grad(value.sum(), square, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), square)
    expected = torch.tensor([0.0, 0.0, 0.0, 1e-13**0.5, 2.0])
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    assert slope[:3].tolist() == [0, 0, 0]
    assert bend.isfinite().all()


def test_known_labels_come_back_and_the_first_unknown_one_is_named():
    logits = torch.zeros(4, 3)
    y = torch.tensor([0, 1, 2, 2])
    assert known_labels(logits, y) is y
    with pytest.raises(DataError, match=r"from 0 to 2, .* row 2 of the batch is -1 \(2 such rows\)"):
        known_labels(logits, torch.tensor([0, 1, -1, 3]))


def test_bin_memberships_by_hand():
    """A confidence in the middle of the first of two bins is 1/2 from the other's."""
    members = bin_memberships(torch.tensor([0.25, 0.5]), 2, 0.25)
    other = torch.sigmoid(torch.tensor(-1.0)).item()
    torch.testing.assert_close(members, torch.tensor([[1 - other, other], [0.5, 0.5]]))


def test_kernel_norm_over_all_pairs():
    generator = torch.Generator().manual_seed(0)
    residuals, confidence = torch.randn(2, 9, generator=generator, dtype=torch.float64)
    total = sum(
        residuals[i] * residuals[j] * torch.exp(-abs(confidence[i] - confidence[j]) / 0.3)
        for i in range(9)
        for j in range(9)
    )
    torch.testing.assert_close(kernel_norm(residuals, confidence, 0.3), total.sqrt())
