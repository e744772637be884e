import pytest
import torch
from torch import nn

from selfcal.errors import ConfigError
from selfcal.hypergradients import FiniteDifference, OneStep, Unrolled
from selfcal.optimizers import SGD, Adam, CosLog
from selfcal.training import Clipped
from tests.problems import run_inner, weighted_ridge

START = torch.tensor([1.0, -1.0, 2.0, 0.5], dtype=torch.float64)


@pytest.mark.parametrize("rule", [SGD(lr=0.3), SGD(lr=0.3, momentum=0.8, weight_decay=0.1), Adam(lr=0.1)])
@pytest.mark.parametrize(
    "strategy", [Unrolled(), OneStep(), OneStep("forward"), FiniteDifference()], ids=repr
)
@pytest.mark.parametrize("max_norm", [0.2, 0.6, 100.0])
def test_hypergradients_differentiate_through_clipping(rule, strategy, max_norm):
    problem = weighted_ridge(seed=1)
    clipped = Clipped(rule, max_norm)
    batches = [problem.train_batch] * (1 if strategy.horizon else 5)
    weight = torch.linspace(0.2, 0.9, 12, dtype=torch.float64)

    def run(w):
        return run_inner(problem, clipped, START, {"weight": w}, batches)

    def after(w):
        return problem.outer(run(w).theta, {"weight": w}, problem.outer_batch)

    trajectory = run(weight)
    norms = [float(step.grad.norm()) for step in trajectory.steps]
    assert (max(norms) > max_norm) == (max_norm < 1)
    _, grads = strategy(problem, trajectory, {"weight": weight}, problem.outer_batch)
    for i in range(12):
        bump = torch.zeros(12, dtype=torch.float64)
        bump[i] = 1e-5
        expected = (after(weight + bump) - after(weight - bump)) / 2e-5
        assert grads["weight"][i].item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-8)


def test_clips_as_torch_does():
    layer = nn.Linear(5, 3)
    (layer(torch.ones(4, 5)) ** 2).sum().backward()
    grad = torch.cat([p.grad.flatten() for p in layer.parameters()])
    nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
    expected = torch.cat([p.grad.flatten() for p in layer.parameters()])
    theta, _ = Clipped(SGD(lr=1.0), 0.5).update(torch.zeros_like(grad), grad, (), 1)
    torch.testing.assert_close(-theta, expected, rtol=1e-5, atol=1e-7)


def test_the_rest_is_that_of_the_rule():
    rule = Clipped(Adam(lr=CosLog(0.1)), 1.0)
    assert rule.planned(50) == Clipped(Adam(lr=CosLog(0.1)).planned(50), 1.0)
    assert rule.planned(50).step_size(7) == rule.rule.planned(50).step_size(7)
    assert Clipped(SGD(lr=1.0), 1.0).slowed(0.5) == Clipped(SGD(lr=0.5), 1.0)
    with pytest.raises(ConfigError, match="clip_norm must be"):
        Clipped(SGD(lr=1.0), 0)


def test_a_zero_gradient_stays_zero():
    theta, _ = Clipped(SGD(lr=1.0), 1.0).update(torch.ones(2), torch.zeros(2), (), 1)
    assert torch.equal(theta, torch.ones(2))
