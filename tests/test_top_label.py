import torch

from selfcal._top_label import root


def test_root_is_flat_where_its_slope_would_be_infinite():
    square = torch.tensor([0.0, 1e-40, 1e-30, 1e-13, 4.0], requires_grad=True)
    value = root(square)
    (slope,) = torch.autograd.grad(value.sum(), square, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), square)
    expected = torch.tensor([0.0, 0.0, 0.0, 1e-13**0.5, 2.0])
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    assert slope[:3].tolist() == [0, 0, 0]
    assert bend.isfinite().all()
