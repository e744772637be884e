"""Learned weight decay: the step is AdamW's, and its hypergradient is the slope of the outer loss."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from selfcal import Batch, BilevelStep, losses
from selfcal.ensembles.modules import ParallelNetworks
from selfcal.errors import ConfigError
from selfcal.hypergradients import ConjugateGradient, Neumann, Nystrom, OneStep, Unrolled
from selfcal.objectives import NLL
from selfcal.optimizers import SGD, Adam, AdamW, NormalizedSGD, StepDecay
from selfcal.outer import LayerDecay
from selfcal.training.interfaces import OptimizerRule
from selfcal.training.recipe import Recipe


def recipe(hypergradient=None, *, start=0.3, outer_lr=1e-3, inner_steps=1):
    return Recipe(
        name="decay",
        loss=losses.cross_entropy,
        outer_model=LayerDecay(start=start),
        objective=NLL(),
        hypergradient=hypergradient or OneStep(),
        outer_optimizer=SGD(lr=outer_lr),
        inner_steps=inner_steps,
    )


def rows(n, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return Batch(x, torch.randint(3, (n,), generator=generator), torch.arange(n))


def network(seed=3):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.LayerNorm(5), nn.Linear(5, 3)).double()


def test_with_a_fixed_coefficient_it_is_adamw_step_for_step():
    ours, theirs = network(), network()
    groups = [
        {"params": [p], "weight_decay": 0.7 if p.ndim > 1 else 0.0} for _, p in theirs.named_parameters()
    ]
    adamw = torch.optim.AdamW(groups, lr=0.05)
    step = BilevelStep(ours, Adam(lr=0.05), recipe(start=0.7, inner_steps=100), n_train=12)
    for _ in range(10):
        step(rows(12))
        adamw.zero_grad()
        losses.cross_entropy(theirs(rows(12).x), rows(12).y).mean().backward()
        adamw.step()
    for own, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-12)


def test_biases_and_scales_do_not_decay_and_members_share_the_coefficient_of_each_layer():
    module = ParallelNetworks([network(1), network(2)])
    problem = BilevelStep(module, SGD(lr=0.1), recipe(), n_train=12).problem
    outer = {"log10_decay": torch.tensor([-1.0, 0.0]).double()}
    term = problem.update_term(problem.read(), outer).split([p.numel() for p in module.parameters()])
    expected = [0.1, 0, 0, 0, 1.0, 0] * 2
    for part, parameter, value in zip(term, module.parameters(), expected, strict=True):
        torch.testing.assert_close(part, value * parameter.detach().reshape(-1))


@pytest.mark.parametrize(
    "rule",
    [SGD(lr=0.3), SGD(lr=0.2, momentum=0.8, weight_decay=0.1), Adam(lr=StepDecay(0.05, after=(1,)))],
    ids=["sgd", "momentum", "adam"],
)
@pytest.mark.parametrize("strategy", [Unrolled(), Unrolled(recompute=True), OneStep()], ids=repr)
def test_the_hypergradient_is_the_slope_of_the_outer_loss_after_the_steps(strategy, rule):
    """By central differences in float64, through three steps for the exact strategy and one for the cheap one."""
    steps = 1 if isinstance(strategy, OneStep) else 3

    def after(values):
        step = BilevelStep(network(), rule, recipe(inner_steps=steps + 1), n_train=12)
        step.load_state({**step.state(), "outer": {"log10_decay": values}})
        for _ in range(steps):
            step(rows(12))
        return float(step.problem.outer(step.problem.read(), {}, rows(9, seed=2)))

    step = BilevelStep(network(), rule, recipe(strategy, inner_steps=steps), n_train=12)
    start = step.outer_params["log10_decay"]
    for _ in range(steps):
        step(rows(12), rows(9, seed=2))
    slopes = (start - step.outer_params["log10_decay"]) / 1e-3
    for layer in range(2):
        bump = torch.zeros(2).double()
        bump[layer] = 1e-4
        expected = (after(start + bump) - after(start - bump)) / 2e-4
        assert slopes[layer].item() == pytest.approx(expected, rel=1e-5, abs=1e-10)


def test_the_hypergradient_is_the_mean_over_the_members():
    """Members share the coefficients; each contributes the hypergradient of its held-out rows."""

    def change(*members, held_out):
        step = BilevelStep(
            ParallelNetworks([network(m) for m in members]), SGD(lr=0.1), recipe(outer_lr=1.0), n_train=12
        )
        before = step.outer_params["log10_decay"]
        whole = [rows(12) for _ in members]
        step(
            Batch(
                torch.cat([b.x for b in whole]),
                torch.cat([b.y for b in whole]),
                torch.arange(12 * len(members)) % 12,
            ),
            Batch(torch.cat([b.x for b in held_out]), torch.cat([b.y for b in held_out])),
        )
        return before - step.outer_params["log10_decay"]

    first, second = rows(9, seed=5), rows(9, seed=6)
    both = change(1, 2, held_out=[first, second])
    # Side by side, each network's training loss is half of the whole: the step is half as long, the decay is not.
    problem = BilevelStep(network(1), SGD(lr=0.05), recipe(), n_train=12)
    assert problem.problem.n_members == 1
    apart = [_slope_with_half_a_gradient(network(m), held) for m, held in ((1, first), (2, second))]
    torch.testing.assert_close(both, (apart[0] + apart[1]) / 2)


def _slope_with_half_a_gradient(module, held_out):
    """-lr λ log(10) ⟨v, W⟩ of each layer, v being the outer gradient after the step."""
    weights = [module[0].weight.detach().clone(), module[3].weight.detach().clone()]
    loss = losses.cross_entropy(module(rows(12).x), rows(12).y).mean() / 2
    grads = torch.autograd.grad(loss, list(module.parameters()))
    with torch.no_grad():
        for p, g in zip(module.parameters(), grads, strict=True):
            p.sub_(0.1 * g + (0.1 * 0.3 * p if p.ndim > 1 else 0))
    v = torch.autograd.grad(
        losses.cross_entropy(module(held_out.x), held_out.y).mean(), [module[0].weight, module[3].weight]
    )
    return torch.stack(
        [
            -0.1 * 0.3 * torch.tensor(10.0).double().log() * (g * w).sum()
            for g, w in zip(v, weights, strict=True)
        ]
    )


@pytest.mark.parametrize("rate", [1e3, -1e3])
def test_it_stays_within_its_bounds_however_large_the_step(rate):
    settings = replace(
        recipe(), outer_model=LayerDecay(bounds=(0.1, 2.0)), outer_optimizer=NormalizedSGD(lr=abs(rate))
    )
    step = BilevelStep(network(), SGD(lr=0.1), settings, n_train=12)
    for _ in range(3):
        step(rows(12), rows(9, seed=2))
        decay = 10 ** step.outer_params["log10_decay"]
        assert ((decay >= 0.1 - 1e-12) & (decay <= 2 + 1e-12)).all()


@pytest.mark.parametrize("strategy", [ConjugateGradient(), Neumann(), Nystrom()], ids=repr)
def test_implicit_hypergradients_are_refused_before_training(strategy):
    with pytest.raises(
        ConfigError, match=r"LayerDecay.* needs a hypergradient that differentiates the update"
    ):
        recipe(strategy)


def test_a_network_without_weight_matrices():
    module = nn.Sequential(nn.LayerNorm(3))
    with pytest.raises(ConfigError, match=r"a trainable weight matrix.*; got 0\.weight, 0\.bias\."):
        BilevelStep(module, SGD(lr=0.1), recipe(), n_train=12)


def test_an_optimiser_without_a_step_size():
    class Still(OptimizerRule):
        def init(self, theta):
            return ()

        def step_(self, theta, grad, state, count):
            pass

        def pull_back(self, step, adjoint, state_adjoints=None):
            return adjoint, torch.zeros_like(adjoint), ()

    step = BilevelStep(network(), Still(), recipe(), n_train=12)
    with pytest.raises(ConfigError, match=r"has none\. Define its method step_size\(count\)"):
        step(rows(12), rows(9))


def test_the_step_size_follows_schedule_and_slowing():
    rule = SGD(lr=StepDecay(0.1, after=(1,)))
    assert [rule.step_size(count) for count in (1, 2)] == pytest.approx([0.1, 0.01])
    assert Adam(lr=0.2).slowed(0.5).step_size(7) == 0.1


def test_it_replaces_the_weight_decay_of_the_optimiser():
    rule = AdamW(lr=0.2, weight_decay=0.3)
    assert LayerDecay().adapt_optimizer(rule) == replace(rule, weight_decay=0.0)
    without = NormalizedSGD(lr=0.2)
    assert LayerDecay().adapt_optimizer(without) is without
