"""Learned input noise: training sees it, prediction and the outer loss do not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from selfcal import BilevelStep, SelfCalibratedClassifier, losses, recipes
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError
from selfcal.hypergradients import ConjugateGradient, FiniteDifference, Neumann, Nystrom, OneStep, Unrolled
from selfcal.optimizers import SGD
from selfcal.outer import Combined, InputNoise, LayerDecay
from tests.outer.test_layer_decay import network, rows
from tests.outer.test_layer_decay import recipe as decay_recipe


def recipe(hypergradient=None, *, start=0.3, inner_steps=1, outer_lr=1e-3):
    decay = decay_recipe(outer_lr=outer_lr, inner_steps=inner_steps)
    return replace(decay, outer_model=InputNoise(start=start), hypergradient=hypergradient or OneStep())


def test_with_a_fixed_scale_it_is_plain_training_on_noisy_rows():
    ours, theirs = network(), network()
    step = BilevelStep(ours, SGD(lr=0.1), recipe(inner_steps=100), n_train=12)
    plain = BilevelStep(theirs, SGD(lr=0.1), recipes.standard(), n_train=12)
    torch.manual_seed(0)
    for _ in range(5):
        step(rows(12))
    torch.manual_seed(0)
    for _ in range(5):
        noisy = rows(12)
        plain(replace(noisy, x=noisy.x + 0.3 * torch.randn_like(noisy.x)))
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-12, atol=1e-12)


def test_the_outer_loss_sees_the_rows_as_they_are():
    step = BilevelStep(network(), SGD(lr=0.1), recipe(start=1.0), n_train=12)
    report = step(rows(12), rows(9, seed=2))
    with torch.no_grad():
        held_out = rows(9, seed=2)
        expected = losses.cross_entropy(step.problem.module(held_out.x), held_out.y).mean()
    assert report.outer_loss == pytest.approx(float(expected))


@pytest.mark.parametrize(
    "strategy",
    [Unrolled(), Unrolled(recompute=True), OneStep(), OneStep("forward"), FiniteDifference()],
    ids=repr,
)
def test_the_hypergradient_is_the_slope_of_the_outer_loss_for_the_same_draw(strategy):
    """By central differences, with dropout behind the noise: passes over a step must see its draws again."""
    steps = 3 if isinstance(strategy, Unrolled) else 1

    def dropping():
        torch.manual_seed(3)
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 3)).double()

    def after(value):
        step = BilevelStep(dropping(), SGD(lr=0.3, momentum=0.8), recipe(inner_steps=steps + 1), n_train=12)
        step.load_state({**step.state(), "outer": {"log10_noise": value}})
        torch.manual_seed(7)
        for _ in range(steps):
            step(rows(12))
        return float(step.problem.outer(step.problem.read(), {}, rows(9, seed=2)))

    step = BilevelStep(dropping(), SGD(lr=0.3, momentum=0.8), recipe(strategy, inner_steps=steps), n_train=12)
    start = step.outer_params["log10_noise"]
    torch.manual_seed(7)
    for _ in range(steps):
        step(rows(12), rows(9, seed=2))
    slope = float(start - step.outer_params["log10_noise"]) / 1e-3
    expected = (after(start + 1e-4) - after(start - 1e-4)) / 2e-4
    assert slope == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("strategy", [ConjugateGradient(), Neumann(), Nystrom()], ids=repr)
def test_implicit_hypergradients_move_it_too(strategy):
    step = BilevelStep(network(), SGD(lr=0.1), recipe(strategy), n_train=12)
    before = step.outer_params["log10_noise"]
    step(rows(12), rows(9, seed=2))
    assert step.outer_params["log10_noise"] != before


def test_a_classifier_that_learns_it_with_the_decay_predicts_without_noise():
    X, y = Blobs(std=1.7).sample(200, seed=0)
    method = recipes.crossfit(folds=2, learn=("noise", "decay"))
    assert isinstance(method.candidates[0].recipe.outer_model, Combined)
    clf = SelfCalibratedClassifier(method, network="mlp", max_epochs=20, random_state=0).fit(X, y)
    assert set(clf.outer_params_) == {"InputNoise.log10_noise", "LayerDecay.log10_decay"}
    np.testing.assert_array_equal(clf.predict_proba(X), clf.predict_proba(X))
    path = clf.history_.snapshots["InputNoise.log10_noise"]
    assert len(set(path.ravel())) > 1


def test_whole_numbers_are_refused():
    module = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(8, 3))
    step = BilevelStep(module, SGD(lr=0.1), recipe(), n_train=6)
    with pytest.raises(ConfigError, match=r"needs input of real numbers; got torch\.int64"):
        step(
            (torch.arange(12).view(6, 2) % 10, torch.arange(6) % 3),
            (torch.zeros(2, 2).long(), torch.arange(2)),
        )
    assert LayerDecay().network_input({}, torch.arange(3)).equal(torch.arange(3))
