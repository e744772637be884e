"""An outer model from given values on, with and without an outer level."""

import numpy as np
import pytest
import torch

from selfcal import outer, recipes, train
from selfcal.errors import ConfigError
from selfcal.optimizers import SGD
from selfcal.training.types import Sizes


def run(recipe, **settings):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator)
    y = (x[:, 0] > 0).long()
    torch.manual_seed(0)
    module = torch.nn.Linear(3, 2)
    return train(module, (x[:30], y[:30]), recipe=recipe, optimizer=SGD(lr=0.5), max_steps=6, **settings)


def test_a_restart_is_training_with_the_values_as_numbers():
    recipe = recipes.restarted(recipes.one_run(learn="gamma"), {"gamma": np.float32(2.5)})
    again, plain = run(recipe), run(recipes.focal(gamma=2.5))
    torch.testing.assert_close(again.module.weight, plain.module.weight)
    assert again.outer_params == {"gamma": torch.tensor(2.5)}
    assert not again.history.outer_step.size


def test_models_that_take_part_in_the_update_do_so_without_an_outer_level():
    def norm(decay):
        values = {"log10_decay": torch.full((1,), decay)}
        result = run(recipes.restarted(recipes.one_run(learn="decay"), values))
        return float(result.module.weight.detach().norm())

    assert norm(0.0) < norm(-2.0)


def test_what_is_given_must_fit():
    model = outer.StartAt(outer.Gamma(), {"gamma": [1.0, 2.0]})
    with pytest.raises(ConfigError, match=r"must have the shapes .*'gamma': \(\).*got .*\(2,\)"):
        model.init(Sizes(n_train=3), torch.zeros(()))
    with pytest.raises(ConfigError, match="needs an outer model and its parameters by name"):
        outer.StartAt(outer.Gamma(), 2.5)
    with pytest.raises(ConfigError, match="must have an outer level"):
        recipes.restarted(recipes.standard(), {})


def test_equal_values_are_equal_models():
    first, second = (outer.StartAt(outer.Gamma(), {"gamma": value}) for value in (2.0, torch.tensor(2.0)))
    assert first == second
    assert hash(first) == hash(second)
    assert repr(first) == "StartAt(model=Gamma(start=1.0), values=(('gamma', 2.0),))"
