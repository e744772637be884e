from dataclasses import dataclass, replace

import pytest
import torch

from selfcal import Batch, BilevelStep, losses, models, optimizers, outer, recipes, train
from selfcal.errors import ConfigError
from selfcal.training.types import Output, Sizes

SHAPES = {"0.weight": (4, 2), "0.bias": (4,), "1.weight": (3, 4)}
SIZES = Sizes(n_train=6, n_classes=3, n_features=2, shapes=SHAPES)
LIKE = torch.zeros((), dtype=torch.float64)
ROWS = Batch(torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), torch.arange(4))
OUTPUT = Output(torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))


def test_each_part_gives_what_it_gives_alone():
    parts = outer.LayerDecay(), outer.Gamma(start=2.0), outer.SampleWeights(), outer.LabelSmoothing()
    whole = outer.Combined(parts)
    params, given = whole.init(SIZES, LIKE), whole(whole.init(SIZES, LIKE), OUTPUT, ROWS)
    assert set(params) == {
        "LayerDecay.log10_decay",
        "Gamma.gamma",
        "SampleWeights.weight",
        "LabelSmoothing.smoothing",
    }
    assert set(given) == whole.provides == {"gamma", "weight", "smoothing"}
    for part in parts:
        for name, value in part(part.init(SIZES, LIKE), OUTPUT, ROWS).items():
            assert torch.equal(given[name], value)
    member = {name: torch.ones(shape).double() for name, shape in SHAPES.items()}
    (term,), (alone,) = (model.update_term(model.init(SIZES, LIKE), [member]) for model in (whole, parts[0]))
    assert set(term) == set(alone) == {"0.weight", "1.weight"}
    assert all(torch.equal(value, alone[name]) for name, value in term.items())


def test_parts_of_the_update_add_up():
    @dataclass(frozen=True)
    class BiasDecay(outer.LayerDecay):
        def update_term(self, params, members):
            decay = self.coefficients(params)[0]
            return [{name: decay * value for name, value in member.items()} for member in members]

    whole = outer.Combined((outer.LayerDecay(start=0.1), BiasDecay(start=1.0)))
    member = {name: torch.ones(shape).double() for name, shape in SHAPES.items()}
    (term,) = whole.update_term(whole.init(SIZES, LIKE), [member])
    expected = {"0.weight": 1.1, "0.bias": 1.0, "1.weight": 1.1}
    for name, value in expected.items():
        torch.testing.assert_close(term[name], torch.full(SHAPES[name], value).double())


def test_the_optimiser_is_adapted_to_every_part():
    rule = optimizers.AdamW(lr=0.1, weight_decay=0.5)
    assert outer.Combined((outer.Gamma(), outer.LayerDecay())).adapt_optimizer(rule).weight_decay == 0
    assert outer.Combined((outer.Gamma(), outer.Temperature())).adapt_optimizer(rule) is rule


def test_every_part_is_projected():
    whole = outer.Combined((outer.LayerDecay(), outer.Gamma(), outer.Temperature()))
    far = {name: torch.full_like(value, 99.0) for name, value in whole.init(SIZES, LIKE).items()}
    most = {name: value.max().item() for name, value in whole.project(far).items()}
    assert most == {"LayerDecay.log10_decay": 1.0, "Gamma.gamma": 10.0, "Temperature.temperature": 4.0}


def test_what_one_part_needs_the_whole_needs():
    whole = outer.Combined((outer.Gamma(), outer.UnitL2(layer="head")))
    assert (whole.reads_head, whole.layer, whole.changes_update) == (True, "head", False)


@pytest.mark.parametrize(
    ("parts", "wording"),
    [
        ((outer.Gamma(), outer.GammaNet()), "more than one provides gamma"),
        ((outer.SampleWeights(), outer.WeightNet()), "more than one provides weight"),
        ((outer.LayerDecay(), outer.LayerDecay(start=1.0)), "more than one provides LayerDecay"),
        ((outer.GammaNet(layer="a"), outer.UnitL2(layer="b")), "the same layer; got .*'a', 'b'"),
        ((), "Combined needs a tuple of outer models"),
        ((losses.focal,), "Combined needs a tuple of outer models"),
    ],
    ids=["gamma", "weight", "decay", "layer", "none", "other"],
)
def test_models_that_cannot_be_combined(parts, wording):
    with pytest.raises(ConfigError, match=wording):
        outer.Combined(parts)


def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, 2, generator=generator)
    return x, (x[:, 0] + 0.5 * torch.randn(60, generator=generator) > 0).long()


def parts_of_training():
    x, y = data()
    torch.manual_seed(0)
    module = models.mlp(2, 2, hidden=(6,))
    parts = outer.LayerDecay(), outer.LabelSmoothing(), outer.Gamma(), outer.Temperature(), outer.WeightNet()
    learned = recipes.crossfit(learn="smoothing", inner_steps=3).candidates[0].recipe
    recipe = replace(learned, outer_model=outer.Combined(parts))
    return module, (x[:40], y[:40]), (x[40:], y[40:]), recipe


def test_a_restored_step_continues_bit_for_bit():
    module, rows, held_out, recipe = parts_of_training()
    batch = Batch(*rows, torch.arange(40))
    whole = BilevelStep(module, optimizers.Adam(lr=0.05), recipe, n_train=40)
    for _ in range(6):
        whole(batch, held_out)
    middle = whole.state()
    again = BilevelStep(parts_of_training()[0], optimizers.Adam(lr=0.05), recipe, n_train=40)
    again.load_state(middle)
    for _ in range(7):
        assert whole(batch, held_out) == again(batch, held_out)
    assert torch.equal(whole.problem.read(), again.problem.read())
    assert all(torch.equal(v, again.outer_params[name]) for name, v in whole.outer_params.items())


def test_a_killed_run_is_resumed_bit_for_bit(tmp_path):
    class KilledError(Exception):
        pass

    def kill(event):
        if event.n_steps == 20:
            raise KilledError

    def run(folder, **settings):
        module, rows, held_out, recipe = parts_of_training()
        return train(
            module,
            rows,
            held_out,
            recipe=recipe,
            optimizer=optimizers.Adam(lr=0.05),
            max_steps=40,
            checkpoint=tmp_path / folder,
            checkpoint_seconds=0,
            **settings,
        )

    with pytest.raises(KilledError):
        run("killed", callback=kill)
    whole, resumed = run("whole"), run("killed")
    for name, path in whole.history.snapshots.items():
        assert (path == resumed.history.snapshots[name]).all()
    for own, other in zip(whole.module.parameters(), resumed.module.parameters(), strict=True):
        assert torch.equal(own, other)


def test_the_path_of_each_is_kept():
    module, rows, held_out, recipe = parts_of_training()
    result = train(module, rows, held_out, recipe=recipe, optimizer=optimizers.Adam(lr=0.05), max_steps=30)
    history = result.history
    assert history.snapshot_step.tolist() == list(range(0, 31, 3))
    assert history.snapshots["LayerDecay.log10_decay"].shape == (11, 2)
    for name, value in result.outer_params.items():
        path = history.snapshots[name]
        assert (path[-1] == value.numpy()).all()
        assert (path != path[0]).any()
