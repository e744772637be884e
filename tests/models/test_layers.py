"""The layers of RealMLP, against NumPy and by what they promise before and after a step of Adam."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from selfcal.errors import ConfigError
from selfcal.models import for_table, realmlp
from selfcal.models.factory import NetworkFactory
from selfcal.models.layers import ColumnScales, ParametricSELU, PeriodicEmbedding, RobustScaling, ScaledLinear

ROWS = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 10.0, 0.1]) + 5


class TestRobustScaling:
    def test_against_numpy(self):
        x = ROWS.double().numpy()
        low, median, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
        scaled = (x - median) / (high - low)
        expected = scaled / np.sqrt(1 + (scaled / 3) ** 2)
        np.testing.assert_allclose(RobustScaling(3).fit(ROWS)(ROWS), expected, atol=1e-4)

    def test_half_the_range_where_quartiles_are_equal_and_zero_where_all_is(self):
        x = torch.tensor([[0.0, 7.0], [0.0, 7.0], [0.0, 7.0], [0.0, 7.0], [0.0, 7.0], [4.0, 7.0]])
        scaled = RobustScaling(2).fit(x)(torch.tensor([[4.0, 8.0]]))
        np.testing.assert_allclose(scaled, [[2 / np.sqrt(1 + 4 / 9), 0]], atol=1e-6)

    def test_outliers_stay_below_three(self):
        x = torch.tensor([[-1e18], [0.0], [1e-3], [2e-3], [1e18]])
        scaled = RobustScaling(1).fit(x)(x)
        assert scaled.abs().max() <= 3
        assert (scaled.diff(dim=0) > 0).all()


@pytest.mark.parametrize("columns", [[0, 2], [], [2, 1, 0]])
def test_periodic_embedding_predicts_as_it_is_trained(columns):
    layer, x = PeriodicEmbedding(3, columns), torch.randn(7, 3)
    expected = layer(x).detach()
    with torch.no_grad():
        torch.testing.assert_close(layer.eval()(x), expected, rtol=0, atol=1e-6)


def test_periodic_embedding_against_numpy():
    torch.manual_seed(0)
    layer, x = PeriodicEmbedding(3, [0, 2]), torch.randn(5, 3)
    frequency, phase, weight, bias = (0.1 * p.detach().numpy() for p in layer.parameters())
    expected = [x.numpy()]
    for place, column in enumerate((0, 2)):
        periodic = np.cos(2 * np.pi * frequency[place] * x[:, [column]].numpy() + phase[place])
        expected.append(periodic @ weight[place] + bias[place])
    np.testing.assert_allclose(layer(x).detach(), np.concatenate(expected, axis=1), atol=1e-4)
    assert layer(x).shape[1] == layer.n_outputs


class TestStepsRelativeToThoseOfTheWeights:
    """Adam moves each parameter by its step size, and so what a layer computes with by that times a factor."""

    def test_six_times_as_far_for_column_scales(self):
        layer = ColumnScales(3)
        torch.testing.assert_close(layer(ROWS), ROWS)
        torch.nn.init.ones_(layer.weight)
        torch.testing.assert_close(layer(ROWS), 6 * ROWS)

    def test_a_tenth_for_biases_and_by_the_root_of_the_inputs_for_weights(self):
        torch.manual_seed(0)
        layer, x = ScaledLinear(4, 2), torch.randn(5, 4)
        torch.nn.init.normal_(layer.bias)
        torch.testing.assert_close(layer(x), x @ layer.weight.T / 2 + 0.1 * layer.bias)

    def test_a_tenth_for_activations(self):
        layer, x = ParametricSELU(1), torch.linspace(-3, 3, 7)[:, None]
        torch.testing.assert_close(layer(x), F.selu(x))
        torch.nn.init.ones_(layer.weight)
        torch.testing.assert_close(layer(x), 0.9 * x + 0.1 * F.selu(x))


class TestInitialisation:
    def test_hidden_units_have_unit_spread_and_a_zero_among_the_rows(self):
        network = for_table("realmlp", ROWS, 4, hidden=(32, 16)).eval()
        x, widths = ROWS, []
        for layer in network:
            x = layer(x)
            if isinstance(layer, ScaledLinear) and layer.out_features > 4:
                torch.testing.assert_close(x.std(dim=0, correction=0), torch.ones(layer.out_features))
                assert (x.amin(dim=0) < 0).all()
                assert (x.amax(dim=0) > 0).all()
                widths.append(layer.out_features)
        assert widths == [32, 16]

    def test_all_classes_are_equally_likely_before_training(self):
        assert (for_table("realmlp", ROWS, 4)(ROWS) == 0).all()

    def test_the_seed_decides(self):
        make = NetworkFactory(n_classes=3)
        first, again, other = (make("realmlp", ROWS, seed).state_dict() for seed in (0, 0, 1))
        assert all(torch.equal(first[name], again[name]) for name in first)
        assert not torch.equal(first["3.weight"], other["3.weight"])
        assert not torch.equal(first["3.bias"], other["3.bias"])


@pytest.mark.parametrize("settings", [{"hidden": (0,)}, {"dropout": 1.5}])
def test_bad_settings(settings):
    with pytest.raises(ConfigError):
        realmlp(3, 2, **settings)
