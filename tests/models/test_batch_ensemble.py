import pytest
import torch
from torch import nn
from torch.nn import functional as F

from selfcal import models
from selfcal.errors import ConfigError
from selfcal.models.batch_ensemble import BatchEnsembleLinear, MeanOfMembers, SeparateLinear

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(40) % 4


def moved(module):
    """The module in double precision with every parameter away from its initial value."""
    module = module.double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 4)
    return module


def test_the_layer_by_its_formula():
    layer = moved(BatchEnsembleLinear(5, 3, 2, diverse=True))
    expected = torch.stack(
        [
            ((X * r) @ layer.weight.T) * s + b
            for r, s, b in zip(layer.input_scale, layer.output_scale, layer.bias, strict=True)
        ]
    )
    torch.testing.assert_close(layer(X), expected)
    torch.testing.assert_close(layer(X.expand(5, -1, -1)), expected)


def separate_networks(network):
    """A plain network for each member, with the weights that it has in effect."""
    layers = [part for part in network if isinstance(part, (BatchEnsembleLinear, SeparateLinear))]
    for member in range(len(layers[0].bias)):
        parts = [network[0]]
        for layer in layers:
            shared = isinstance(layer, BatchEnsembleLinear)
            linear = nn.Linear(layer.in_features, layer.out_features).double()
            weight = layer.weight[member] if not shared else (
                layer.output_scale[member][:, None] * layer.weight * layer.input_scale[member]
            )  # fmt: skip
            linear.weight.data.copy_(weight)
            linear.bias.data.copy_(layer.bias[member])
            parts += [linear, nn.ReLU()]
        yield nn.Sequential(*parts[:-1])


def test_the_network_is_a_loop_over_separate_networks():
    network = moved(models.tabm(3, 4, hidden=(7, 6), n_members=5, dropout=0.0))
    network[0].fit(X)
    plain = list(separate_networks(network))
    logits = torch.stack([one(X) for one in plain], dim=1)
    torch.testing.assert_close(network(X), logits, rtol=1e-6, atol=1e-6)
    assert (logits[:, 0] - logits[:, 1]).abs().max() > 0.1
    mean = network.eval()(X)
    torch.testing.assert_close(mean.exp(), logits.softmax(dim=2).mean(dim=1), rtol=1e-6, atol=1e-6)


def test_gradients_are_those_of_separate_networks():
    """The gradient of the common weights is the sum over the members of theirs, times the scales."""
    network = moved(models.tabm(3, 4, hidden=(6,), n_members=3, dropout=0.0))
    network[0].fit(X)
    loss = torch.stack([F.cross_entropy(logits, Y) for logits in network(X).unbind(1)]).sum()
    (found,) = torch.autograd.grad(loss, network[1].weight)
    expected = torch.zeros_like(found)
    for member, plain in enumerate(separate_networks(network)):
        (own,) = torch.autograd.grad(F.cross_entropy(plain(X), Y), plain[1].weight)
        expected += own * network[1].output_scale[member][:, None] * network[1].input_scale[member]
    torch.testing.assert_close(found, expected)


def test_members_differ_at_first_by_the_scales_of_a_diverse_layer_alone():
    x = torch.randn(9, 3)
    same, other = (BatchEnsembleLinear(2, 3, 4, diverse=diverse)(x) for diverse in (False, True))
    torch.testing.assert_close(same[0], same[1])
    assert (other[0] - other[1]).abs().max() > 0.01


def test_dropout_is_the_same_for_all_members():
    network = models.tabm(3, 4, hidden=(50,), dropout=0.5)
    hidden = network[:4](torch.randn(6, 3) + 9)
    active = network[:3](torch.randn(6, 3) + 9) != 0
    dropped = (hidden == 0).all(dim=0)
    assert active.any()
    assert 0 < dropped.float().mean() < 1
    assert torch.equal(network.eval()[:4](X.float()), network[:3](X.float()))


def test_the_mean_of_certain_members_is_finite():
    logits = torch.tensor([[[1e4, -1e4]], [[1e4, -1e4]]])
    assert MeanOfMembers().eval()(logits).isfinite().all()


@pytest.mark.parametrize(
    "settings", [{"n_members": 0}, {"hidden": (0,)}, {"dropout": 1.5}, {"n_members": 2.5}]
)
def test_bad_settings(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        models.tabm(3, 2, **settings)
