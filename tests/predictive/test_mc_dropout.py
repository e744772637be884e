"""Dropout with stored masks, beside a plain loop over the passes."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from selfcal import CalibratedModel, models
from selfcal.errors import ConfigError, DataError, ModelFormatError
from selfcal.models.spec import Builder, spec_of
from selfcal.predictive import MonteCarloDropout
from selfcal.training.problem import forward_in_blocks

X = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def two_layers():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 8),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(8, 6),
        nn.Tanh(),
        nn.Dropout(0.25),
        nn.Linear(6, 2),
    ).double()


def test_parity_with_a_plain_loop():
    network = two_layers()
    module = MonteCarloDropout(passes=20).fit(network, (X, Y))
    first, second = (masks.kept for masks in module.masks)
    assert first.shape == (20, 8)
    assert second.shape == (20, 6)
    expected = []
    with torch.no_grad():
        for one, two in zip(first, second, strict=True):
            hidden = F.relu(network[0](X)) * one / 0.5
            hidden = torch.tanh(network[3](hidden)) * two / 0.75
            expected.append(network[6](hidden))
        found = module.member_logits(X)
        torch.testing.assert_close(found, torch.stack(expected), rtol=0, atol=1e-12)
        probs = torch.stack(expected).softmax(dim=2).mean(dim=0)
        torch.testing.assert_close(module(X).softmax(dim=1), probs, rtol=0, atol=1e-12)


def test_the_passes_are_those_of_dropout_itself():
    """Mean and spread of many passes, beside passes of the network in training mode."""
    network, n = two_layers(), 4000
    module = MonteCarloDropout(passes=n).fit(network, (X, Y))
    torch.manual_seed(1)
    with torch.no_grad():
        ours = module.member_logits(X[:1])[:, 0]
        theirs = network.train()(X[:1].expand(n, -1))  # other masks for each row
    for one, other in ((ours, theirs), ((ours - ours.mean(0)) ** 2, (theirs - theirs.mean(0)) ** 2)):
        error = ((one.var(dim=0) + other.var(dim=0)) / n).sqrt()
        assert ((one.mean(dim=0) - other.mean(dim=0)).abs() < 4.5 * error).all()


def test_masks_keep_the_stated_fraction():
    wide = nn.Sequential(nn.Dropout(0.3), nn.Linear(500, 2))
    (masks,) = MonteCarloDropout(passes=40).fit(wide, (torch.zeros(4, 500), torch.zeros(4).long())).masks
    assert float(masks.kept.double().mean()) == pytest.approx(0.7, abs=5 * math.sqrt(0.21 / 20000))


def test_whole_channels_are_dropped_where_the_layer_does_so():
    images = nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.Dropout2d(0.5), nn.Flatten(), nn.Dropout(0.1), nn.Linear(6 * 16, 3)
    )
    x = torch.randn(5, 1, 6, 6)
    module = MonteCarloDropout(passes=3).fit(images, (x, torch.zeros(5).long()))
    assert [tuple(masks.kept.shape) for masks in module.masks] == [(3, 6, 1, 1), (3, 96)]
    assert module(x).shape == (5, 3)


def test_several_inputs_and_an_own_module_in_a_calibrated_model():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.head = nn.Dropout(0.5), nn.Linear(5, 2)

        def forward(self, a, b):
            return self.head(self.drop(torch.cat([a, b], dim=1)))

    torch.manual_seed(0)
    rows = (torch.randn(60, 2), torch.randn(60, 3))
    module = MonteCarloDropout(passes=8).fit(Two(), (rows, torch.arange(60) % 2))
    logits = forward_in_blocks(module, rows)
    assert logits.shape == (60, 2)
    noisy = (logits[:, 0] - logits[:, 1] + 0.1 * torch.randn(60) < 0).long()
    model = CalibratedModel(module).fit(rows, noisy.numpy())
    assert model.predict_proba(rows).shape == (60, 2)


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Linear(3, 2), "with dropout; this Linear has none"),
        (nn.Sequential(nn.Dropout(0.0), nn.Linear(3, 2)), "has none"),
        (nn.Sequential(nn.AlphaDropout(0.5), nn.Linear(3, 2)), "drop a fraction below 1"),
        (nn.Sequential(nn.Dropout(1.0), nn.Linear(3, 2)), "drop a fraction below 1"),
        (models.tabm(3, 2, hidden=(4,)), "several members"),
    ],
)
def test_networks_without_usable_dropout(network, message):
    with pytest.raises(ConfigError, match=message):
        MonteCarloDropout().fit(network, (X.float(), Y))


def test_one_layer_for_two_places():
    drop = nn.Dropout(0.5)
    with pytest.raises(ConfigError, match="called once in a pass, with the rows first; '0' is not"):
        MonteCarloDropout().fit(nn.Sequential(drop, nn.Linear(3, 3), drop, nn.Linear(3, 2)).double(), (X, Y))


def test_rows_of_another_length():
    class Sequences(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop, self.head = nn.Dropout(0.5), nn.Linear(1, 2)

        def forward(self, x):
            return self.head(self.drop(x).mean(dim=1, keepdim=True))

    module = MonteCarloDropout().fit(Sequences(), (torch.zeros(4, 7), torch.zeros(4).long()))
    with pytest.raises(DataError, match=r"masks were drawn for: dropout of \(7,\); got \(9,\)"):
        module(torch.zeros(4, 9))


@pytest.mark.parametrize("passes", [0, 1, 2.5])
def test_passes_out_of_range(passes):
    with pytest.raises(ConfigError, match="passes must be"):
        MonteCarloDropout(passes=passes)


@pytest.mark.parametrize("wrong", [{"passes": 0}, {"passes": True}, {"shapes": {}}, {"shapes": {"2": [-1]}}])
def test_damaged_specs(wrong):
    network = models.mlp(3, 2, hidden=(4,), dropout=0.5)
    spec = spec_of(MonteCarloDropout(passes=2).fit(network, (X.float(), Y)))
    with pytest.raises(ModelFormatError, match="positive whole numbers"):
        Builder(3, 2)({"dropout_passes": spec["dropout_passes"] | wrong})
