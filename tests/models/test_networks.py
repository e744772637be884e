import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call

from selfcal import models
from selfcal._support.random_streams import Dropout
from selfcal.ensembles import settings
from selfcal.errors import ConfigError
from selfcal.models import (
    FOR_TABLES,
    columns_to_encode,
    for_table,
    mlp,
    origin,
    resnet8,
    resnet18,
    resnet50,
    tabular,
    vgg16,
)
from selfcal.models.encodings import Periodic, PiecewiseLinear

IMAGE_NETWORKS = pytest.mark.parametrize("network", [resnet8, resnet18, resnet50, vgg16])


def test_shapes_and_dropout():
    module = mlp(3, 4, hidden=(8, 6), dropout=0.2)
    assert module(torch.zeros(2, 3)).shape == (2, 4)
    assert [type(layer) for layer in module] == [nn.Linear, nn.ReLU, Dropout] * 2 + [nn.Linear]


def test_no_hidden_layer_is_logistic_regression():
    assert len(mlp(3, 2, hidden=())) == 1


@pytest.mark.parametrize("settings", [{"hidden": (0,)}, {"hidden": (2.5,)}, {"dropout": 1.5}])
def test_bad_settings(settings):
    with pytest.raises(ConfigError):
        mlp(3, 2, **settings)


ROWS = torch.cat([torch.randn(40, 2), (torch.arange(40) % 2)[:, None]], dim=1)
"""Two columns of numbers, and one of two values."""


WIDTHS = {
    "mlp": [64, 64],
    "tabular": [128, 128],
    "periodic": [128, 128],
    "waves": [64],
    "tabm": [64, 64],
    "realmlp": [128, 128],
}


class TestForTables:
    @pytest.mark.parametrize("kind", FOR_TABLES)
    @pytest.mark.parametrize("hidden", [None, (5,), ()])
    def test_every_kind_gives_logits_and_knows_its_origin(self, kind, hidden):
        module = for_table(kind, ROWS, 4, hidden=hidden).eval()
        assert module(ROWS).shape == (40, 4)
        assert origin(module) is not None
        widths = [part.out_features for part in module if hasattr(part, "out_features")]
        expected = WIDTHS.get(kind, []) if hidden is None else list(hidden)
        assert widths == [*([] if kind in ("linear", "additive") else expected), 4]

    @pytest.mark.parametrize("kind", FOR_TABLES)
    def test_rows_with_nothing_to_encode(self, kind):
        assert for_table(kind, torch.zeros(10, 2), 3)(torch.ones(5, 2)).isfinite().all()

    @pytest.mark.parametrize(
        ("kind", "encoding"),
        [("additive", PiecewiseLinear), ("tabular", PiecewiseLinear), ("periodic", Periodic)],
    )
    def test_columns_of_two_values_are_not_encoded(self, kind, encoding):
        first = for_table(kind, ROWS, 4)[0]
        assert type(first) is encoding
        assert first.columns == columns_to_encode(ROWS) == [0, 1]

    def test_every_kind_has_an_optimizer_of_its_own(self):
        assert settings.DEFAULT_OPTIMIZERS.keys() == set(FOR_TABLES)

    def test_bins_are_placed_before_training(self):
        assert for_table("tabular", ROWS, 4)[0].lower.isfinite().any()

    def test_additive_network_is_additive(self):
        module = for_table("additive", ROWS, 4)
        a, b = torch.tensor([[0.3, -1.0, 0.0]]), torch.tensor([[-0.7, 0.4, 1.0]])
        mixed = torch.stack([a, b, torch.where(torch.tensor([True, False, False]), a, b),
                             torch.where(torch.tensor([True, False, False]), b, a)])  # fmt: skip
        logits = module(mixed[:, 0])
        torch.testing.assert_close(logits[0] + logits[1], logits[2] + logits[3])

    def test_bad_settings(self):
        with pytest.raises(ConfigError, match=r"network must be one of .*Did you mean 'tabular'"):
            for_table("tabula", ROWS, 4)
        with pytest.raises(ConfigError, match="encoding must be one of"):
            tabular(3, 4, encoding="bins")


@pytest.mark.parametrize(
    ("network", "known"),
    [(resnet18, 11_173_962), (resnet50, 23_520_842), (vgg16, 14_728_266)],
    ids=["resnet18", "resnet50", "vgg16"],
)
def test_parameter_counts_at_full_width(network, known):
    """Table 7 of H.-L. Sun et al., NeuralFuse, NeurIPS 2024, column CIFAR-10."""
    with torch.device("meta"):
        assert sum(p.numel() for p in network().parameters()) == known


@IMAGE_NETWORKS
@pytest.mark.parametrize("size", [28, 29, 32, 33, 64])
@pytest.mark.parametrize("channels", [1, 3])
def test_any_image_size_and_one_linear_head(network, size, channels):
    module = network(7, width=4, channels=channels)
    assert module(torch.zeros(2, channels, size, size)).shape == (2, 7)
    linear = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    assert linear == [list(module.modules())[-1]]


@IMAGE_NETWORKS
@pytest.mark.parametrize("settings", [{"width": 0}, {"width": 2.5}, {"channels": 0}, {"n_classes": 1}])
def test_bad_settings_of_image_networks(network, settings):
    with pytest.raises(ConfigError, match=f"{next(iter(settings))} must be a whole number"):
        network(**settings)


@IMAGE_NETWORKS
def test_predictions_do_not_depend_on_the_memory_layout(network):
    module = network(width=4).eval().double()
    x = torch.randn(3, 3, 32, 32, dtype=torch.float64)
    torch.testing.assert_close(module(x), module(x.contiguous(memory_format=torch.channels_last)))
    torch.testing.assert_close(module(x)[1:], module(x[1:]))


@pytest.fixture(params=["training", "evaluating"])
def at(request):
    """A loss of the flat parameters of a network, its logits, and a point and a direction to look at it from."""

    def make(network):
        torch.manual_seed(8)
        module = network(3, width=4, channels=1).double()
        x, y = torch.randn(4, 1, 28, 28, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.momentum = 1.0  # one pass and its statistics fit the data, as they do after training
        module(x)
        module.train(request.param == "training")
        shapes = {name: p.shape for name, p in module.named_parameters()}
        theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
        direction = torch.randn_like(theta) * theta.abs().mean()

        def logits(flat):
            parts = flat.split([shape.numel() for shape in shapes.values()])
            named = {
                name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
            }
            return functional_call(module, named, (x,))

        return logits, lambda flat: nn.functional.cross_entropy(logits(flat), y), theta, direction

    return make


def central_difference(function, theta, direction, step=1e-9):
    """A step so small that hardly a unit crosses its kink."""
    return (function(theta + step * direction) - function(theta - step * direction)) / (2 * step)


@IMAGE_NETWORKS
def test_derivatives_reach_every_parameter_in_every_mode_of_differentiation(network, at):
    """Reverse, forward and second derivatives along a direction, against differences of the one below."""
    logits, loss, theta, direction = at(network)

    def gradient(flat):
        flat = flat.detach().requires_grad_()
        return torch.autograd.grad(loss(flat), flat)[0]

    first = gradient(theta)
    torch.testing.assert_close(
        first @ direction, central_difference(loss, theta, direction), rtol=1e-3, atol=1e-6
    )

    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(logits(forward_ad.make_dual(theta, direction))).tangent
    expected = central_difference(logits, theta, direction).detach()
    torch.testing.assert_close(tangent, expected, rtol=1e-3, atol=1e-4)

    flat = theta.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(flat), flat, create_graph=True)
    (second,) = torch.autograd.grad(slope @ direction, flat)
    difference = central_difference(gradient, theta, direction)
    assert (second - difference).norm() < 1e-2 * difference.norm()


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_narrow_convolutions_do_not_corrupt_memory(threads):
    """On a CPU with AVX2 alone, which oneDNN can be made to assume, torch's backward pass through narrow layers
    crashes, hangs or returns nonsense for some memory layouts; the caller's may be one of them."""
    program = (
        f"import torch; from selfcal import models; torch.set_num_threads({threads}); torch.manual_seed(0)\n"
        "for width, rows in ((2, 40), (4, 40), (8, 127)):\n"
        "    x = torch.randn(rows, 3, 28, 28).contiguous(memory_format=torch.channels_last)\n"
        "    for network in (models.resnet18, models.vgg16):\n"
        "        module = network(10, width=width)\n"
        "        for _ in range(3):\n"
        "            module(x).logsumexp(dim=1).sum().backward()\n"
    )
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    ended = subprocess.run([sys.executable, "-c", program], check=False, env=environment, timeout=300)
    assert ended.returncode == 0


@given(st.integers(1, 12), st.integers(1, 4), st.integers(1, 4), st.integers(0, 1000))
def test_columns_with_three_values_are_encoded(n_rows, n_columns, n_values, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(n_values, (n_rows, n_columns), generator=generator).float()
    assert columns_to_encode(x) == [column for column in range(n_columns) if len(x[:, column].unique()) > 2]


def test_the_former_name_still_works():
    assert models.spread_columns is columns_to_encode


def test_networks_for_tables_are_made_without_memory_and_half_of_torch():
    """As models are when they are loaded; arithmetic on tensors without memory takes a second to prepare."""
    code = """
import sys, torch
from selfcal import models
before = len(sys.modules)
with torch.device("meta"):
    for make in (models.mlp, models.tabular, models.tabm, models.realmlp, models.discriminant):
        make(4, 3)
print(len(sys.modules) - before)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 50
