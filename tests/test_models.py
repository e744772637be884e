import pytest
import torch
from torch import nn

from selfcal.errors import ConfigError
from selfcal.models import mlp


def test_shapes_and_dropout():
    module = mlp(3, 4, hidden=(8, 6), dropout=0.2)
    assert module(torch.zeros(2, 3)).shape == (2, 4)
    assert [type(layer) for layer in module] == [nn.Linear, nn.ReLU, nn.Dropout] * 2 + [nn.Linear]


def test_no_hidden_layer_is_logistic_regression():
    assert len(mlp(3, 2, hidden=())) == 1


@pytest.mark.parametrize("settings", [{"hidden": (0,)}, {"hidden": (2.5,)}, {"dropout": 1.5}])
def test_bad_settings(settings):
    with pytest.raises(ConfigError):
        mlp(3, 2, **settings)
