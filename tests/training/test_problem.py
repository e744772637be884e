import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

from selfcal import BilevelStep, losses, recipes
from selfcal.ensembles.modules import ParallelNetworks
from selfcal.errors import ConfigError
from selfcal.optimizers import SGD
from selfcal.outer import SampleWeights
from selfcal.training.problem import BilevelProblem
from selfcal.training.types import Batch


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2))


X, Y = torch.randn(10, 3, generator=torch.Generator().manual_seed(1)), torch.arange(10) % 2


def test_read_and_write_round_trip():
    problem = BilevelProblem(network(), recipes.standard())
    theta = problem.read()
    assert theta.shape == (3 * 4 + 4 + 4 + 4 + 4 * 2 + 2,)
    problem.write(theta + 1)
    torch.testing.assert_close(problem.read(), theta + 1)


def test_evaluate_equals_backward():
    module = nn.Linear(3, 2)
    problem = BilevelProblem(module, recipes.standard())
    loss, grad, output = problem.evaluate({}, Batch(X, Y))
    torch.testing.assert_close(output.logits, module(X))
    expected = nn.functional.cross_entropy(module(X), Y)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item())
    torch.testing.assert_close(grad, torch.cat([p.grad.reshape(-1) for p in module.parameters()]))


def test_inner_is_the_mean_of_weight_times_loss_divided_by_n():
    module = nn.Linear(3, 2)
    problem = BilevelProblem(module, recipes.bo4sc())
    weight, own = torch.linspace(0, 1, 20), torch.linspace(1, 2, 10)
    index = torch.arange(5, 15)
    loss = problem.inner(problem.read(), {"weight": weight}, Batch(X, Y, index, own))
    expected = nn.functional.cross_entropy(module(X), Y, reduction="none") * weight[index] * own
    torch.testing.assert_close(loss, expected.sum() / 10)


class Members(nn.Linear):
    """Three members in training, their mean in evaluation."""

    def __init__(self):
        super().__init__(3, 6)

    def forward(self, x):
        logits = super().forward(x).unflatten(1, (3, 2))
        return logits if self.training else logits.softmax(dim=2).mean(dim=1).log()


@pytest.mark.parametrize("loss", [losses.cross_entropy, losses.focal, losses.mmce])
def test_the_loss_of_several_members_is_the_mean_of_theirs(loss):
    module, own = Members(), torch.linspace(1, 2, 10)
    problem = BilevelProblem(module, recipes.with_loss(loss))
    found = problem.evaluate({}, Batch(X, Y, weight=own))
    assert found.output.logits.shape == (10, 3, 2)
    expected = sum((own * loss(logits, Y)).mean() for logits in module(X).unbind(1)) / 3
    expected.backward()
    torch.testing.assert_close(found.loss, expected.detach())
    torch.testing.assert_close(found.grad, torch.cat([p.grad.reshape(-1) for p in module.parameters()]))


def test_outer_models_see_the_mean_of_the_members():
    module = Members()
    problem = BilevelProblem(module, recipes.standard())
    seen = problem.evaluate({}, Batch(X, Y)).output.as_data
    torch.testing.assert_close(seen.softmax(dim=1), module.eval()(X).exp())


def test_members_are_for_training_alone():
    problem = BilevelProblem(Members().eval(), recipes.bo4sc())
    problem.module.forward = lambda x: torch.zeros(len(x), 3, 2)
    with pytest.raises(ConfigError, match=r"in training alone .*got shape \(10, 3, 2\)"):
        problem.outer(problem.read(), {}, Batch(X, Y))


def test_every_recipe_with_an_outer_level_that_reads_no_head_trains_members():
    rows = torch.cat([X] * 3), Y.repeat(3)
    for learn in ("decay", "gamma", "noise", "temperature", "weights"):
        recipe = recipes.crossfit(learn=learn).networks[0].recipe
        step = BilevelStep(Members(), SGD(lr=0.1), recipe, n_train=30)
        for _ in range(recipe.inner_steps):
            report = step(Batch(*rows, torch.arange(30)), Batch(X, Y))
        assert math.isfinite(report.outer_loss)
        assert not report.skipped


@dataclass(frozen=True)
class PullToOne(SampleWeights):
    """Also pulls the weights of the last layer to one."""

    changes_update = True

    def network_input(self, outer, x):
        return 2 * x

    def update_term(self, outer, members):
        return [{"4.weight": number * (member["4.weight"] - 1)} for number, member in enumerate(members, 1)]


def pulled(module):
    return BilevelProblem(module, replace(recipes.bo4sc(), outer_model=PullToOne()))


def test_the_update_term_of_each_member_is_in_its_place():
    module = ParallelNetworks([network(), network()])
    problem = pulled(module)
    theta = problem.read() + 0.5
    term = problem.update_term(theta, {})
    parts = zip(
        module.named_parameters(),
        *(flat.split([p.numel() for p in module.parameters()]) for flat in (theta, term)),
        strict=True,
    )
    for (name, _), value, own in parts:
        number = int(name.split(".")[1]) + 1
        expected = number * (value - 1) if name.endswith("4.weight") else torch.zeros_like(value)
        torch.testing.assert_close(own, expected)
    assert BilevelProblem(module, recipes.bo4sc()).update_term(theta, {}) is None


def test_a_step_subtracts_the_update_term_times_the_step_size():
    (ours, plain), batch = (network().eval(), network().eval()), Batch(X, Y, torch.arange(10))
    recipe = replace(recipes.bo4sc(), outer_model=PullToOne())
    BilevelStep(ours, SGD(lr=0.1), recipe, n_train=10)(batch)
    BilevelStep(plain, SGD(lr=0.1), recipes.bo4sc(), n_train=10)(replace(batch, x=2 * X))
    start = network()[4].weight.detach()
    torch.testing.assert_close(ours[4].weight, plain[4].weight - 0.1 * (start - 1))
    torch.testing.assert_close(ours[0].weight, plain[0].weight)


def test_an_update_term_for_an_unknown_parameter_is_an_error():
    class Misspelt(PullToOne):
        def update_term(self, outer, members):
            return [{"4.wieght": member["4.weight"]} for member in members]

    problem = BilevelProblem(network(), replace(recipes.bo4sc(), outer_model=Misspelt()))
    with pytest.raises(ConfigError, match=r"names of trainable parameters; got 4\.wieght\."):
        problem.update_term(problem.read(), {})


def test_only_training_sees_the_changed_input():
    problem = pulled(network().eval())
    theta, batch = problem.read(), Batch(X, Y, torch.arange(10))
    changed = problem.output(theta, replace(batch, x=2 * X)).logits
    outer = {"weight": torch.ones(10)}
    torch.testing.assert_close(problem.training_output(theta, outer, batch).logits, changed)
    torch.testing.assert_close(problem.evaluate(outer, batch).output.logits, changed)
    assert not torch.equal(problem.output(theta, batch).logits, changed)


def test_sizes_have_the_shapes_of_one_network():
    expected = {name: tuple(p.shape) for name, p in network().named_parameters()}
    for module in (network(), ParallelNetworks([network(), network()])):
        assert BilevelProblem(module, recipes.standard()).sizes(10).shapes == expected


def test_frozen_parameters_are_not_trained():
    module = network()
    module[0].requires_grad_(False)
    problem = BilevelProblem(module, recipes.standard())
    assert problem.read().numel() == sum(p.numel() for p in module.parameters() if p.requires_grad)


def test_tied_parameters_count_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    problem = BilevelProblem(Tied(), recipes.standard())
    theta = problem.read()
    assert theta.numel() == 9
    loss = problem.inner(theta, {}, Batch(X, Y))
    torch.testing.assert_close(loss, problem.evaluate({}, Batch(X, Y)).loss)


def test_look_ahead_leaves_no_trace():
    module = network()
    problem = BilevelProblem(module, recipes.standard())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    rng = torch.get_rng_state()
    with problem.look_ahead():
        problem.inner(problem.read(), {}, Batch(X, Y))
        assert not torch.equal(module[1].running_mean, before["1.running_mean"])
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), rng)
    assert all(p.grad is None for p in module.parameters())
    assert module.training


def test_outer_sees_the_network_as_it_will_predict():
    module = network()
    problem = BilevelProblem(module, recipes.bo4sc())
    first, second = (problem.outer(problem.read(), {}, Batch(X, Y)) for _ in range(2))
    assert first == second  # dropout off
    assert module.training


@pytest.mark.parametrize(
    ("module", "wording"),
    [
        (nn.ReLU(), "no trainable parameters"),
        (nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2).double()]), "one dtype and one device"),
    ],
)
def test_modules_that_cannot_be_trained(module, wording):
    with pytest.raises(ConfigError, match=wording):
        BilevelProblem(module, recipes.standard())


@pytest.mark.parametrize(
    ("returned", "wording"), [(lambda x: x[:, 0], r"shape \(10,\)"), (lambda x: (x, x), "got a tuple")]
)
def test_networks_that_do_not_return_logits(returned, wording):
    class Odd(nn.Linear):
        def forward(self, x):
            return returned(super().forward(x))

    problem = BilevelProblem(Odd(3, 2), recipes.standard())
    with pytest.raises(ConfigError, match=wording):
        problem.evaluate({}, Batch(X, Y))
