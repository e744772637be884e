"""Every rule equals its torch.optim namesake step for step, and can be differentiated anywhere."""

import dataclasses

import pytest
import torch

from selfcal import optimizers
from selfcal.errors import ConfigError
from selfcal.optimizers import SGD, Adam, AdamW, CosLog, NormalizedSGD, StepDecay
from selfcal.training.interfaces import Evaluation, InnerStep

NAMESAKES = {
    "sgd": (SGD(lr=0.1), torch.optim.SGD, {"lr": 0.1}),
    "momentum": (SGD(lr=0.1, momentum=0.9), torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "nesterov": (
        SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "adam": (Adam(lr=0.05), torch.optim.Adam, {"lr": 0.05}),
    "adam_l2": (
        Adam(lr=0.05, weight_decay=0.1, betas=(0.8, 0.95), eps=1e-6),
        torch.optim.Adam,
        {"lr": 0.05, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6},
    ),
    "adamw": (AdamW(lr=0.05, weight_decay=0.1), torch.optim.AdamW, {"lr": 0.05, "weight_decay": 0.1}),
}


def rosenbrock(theta):
    return ((1 - theta[:-1]) ** 2 + 5 * (theta[1:] - theta[:-1] ** 2) ** 2).sum() * 0.05


@pytest.mark.parametrize("name", NAMESAKES)
def test_equals_torch_step_for_step(name):
    rule, reference, settings = NAMESAKES[name]
    theirs = torch.linspace(-1, 1, 7, dtype=torch.float64).requires_grad_()
    ours, state = theirs.detach().clone(), None
    optimizer = reference([theirs], **settings)
    state = rule.init(ours)
    for count in range(1, 31):
        grad = torch.func.grad(rosenbrock)(ours)
        ours, state = rule.update(ours, grad, state, count)
        optimizer.zero_grad()
        rosenbrock(theirs).backward()
        optimizer.step()
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-12, atol=1e-14)


def central_differences(function, arguments, way=1e-5):
    """The gradient of a scalar function in each of its arguments."""
    gradients = []
    for place, argument in enumerate(arguments):
        gradient = torch.empty_like(argument)
        for i in range(len(argument)):
            there, back = argument.clone(), argument.clone()
            there[i] += way
            back[i] -= way
            ends = [function(*arguments[:place], moved, *arguments[place + 1 :]) for moved in (there, back)]
            gradient[i] = (ends[0] - ends[1]) / (2 * way)
        gradients.append(gradient)
    return tuple(gradients)


@pytest.mark.parametrize("last", [True, False], ids=["last step", "earlier step"])
@pytest.mark.parametrize("rule", [*(case[0] for case in NAMESAKES.values()), NormalizedSGD(lr=0.1)])
def test_pull_back_is_the_reverse_of_update(rule, last):
    generator = torch.Generator().manual_seed(0)
    theta, grad, adjoint = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    state = tuple(torch.rand(5, dtype=torch.float64, generator=generator) for _ in rule.init(theta))
    state_adjoints = tuple(torch.randn(5, dtype=torch.float64, generator=generator) for _ in state)

    def value(theta, grad, *state):
        new_theta, new_state = rule.update(theta, grad, state, 3)
        ends = (new_theta,) if last else (new_theta, *new_state)
        adjoints = (adjoint, *state_adjoints)
        return sum(float(end @ to_end) for end, to_end in zip(ends, adjoints, strict=False))

    expected = central_differences(value, (theta, grad, *state))
    _, state_after = rule.update(theta, grad, state, 3)
    step = InnerStep(theta, state_after, 3, None, (), Evaluation(None, grad, None))
    to_theta, to_grad, to_state = rule.pull_back(step, adjoint, None if last else state_adjoints)
    torch.testing.assert_close((to_theta, to_grad, *to_state), expected, rtol=1e-6, atol=1e-9)


def test_a_unit_that_never_fired_does_not_poison_the_adjoint():
    """Its second moment is 0, where the square root has no derivative."""
    rule, zeros = Adam(lr=0.1), torch.zeros(2)
    grad = torch.tensor([0.0, 1.0])
    _, after = rule.update(zeros, grad, rule.init(zeros), 1)
    step = InnerStep(zeros, after, 1, None, (), Evaluation(None, grad, None))
    pulled = rule.pull_back(step, torch.ones(2))
    assert all(t.isfinite().all() for t in (*pulled[:2], *pulled[2]))


def test_update_leaves_its_inputs_alone():
    for rule, *_ in NAMESAKES.values():
        theta, grad = torch.ones(3), torch.ones(3)
        state = rule.init(theta)
        rule.update(theta, grad, state, 1)
        assert all(bool((t == v).all()) for t, v in zip((theta, grad, *state), (1, 1, 0, 0), strict=False))


@pytest.mark.parametrize(
    "rule", [SGD(0.2, momentum=0.9), NormalizedSGD(0.2), Adam(0.2), AdamW(0.2)], ids=repr
)
@pytest.mark.parametrize("decays", [False, True])
def test_half_the_step_size_is_half_the_first_step(rule, decays):
    rate = StepDecay(0.2, after=(5,)) if decays else 0.2
    theta, grad = torch.tensor([0.0, 0.0]), torch.tensor([3.0, -1.0])
    rule = dataclasses.replace(rule, lr=rate)
    half = rule.slowed(0.5)
    assert type(half) is type(rule)
    whole, halved = (r.update(theta, grad, r.init(theta), 1)[0] for r in (rule, half))
    torch.testing.assert_close(halved, whole / 2)


def test_normalized_sgd_moves_the_average_coordinate_by_lr():
    theta = torch.zeros(100)
    grad = torch.randn(100, generator=torch.Generator().manual_seed(0)) * 1e-9
    moved, _ = NormalizedSGD(lr=0.02).update(theta, grad, (), 1)
    assert moved.abs().mean().item() == pytest.approx(0.02, rel=1e-5)
    still, _ = NormalizedSGD(lr=0.02).update(theta, torch.zeros(100), (), 1)
    assert (still == 0).all()


@pytest.mark.parametrize(
    ("make", "wording"),
    [
        (lambda: SGD(lr=0), "lr must be a number in"),
        (lambda: SGD(lr=float("nan")), "lr must be a number in"),
        (lambda: SGD(lr=0.1, nesterov=True), "needs momentum"),
        (lambda: Adam(lr=-1), "lr must be"),
        (lambda: Adam(betas=(0.9, 1.0)), "betas must be"),
        (lambda: optimizers.NormalizedSGD(lr="fast"), "got 'fast'"),
    ],
)
def test_bad_settings(make, wording):
    with pytest.raises(ConfigError, match=wording):
        make()


@pytest.mark.parametrize(
    "make", [lambda lr: SGD(lr, momentum=0.9), Adam, NormalizedSGD], ids=["sgd", "adam", "normalized"]
)
def test_a_falling_step_size_is_that_of_the_steps_own_number(make):
    """Forwards and backwards the step is the one with the plain number."""
    falling, small = make(StepDecay(0.1, after=(3,))), make(0.01)
    theta, grad = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.3, -0.1, 0.2])
    for count, plain in ((3, make(0.1)), (4, small)):
        state = tuple(torch.full_like(s, 0.5) for s in falling.init(theta))
        after, state_after = falling.update(theta, grad, state, count)
        torch.testing.assert_close(after, plain.update(theta, grad, state, count)[0])
        step = InnerStep(theta, state_after, count, None, (), Evaluation(theta.sum(), grad, None))
        for ours, expected in zip(falling.pull_back(step, theta), plain.pull_back(step, theta), strict=True):
            torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(
    ("settings", "wording"),
    [
        ((0.0, (3,)), "start"),
        ((0.1, (5, 3)), "in ascending order"),
        ((0.1, (0,)), "after"),
        ((0.1, (3,), -1.0), "factor"),
    ],
)
def test_step_sizes_that_cannot_be(settings, wording):
    with pytest.raises(ConfigError, match=wording):
        StepDecay(*settings)


class TestCosLog:
    def test_four_waves_that_double_in_length(self):
        ends = [CosLog(0.4, n_steps=15)(1 + step) for step in (0, 1, 3, 7, 15)]
        assert ends == pytest.approx([0] * 5, abs=1e-12)
        rate = CosLog(0.4, n_steps=150_000)
        peaks = [1 + round(10_000 * (2**wave - 1)) for wave in (0.5, 1.5, 2.5, 3.5)]
        assert [rate(step) for step in peaks] == pytest.approx([0.4] * 4, rel=1e-6)

    def test_a_rule_passes_the_number_of_steps_on(self):
        assert Adam(lr=CosLog(0.04)).planned(30) == Adam(lr=CosLog(0.04, 30))
        assert Adam(lr=0.04).planned(30) == Adam(lr=0.04)
        with pytest.raises(ConfigError, match="must know the number of steps"):
            CosLog(0.04)(1)

    def test_a_step_size_becomes_the_peak(self):
        assert Adam(lr=CosLog(0.04, 5)).with_step_size(0.1) == Adam(lr=CosLog(0.1, 5))
        assert Adam(lr=0.04).with_step_size(0.1) == Adam(lr=0.1)

    @pytest.mark.parametrize(("settings", "wording"), [((0.0,), "peak"), ((0.1, 0), "n_steps")])
    def test_bad_settings(self, settings, wording):
        with pytest.raises(ConfigError, match=wording):
            CosLog(*settings)
