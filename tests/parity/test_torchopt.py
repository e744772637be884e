"""Unrolled hypergradients against torchopt, which keeps the whole graph. Tanh: torchopt is NaN with ReLU."""

import copy

import pytest
import torch
import torchopt
from torch.nn import functional as F

from selfcal import recipes
from selfcal.hypergradients import Unrolled
from selfcal.optimizers import SGD, Adam
from selfcal.training.problem import BilevelProblem
from selfcal.training.types import Batch, Output
from tests.problems import run_inner

RULES = {
    "momentum": (SGD(lr=0.1, momentum=0.9), torchopt.MetaSGD, {"lr": 0.1, "momentum": 0.9}),
    "adam": (Adam(lr=0.02), torchopt.MetaAdam, {"lr": 0.02}),
}


@pytest.fixture(autouse=True)
def _float64():
    """torchopt computes Adam's bias correction in torch's default type."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("steps", [1, 5, 20])
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("recompute", [True, False])
def test_unrolled_equals_torchopt(name, steps, recompute):
    rule, meta_optimizer, settings = RULES[name]
    generator = torch.Generator().manual_seed(steps)
    x, x_outer = torch.randn(2, 40, 2, generator=generator)
    y, y_outer = ((part.prod(dim=1) > 0).long() for part in (x, x_outer))
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    recipe = recipes.bo4sc()
    weight = torch.linspace(0.1, 0.9, 40)

    problem = BilevelProblem(module, recipe)
    batch = Batch(x, y, torch.arange(40))
    start, outer = problem.read(), {"weight": weight}
    trajectory = run_inner(problem, rule, start, outer, [batch] * steps, keep_graphs=not recompute)
    value, grads = Unrolled(recompute=recompute)(problem, trajectory, outer, Batch(x_outer, y_outer))

    theirs = copy.deepcopy(module)
    optimizer = meta_optimizer(theirs, **settings)
    weight.requires_grad_()
    for _ in range(steps):
        optimizer.step((weight * F.cross_entropy(theirs(x), y, reduction="none")).mean())
    expected_value = recipe.objective(Output(theirs(x_outer)), Batch(x_outer, y_outer))
    (expected,) = torch.autograd.grad(expected_value, weight)

    assert value.item() == pytest.approx(expected_value.item(), rel=1e-12)
    error = (grads["weight"] - expected).abs().max() / expected.abs().max()
    assert error.item() < 1e-8
