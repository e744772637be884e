"""Contracts of every hypergradient strategy, in float64 against answers known by other means."""

import pytest
import torch

from selfcal import hypergradients
from selfcal.errors import ConfigError
from selfcal.hypergradients import OneStep, Unrolled
from selfcal.optimizers import SGD, Adam
from tests.problems import run_inner, weighted_ridge

STRATEGIES = [getattr(hypergradients, name)() for name in hypergradients.__all__]


def test_unrolled_to_convergence_equals_finite_differences_of_the_resolved_problem():
    problem = weighted_ridge()
    weight = torch.linspace(0.2, 0.9, 12, dtype=torch.float64)
    trajectory = run_inner(
        problem,
        SGD(lr=0.5),
        torch.zeros(4, dtype=torch.float64),
        {"weight": weight},
        [problem.train_batch] * 400,
    )
    torch.testing.assert_close(trajectory.theta, problem.solve(weight), rtol=0, atol=1e-10)
    _, grads = Unrolled()(problem, trajectory, {"weight": weight}, problem.outer_batch)

    def resolved(w):
        return problem.outer(problem.solve(w), {"weight": w}, problem.outer_batch)

    step = 1e-5
    for i in range(12):
        bump = torch.zeros(12, dtype=torch.float64)
        bump[i] = step
        expected = (resolved(weight + bump) - resolved(weight - bump)) / (2 * step)
        assert grads["weight"][i].item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("rule", [SGD(lr=0.3, momentum=0.8), Adam(lr=0.1)], ids=["momentum", "adam"])
@pytest.mark.parametrize("steps", [1, 7])
def test_unrolled_equals_finite_differences_of_the_steps_themselves(rule, steps):
    problem = weighted_ridge(seed=1)
    weight = torch.full((12,), 0.5, dtype=torch.float64)
    theta = torch.ones(4, dtype=torch.float64)
    batches = [problem.train_batch] * steps

    def after_the_steps(w):
        outer = {"weight": w}
        return problem.outer(
            run_inner(problem, rule, theta, outer, batches).theta, outer, problem.outer_batch
        )

    _, grads = Unrolled()(
        problem,
        run_inner(problem, rule, theta, {"weight": weight}, batches),
        {"weight": weight},
        problem.outer_batch,
    )
    for i in (0, 5, 11):
        bump = torch.zeros(12, dtype=torch.float64)
        bump[i] = 1e-5
        expected = (after_the_steps(weight + bump) - after_the_steps(weight - bump)) / 2e-5
        assert grads["weight"][i].item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("rule", [SGD(lr=0.3, momentum=0.8), Adam(lr=0.1)], ids=["momentum", "adam"])
def test_all_strategies_agree_on_a_single_step(strategy, rule):
    problem = weighted_ridge(seed=2)
    outer = {"weight": torch.full((12,), 0.5, dtype=torch.float64)}
    trajectory = run_inner(problem, rule, torch.ones(4, dtype=torch.float64), outer, [problem.train_batch])
    value, grads = strategy(problem, trajectory, outer, problem.outer_batch)
    expected_value, expected = Unrolled()(problem, trajectory, outer, problem.outer_batch)
    assert value == expected_value
    torch.testing.assert_close(grads["weight"], expected["weight"], rtol=1e-8, atol=1e-11)


def test_truncated_to_one_step_is_one_step():
    problem = weighted_ridge(seed=3)
    outer = {"weight": torch.full((12,), 0.5, dtype=torch.float64)}
    trajectory = run_inner(
        problem, Adam(lr=0.1), torch.ones(4, dtype=torch.float64), outer, [problem.train_batch] * 5
    )
    last = type(trajectory)(trajectory.rule, trajectory.steps[-1:], trajectory.theta)
    _, truncated = Unrolled(truncate=1)(problem, last, outer, problem.outer_batch)
    _, one = OneStep()(problem, trajectory, outer, problem.outer_batch)
    torch.testing.assert_close(truncated["weight"], one["weight"], rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
def test_direct_term_is_kept_and_nothing_else_is_invented(strategy):
    """With the outer rows all zero the outer loss ignores theta: only the direct term is left."""
    problem = weighted_ridge(seed=4)
    blind = type(problem)(
        problem.x, problem.y, torch.zeros(9, 4, dtype=torch.float64), problem.y_outer, problem.direct
    )
    outer = {"weight": torch.full((12,), 0.5, dtype=torch.float64)}
    trajectory = run_inner(
        blind, SGD(lr=0.1), torch.ones(4, dtype=torch.float64), outer, [blind.train_batch] * 3
    )
    _, grads = strategy(blind, trajectory, outer, blind.outer_batch)
    torch.testing.assert_close(grads["weight"], problem.direct, rtol=0, atol=1e-15)


def test_mini_batches_touch_only_their_rows():
    problem = weighted_ridge(seed=5)
    outer = {"weight": torch.full((12,), 0.5, dtype=torch.float64)}
    whole = problem.train_batch
    halves = [type(whole)(whole.x[s], whole.y[s], whole.index[s]) for s in (slice(0, 4), slice(4, 8))]
    trajectory = run_inner(problem, SGD(lr=0.2), torch.ones(4, dtype=torch.float64), outer, halves)
    _, unrolled = Unrolled()(problem, trajectory, outer, problem.outer_batch)
    _, one = OneStep()(problem, trajectory, outer, problem.outer_batch)
    through = unrolled["weight"] - problem.direct
    assert (through[:8] != 0).all()
    assert (through[8:] == 0).all()
    assert ((one["weight"] - problem.direct)[:4] == 0).all()


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)
def test_strategies_leave_no_gradients_behind(strategy):
    problem = weighted_ridge(seed=6)
    outer = {"weight": torch.full((12,), 0.5, dtype=torch.float64)}
    trajectory = run_inner(
        problem, SGD(lr=0.1), torch.ones(4, dtype=torch.float64), outer, [problem.train_batch] * 2
    )
    value, grads = strategy(problem, trajectory, outer, problem.outer_batch)
    tensors = [
        value,
        *grads.values(),
        *outer.values(),
        trajectory.theta,
        *(s.theta for s in trajectory.steps),
    ]
    assert not any(t.requires_grad or t.grad is not None for t in tensors)


def test_bad_truncation():
    with pytest.raises(ConfigError, match="truncate must be a whole number of at least 1; got 0"):
        Unrolled(truncate=0)
