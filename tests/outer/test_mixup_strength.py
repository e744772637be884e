"""The mixing of rows, of their labels, and of none at a strength of zero."""

import torch

from selfcal import Batch, Output, outer
from selfcal.training.types import Sizes

X, Y = torch.randn(6, 2, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])


def mixed(strength):
    model = outer.MixupStrength(start=strength)
    params = model.init(Sizes(n_train=6), torch.zeros(()))
    return model.network_input(params, X), model(params, Output(torch.zeros(6, 3)), Batch(X, Y))


def test_labels_are_mixed_as_the_rows_are():
    x, hyper = mixed(0.8)
    share = hyper["share"]
    assert float(share.min()) > 1 - 0.8 / 2
    assert float(share.max()) < 1
    for i in range(6):
        torch.testing.assert_close(x[i], share[i] * X[i] + (1 - share[i]) * X[i - 1])
        assert hyper["other"][i] == Y[i - 1]


def test_a_strength_of_zero_leaves_the_rows_as_they_are():
    x, hyper = mixed(0.0)
    assert torch.equal(x, X)
    assert torch.equal(hyper["share"], torch.ones(6))
    assert torch.equal(
        outer.MixupStrength().project({"strength": torch.tensor(-0.1)})["strength"], torch.zeros(())
    )
