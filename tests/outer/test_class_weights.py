"""Weights by class: one on average over the classes, bounded, and learned for classes that are rare in training."""

import pytest
import torch

from selfcal import Batch, Output, outer, recipes, train
from selfcal.errors import ConfigError
from selfcal.optimizers import Adam
from selfcal.training.types import Sizes

LIKE = torch.zeros((), dtype=torch.float64)


def weights_of(log_weight, y):
    batch = Batch(torch.zeros(len(y), 1), y)
    return outer.ClassWeights()({"log_weight": log_weight}, Output(torch.zeros(len(y), 3)), batch)["weight"]


def test_the_mean_over_the_classes_is_one_and_a_constant_changes_nothing():
    log_weight, y = torch.tensor([0.0, 1.0, -2.0]), torch.arange(3)
    assert float(weights_of(log_weight, y).mean()) == pytest.approx(1)
    torch.testing.assert_close(weights_of(log_weight + 5, y), weights_of(log_weight, y))
    assert weights_of(log_weight, y)[1] == weights_of(log_weight, y[1:2])[0]


def test_all_start_equal_and_stay_within_a_factor_of_a_hundred():
    model = outer.ClassWeights(n_classes=4)
    start = model.init(Sizes(n_train=5), LIKE)
    assert torch.equal(start["log_weight"], torch.zeros(4, dtype=torch.float64))
    bounded = model.project({"log_weight": torch.tensor([-9.0, 0.5, 9.0])})["log_weight"].exp()
    torch.testing.assert_close(bounded, torch.tensor([0.01, 1.6487212, 100.0]))
    with pytest.raises(ConfigError, match=r"Pass ClassWeights\(n_classes=...\)"):
        outer.ClassWeights().init(Sizes(n_train=5), LIKE)


def test_a_class_that_is_rare_in_training_only_gets_a_larger_weight():
    generator = torch.Generator().manual_seed(0)

    def rows(*counts):
        y = torch.cat([torch.full((n,), c) for c, n in enumerate(counts)])
        x = torch.randn(len(y), 2, generator=generator) + 1.5 * y[:, None]
        order = torch.randperm(len(y), generator=generator)
        return x[order], y[order]

    recipe = recipes.one_run(learn="classes", inner_steps=1)
    result = train(
        torch.nn.Linear(2, 2),
        rows(200, 20),
        rows(100, 100),
        recipe=recipe,
        optimizer=Adam(lr=0.05),
        max_steps=60,
    )
    common, rare = result.outer_params["log_weight"].tolist()
    assert rare > common + 0.5
