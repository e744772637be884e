"""Contracts of every hypergradient strategy, in float64 against answers known by other means."""

import pytest
import torch

from selfcal import hypergradients
from selfcal.errors import ConfigError
from selfcal.hypergradients import (
    ConjugateGradient,
    FiniteDifference,
    Neumann,
    Nystrom,
    OneStep,
    Unrolled,
)
from selfcal.optimizers import SGD, Adam
from tests.problems import UpdatedRidge, run_inner, weighted_ridge

EXACT_AT_THE_MINIMUM = {
    "Unrolled": [Unrolled(), Unrolled(recompute=True)],
    "ConjugateGradient": [ConjugateGradient(damping=0, iterations=50)],
    "Neumann": [Neumann(terms=2000, damping=0), Neumann(terms=2000, damping=0, step=0.3)],
    "Nystrom": [Nystrom(rank=4, damping=1e-9)],
}
THROUGH_THE_LAST_STEP = {
    "OneStep": [OneStep(), OneStep(tangent="forward")],
    "FiniteDifference": [FiniteDifference()],
}
STRATEGIES = [s for group in (EXACT_AT_THE_MINIMUM, THROUGH_THE_LAST_STEP) for v in group.values() for s in v]


def test_every_strategy_is_under_contract():
    assert {*EXACT_AT_THE_MINIMUM, *THROUGH_THE_LAST_STEP} == set(hypergradients.__all__)


@pytest.mark.parametrize("strategy", [s for v in EXACT_AT_THE_MINIMUM.values() for s in v], ids=repr)
def test_at_the_minimum_equals_finite_differences_of_the_resolved_problem(strategy):
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
    _, grads = strategy(problem, trajectory, {"weight": weight}, problem.outer_batch)

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
@pytest.mark.parametrize("recompute", [True, False])
def test_unrolled_equals_finite_differences_of_the_steps_themselves(rule, steps, recompute):
    problem = weighted_ridge(seed=1)
    weight = torch.full((12,), 0.5, dtype=torch.float64)
    theta = torch.ones(4, dtype=torch.float64)
    batches = [problem.train_batch] * steps

    def after_the_steps(w):
        outer = {"weight": w}
        return problem.outer(
            run_inner(problem, rule, theta, outer, batches).theta, outer, problem.outer_batch
        )

    _, grads = Unrolled(recompute=recompute)(
        problem,
        run_inner(problem, rule, theta, {"weight": weight}, batches, keep_graphs=not recompute),
        {"weight": weight},
        problem.outer_batch,
    )
    for i in (0, 5, 11):
        bump = torch.zeros(12, dtype=torch.float64)
        bump[i] = 1e-5
        expected = (after_the_steps(weight + bump) - after_the_steps(weight - bump)) / 2e-5
        assert grads["weight"][i].item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("strategy", [s for v in THROUGH_THE_LAST_STEP.values() for s in v], ids=repr)
@pytest.mark.parametrize("rule", [SGD(lr=0.3, momentum=0.8), Adam(lr=0.1)], ids=["momentum", "adam"])
def test_strategies_through_the_last_step_agree_with_the_exact_one_on_a_single_step(strategy, rule):
    problem = weighted_ridge(seed=2)
    outer = {"weight": torch.full((12,), 0.5, dtype=torch.float64)}
    trajectory = run_inner(problem, rule, torch.ones(4, dtype=torch.float64), outer, [problem.train_batch])
    value, grads = strategy(problem, trajectory, outer, problem.outer_batch)
    expected_value, expected = Unrolled()(problem, trajectory, outer, problem.outer_batch)
    torch.testing.assert_close(value, expected_value)
    torch.testing.assert_close(grads["weight"], expected["weight"], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s.differentiates_update], ids=repr)
@pytest.mark.parametrize("rule", [SGD(lr=0.1, momentum=0.8), Adam(lr=0.1)], ids=["momentum", "adam"])
def test_the_update_term_is_differentiated(strategy, rule):
    problem = UpdatedRidge(**vars(weighted_ridge(seed=5)))
    weight = torch.linspace(0.2, 0.9, 12, dtype=torch.float64)
    batches = [problem.train_batch] * (strategy.horizon or 4)

    def run(w):
        return run_inner(problem, rule, torch.ones(4, dtype=torch.float64), {"weight": w}, batches)

    def after_the_steps(w):
        return problem.outer(run(w).theta, {"weight": w}, problem.outer_batch)

    _, grads = strategy(problem, run(weight), {"weight": weight}, problem.outer_batch)
    for i in range(12):
        bump = torch.zeros(12, dtype=torch.float64)
        bump[i] = 1e-5
        expected = (after_the_steps(weight + bump) - after_the_steps(weight - bump)) / 2e-5
        assert grads["weight"][i].item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-8)


def test_only_implicit_strategies_ignore_the_update_term():
    ignoring = {type(s).__name__ for s in STRATEGIES if not s.differentiates_update}
    assert ignoring == {"ConjugateGradient", "Neumann", "Nystrom"}


def test_truncated_to_one_step_is_one_step():
    problem = weighted_ridge(seed=3)
    outer = {"weight": torch.full((12,), 0.5, dtype=torch.float64)}
    trajectory = run_inner(
        problem, Adam(lr=0.1), torch.ones(4, dtype=torch.float64), outer, [problem.train_batch] * 5
    )
    last = type(trajectory)(trajectory.rule, trajectory.steps[-1:], trajectory.theta)
    _, truncated = Unrolled(truncate=1)(problem, last, outer, problem.outer_batch)
    _, one = OneStep()(problem, trajectory, outer, problem.outer_batch)
    torch.testing.assert_close(truncated["weight"], one["weight"], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
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


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
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


SOLVERS = [ConjugateGradient(iterations=60), Neumann(terms=5000), Nystrom(rank=8)]


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
@pytest.mark.parametrize(
    "diagonal", [[1.0] * 8, [1.0, 2, 3, 4, 5, 6, 7, 8], [1e-3, 1e-2, 0.1, 1, 1, 1, 2, 2]], ids=str
)
def test_solvers_on_systems_with_known_answers(solver, diagonal):
    """Identity, diagonal, and ill-conditioned with damping, in a rotated basis."""
    generator = torch.Generator().manual_seed(1)
    rotation = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64, generator=generator)).Q
    matrix = rotation @ torch.diag(torch.tensor(diagonal, dtype=torch.float64)) @ rotation.T
    matrix += solver.damping * torch.eye(8, dtype=torch.float64)
    b = torch.randn(8, dtype=torch.float64, generator=generator)
    x = solver.solve(lambda v: matrix @ v, b)
    torch.testing.assert_close(x, torch.linalg.solve(matrix, b), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_solvers_return_zero_for_zero(solver):
    zero = torch.zeros(8, dtype=torch.float64)
    assert (solver.solve(lambda v: 2 * v, zero) == 0).all()


def test_conjugate_gradients_stop_where_the_curvature_turns_negative():
    b = torch.tensor([1.0, 1.0])
    x = ConjugateGradient().solve(lambda v: torch.tensor([1.0, -5.0]) * v, b)
    assert (x == 0).all()  # the first direction already goes down for ever


@pytest.mark.parametrize(
    ("make", "wording"),
    [
        (lambda: Unrolled(truncate=0), "truncate must be a whole number of at least 1; got 0"),
        (lambda: OneStep(tangent="forwards"), "Did you mean 'forward'"),
        (lambda: ConjugateGradient(damping=-1), "damping must be"),
        (lambda: Neumann(terms=0), "terms must be"),
        (lambda: Nystrom(damping=0), "damping must be"),
    ],
)
def test_bad_settings(make, wording):
    with pytest.raises(ConfigError, match=wording):
        make()
