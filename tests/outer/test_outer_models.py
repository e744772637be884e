"""Contracts of every outer model: it fits a loss, its parameters start and stay where they may be, and the cheap
hypergradient through it is the exact one."""

import inspect

import pytest
import torch
from torch import nn

from selfcal import Batch, BilevelStep, Output, losses, models, outer, recipes
from selfcal.errors import ConfigError, DataError
from selfcal.hypergradients import FiniteDifference, OneStep, Unrolled
from selfcal.objectives import ConfidenceBCE
from selfcal.optimizers import SGD, Adam
from selfcal.training.interfaces import OuterModel
from selfcal.training.recipe import Recipe
from selfcal.training.types import Sizes

OF_OTHERS = ("Combined", "StartAt")
PARTS = [getattr(outer, name)() for name in outer.__all__ if name not in OF_OTHERS]
MODELS = [
    *PARTS,
    outer.WeightNet(hidden=2, normalize=False),
    outer.LabelSmoothing(shared=True),
    outer.Combined((outer.GammaNet(),)),
    outer.StartAt(outer.UnitL2(), {"decay": [0.0, 0.1, 0.2]}),
    outer.StartAt(outer.LayerDecay(), {"log10_decay": torch.tensor([0.5, -0.5])}),
    outer.Combined((outer.StartAt(outer.InputNoise(), {"log10_noise": -0.3}), outer.ClassWeights())),
    outer.Combined(
        (outer.LayerDecay(), outer.WeightNet(hidden=2), outer.LabelSmoothing(), outer.Temperature())
    ),
    outer.Combined((outer.UnitL2(), outer.Gamma(), outer.LayerDecay(start=2.0), outer.SampleWeights())),
    outer.Combined((outer.InputNoise(start=0.5), outer.GammaNet(), outer.WeightNet(hidden=2))),
]
SHAPES = {"0.weight": (5, 4), "0.bias": (5,), "2.weight": (3, 5), "2.bias": (3,)}
SIZES = Sizes(n_train=12, n_classes=3, n_features=5, shapes=SHAPES)
LIKE = torch.zeros((), dtype=torch.float64)


def some_rows(n, *, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    return Batch(x, torch.randint(3, (n,), generator=generator), torch.arange(n))


def some_output(n, *, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shapes = (n, 3), (n, 5), (3, 5)
    return Output(*(torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes))


def recipe_with(model, hypergradient=None, **parts):
    return Recipe(
        name="under_test",
        loss=losses.mixed_cross_entropy if "share" in model.provides else losses.smoothed_focal,
        outer_model=model,
        objective=ConfidenceBCE(),
        hypergradient=hypergradient or OneStep(),
        **{"outer_optimizer": SGD(lr=1.0), **parts},
    )


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def test_every_model_is_one():
    assert all(isinstance(model, OuterModel) for model in MODELS)
    assert inspect.isabstract(OuterModel)


@pytest.mark.parametrize("model", MODELS, ids=repr)
class TestContract:
    def test_it_gives_what_it_provides_for_each_row_or_for_all(self, model):
        rows = some_rows(6)
        given = model(model.init(SIZES, LIKE), some_output(6), rows)
        assert set(given) == model.provides
        assert all(value.shape in ((), (6,)) for value in given.values())
        kinds = {name: rows.y.dtype if name == "other" else LIKE.dtype for name in given}
        assert {name: value.dtype for name, value in given.items()} == kinds

    def test_rows_in_another_order_get_the_same(self, model):
        if "other" in model.provides:
            pytest.skip("Which row another one is mixed with depends on their places in the batch.")
        rows, output, order = some_rows(6), some_output(6), torch.tensor([3, 0, 5, 1, 4, 2])
        other_rows = Batch(rows.x[order], rows.y[order], rows.index[order])
        other_output = Output(output.logits[order], output.features[order], output.head)
        params = model.init(SIZES, LIKE)
        others = model(params, other_output, other_rows)
        for name, value in model(params, output, rows).items():
            torch.testing.assert_close(others[name], value if value.ndim == 0 else value[order])

    def test_the_start_is_allowed_and_projecting_twice_is_projecting_once(self, model):
        start = model.init(SIZES, LIKE)
        assert all(torch.equal(model.project(start)[name], value) for name, value in start.items())
        wild = {
            name: value + 10 * torch.sin(torch.arange(value.numel())).view_as(value)
            for name, value in start.items()
        }
        once = model.project(wild)
        assert all(torch.equal(model.project(once)[name], value) for name, value in once.items())

    def test_it_changes_the_update_of_the_parameters_if_it_says_so(self, model):
        members = [dict(network().named_parameters()) for _ in range(2)]
        terms = model.update_term(model.init(SIZES, LIKE), members)
        assert len(terms) == 2
        assert all(bool(term) == model.changes_update for term in terms)
        for term, member in zip(terms, members, strict=True):
            assert all(value.shape == member[name].shape for name, value in term.items())
            assert all((value * member[name] >= 0).all() for name, value in term.items())

    def test_cheap_hypergradients_equal_the_exact_one(self, model):
        moved = []
        for strategy in (Unrolled(), OneStep(tangent="forward"), OneStep(), FiniteDifference()):
            step = BilevelStep(network(), SGD(lr=0.5), recipe_with(model, strategy), n_train=12)
            before = step.outer_params
            step(some_rows(12), some_rows(9, seed=2))
            moved.append({name: value - before[name] for name, value in step.outer_params.items()})
        assert any(bool((value != 0).any()) for value in moved[0].values())
        for other in moved[1:]:
            for name, value in moved[0].items():
                torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-9)

    def test_the_exact_hypergradient_is_the_slope_of_the_outer_loss_after_the_step(self, model):
        """By central differences; the outer loss sees the parameters through the step only."""
        recipe, rule = recipe_with(model, Unrolled()), SGD(lr=0.5)
        train, held_out = some_rows(12), some_rows(9, seed=2)
        start = model.init(SIZES, LIKE)

        def after(params):
            step = BilevelStep(network(), rule, recipe, n_train=12)
            step.load_state({**step.state(), "outer": params})
            step(train, held_out)
            return step.problem.outer(step.problem.read(), params, held_out)

        step = BilevelStep(
            network(), rule, recipe_with(model, Unrolled(), outer_optimizer=SGD(lr=1e-3)), n_train=12
        )
        step(train, held_out)
        for name, value in start.items():
            slope = (value - step.outer_params[name]) / 1e-3
            for place in range(0, value.numel(), 4):
                bump = torch.zeros_like(value).view(-1)
                bump[place] = 1e-5
                up, down = (after({**start, name: value + sign * bump.view_as(value)}) for sign in (1, -1))
                assert slope.view(-1)[place].item() == pytest.approx(float(up - down) / 2e-5, abs=1e-6)

    def test_it_leaves_nothing_in_the_network(self, model):
        module = network()
        names, hooks = list(module.state_dict()), len(module[2]._forward_pre_hooks)
        step = BilevelStep(module, Adam(lr=0.01), recipe_with(model), n_train=12)
        for _ in range(3):
            step(some_rows(12), some_rows(9, seed=2))
        assert list(module.state_dict()) == names
        assert len(module[2]._forward_pre_hooks) == hooks


class TestGammaNet:
    def test_gamma_is_one_at_the_start_whatever_the_features(self):
        for sizes in (SIZES, Sizes(9, n_classes=7, n_features=2), Sizes(9, n_classes=2, n_features=1)):
            features = (
                torch.randn(20, sizes.n_features, generator=torch.Generator().manual_seed(0)).double() * 30
            )
            net = outer.GammaNet()
            gamma = net(net.init(sizes, LIKE), Output(torch.zeros(20, 2), features), some_rows(20))["gamma"]
            torch.testing.assert_close(gamma, torch.ones(20, dtype=torch.float64))

    def test_the_formula(self):
        net, output = outer.GammaNet(directions=2, temperature=0.1), some_output(4)
        params = {"directions": torch.randn(5, 2).double(), "unit": torch.randn(5).double()}
        attention = torch.softmax(output.features @ params["directions"], dim=1)
        expected = ((attention @ params["directions"].T) @ params["unit"]).abs() / 0.1
        torch.testing.assert_close(net(params, output, some_rows(4))["gamma"], expected)

    def test_no_gradient_flows_through_gamma_into_the_network(self):
        """The training gradient is that of the focal loss with each row's gamma as a number."""
        module, rows = network(), some_rows(12)
        problem = BilevelStep(module, SGD(lr=0.1), recipe_with(outer.GammaNet()), n_train=12).problem
        params = {"directions": torch.randn(5, 3).double(), "unit": torch.randn(5).double()}
        gamma = problem.hyperparameters(problem.read(), params, rows)["gamma"]
        losses.focal(module(rows.x), rows.y, gamma=gamma).mean().backward()
        expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
        torch.testing.assert_close(problem.evaluate(params, rows).grad, expected)

    def test_without_a_training_step_nothing_reaches_it(self):
        """The outer loss sees A and W through the network only: as the step gets small, so does their gradient."""
        sizes = []
        for lr in (1e-4, 1e-6):
            step = BilevelStep(network(), SGD(lr=lr), recipe_with(outer.GammaNet()), n_train=12)
            before = step.outer_params
            step(some_rows(12), some_rows(9, seed=2))
            sizes.append(max(float((step.outer_params[k] - before[k]).abs().max()) for k in before))
        assert sizes[1] == pytest.approx(sizes[0] / 100, rel=0.05)

    @pytest.mark.parametrize("n_classes", [10, 100])
    def test_it_adds_less_than_one_percent_to_resnet_18(self, n_classes):
        module = models.resnet18(n_classes)
        step = BilevelStep(module, SGD(lr=0.1), recipe_with(outer.GammaNet()), n_train=12)
        added = sum(value.numel() for value in step.outer_params.values())
        assert 0 < added < 0.01 * sum(p.numel() for p in module.parameters())

    def test_a_network_without_a_linear_layer(self):
        module = nn.Sequential(nn.Conv1d(1, 3, 4), nn.Flatten())
        with pytest.raises(
            ConfigError, match=r"a Sequential, has no linear layer. End it with torch\.nn\.Linear"
        ):
            BilevelStep(module, SGD(lr=0.1), recipe_with(outer.GammaNet()), n_train=12)

    def test_a_network_whose_last_linear_layer_is_not_its_head(self):
        class TwoHeads(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(4, 3)
                self.spare = nn.Linear(4, 7)

            def forward(self, x):
                return self.head(x)

        rows = some_rows(12)
        step = BilevelStep(TwoHeads().double(), SGD(lr=0.1), recipe_with(outer.GammaNet()), n_train=12)
        with pytest.raises(
            ConfigError, match=r"'spare' was called 0 times\. Name the right one with .* `layer`"
        ):
            step(rows, rows)
        with pytest.raises(ConfigError, match=r"layer must be one of .*head.*spare.*got 'haed'"):
            BilevelStep(TwoHeads(), SGD(lr=0.1), recipe_with(outer.GammaNet(layer="haed")), n_train=12)
        named = recipe_with(outer.GammaNet(layer="head"))
        step = BilevelStep(TwoHeads().double(), SGD(lr=0.1), named, n_train=12)
        step(rows, rows)
        assert step.hyperparameters(rows)["gamma"].shape == (12,)


def test_the_penalty_is_part_of_the_training_loss():
    module = network()
    step = BilevelStep(module, SGD(lr=0.1), recipe_with(outer.UnitL2(start=0.3)), n_train=12)
    with torch.no_grad():
        plain = losses.cross_entropy(module(some_rows(12).x), some_rows(12).y).mean()
        expected = float(plain + 0.3 * module[2].weight.square().sum())
    assert step(some_rows(12), some_rows(9)).inner_loss == pytest.approx(expected)


def test_label_smoothing_needs_to_know_the_classes():
    with pytest.raises(ConfigError, match=r"Pass LabelSmoothing\(n_classes=...\)"):
        outer.LabelSmoothing().init(Sizes(n_train=5), LIKE)
    assert len(outer.LabelSmoothing(n_classes=4).init(Sizes(n_train=5), LIKE)["smoothing"]) == 4
    model = outer.LabelSmoothing()
    with pytest.raises(DataError, match="below the number of classes, 3; got 3"):
        model(model.init(SIZES, LIKE), some_output(2), Batch(torch.zeros(2, 1), torch.tensor([0, 3])))


@pytest.mark.parametrize(
    ("build", "wording"),
    [
        (lambda: outer.GammaNet(temperature=0), "temperature"),
        (lambda: outer.GammaNet(directions=0), "directions"),
        (lambda: outer.Gamma(start=-1), "start"),
        (lambda: outer.UnitL2(start=-1), "start"),
        (lambda: outer.LabelSmoothing(start=0.7), "start"),
        (lambda: outer.LayerDecay(start=11.0), r"start must be a number in \[0\.001, 10"),
        (lambda: outer.LayerDecay(bounds=(0.0, 1.0)), "bounds"),
        (lambda: outer.InputNoise(start=0.0), r"start must be a number in \[0\.001, 1"),
        (lambda: outer.Temperature(start=0.1), "start"),
        (lambda: outer.WeightNet(hidden=0), "hidden"),
        (lambda: outer.ClassWeights(n_classes=0), "n_classes"),
        (lambda: outer.MixupStrength(start=1.5), "start"),
    ],
    ids=[
        "tau",
        "directions",
        "gamma",
        "l2",
        "smoothing",
        "decay",
        "bounds",
        "noise",
        "temperature",
        "hidden",
        "classes",
        "mixup",
    ],
)
def test_settings_out_of_range(build, wording):
    with pytest.raises(ConfigError, match=wording):
        build()


def test_an_unknown_class_in_the_outer_set():
    step = BilevelStep(network(), SGD(lr=0.1), recipes.bo4sc(inner_steps=1), n_train=12)
    with pytest.raises(DataError, match=r"class codes from 0 to 2, .* row 1 of the batch is 3"):
        step(some_rows(12), (some_rows(2).x, torch.tensor([0, 3])))
