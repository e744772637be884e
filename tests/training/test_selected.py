import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from selfcal import (
    Batch,
    BilevelStep,
    Recipe,
    SelfCalibratedClassifier,
    TensorBatches,
    losses,
    recipes,
    train,
)
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError
from selfcal.optimizers import SGD, Adam
from selfcal.selections import DynamicPruning
from selfcal.training import checkpoint, selected
from selfcal.training.batches import Endless
from selfcal.training.interfaces import DataSelection
from selfcal.training.loader_batches import LoaderBatches
from selfcal.training.selected import SelectedBatches, Selection

RULE = DynamicPruning(fraction=0.25, every=2, least=0.5)
PRUNED = {
    "dynamic_pruning": recipes.dynamic_pruning(fraction=0.25, every=2),
    "focal": replace(recipes.focal(gamma=2.0), selection=RULE),
    "bo4sc": replace(recipes.bo4sc(inner_steps=2), selection=RULE),
}
SPREAD = torch.tensor([0.1, 0.9, -0.2, 0.8, -0.3, 0.7, -0.4, 0.6, -0.45, 0.5])


class Last(DataSelection):
    """Keeps one row less in every pass, and learns nothing."""

    def init(self, n_train):
        return {}

    def observe(self, state, output, batch):
        pass

    def keep(self, state, kept, number):
        return torch.arange(len(kept)) < len(kept) - number


@dataclass(frozen=True)
class Wrong(Last):
    kept: torch.Tensor

    def keep(self, state, kept, number):
        return self.kept


def rows(n=20):
    return torch.arange(float(n))[:, None], torch.arange(n) % 2


def still():
    """A network whose confidence rises with the distance from 0, and an optimiser that leaves it as it is."""
    module = nn.Linear(1, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        module.bias.zero_()
    return module, SGD(lr=1e-12)


@pytest.mark.parametrize("recipe", PRUNED.values(), ids=PRUNED)
@pytest.mark.parametrize(("batch_size", "steps"), [(None, (2, 3, 4, 5)), (4, (6, 7, 10, 11))], ids=str)
def test_the_least_confident_rows_leave(recipe, batch_size, steps):
    """Of ten rows two leave after two passes, and of the other eight two more after four.

    A pass over ten rows has three batches of four rows at most, one over eight has two.
    """
    x, y = SPREAD[:, None], (SPREAD > 0).long()
    kept = []
    for max_steps in steps:
        module, optimizer = still()
        settings = {"recipe": recipe, "optimizer": optimizer, "batch_size": batch_size}
        result = train(module, (x, y), (x + 5, y), max_steps=max_steps, **settings)
        kept.append(result.kept_rows.nonzero()[:, 0].tolist())
    eight = [1, 3, 4, 5, 6, 7, 8, 9]
    assert kept == [[*range(10)], eight, eight, [1, 3, 5, 7, 8, 9]]


def test_without_a_selection_no_rows_are_named():
    module, optimizer = still()
    assert (
        train(module, rows(), recipe=recipes.standard(), optimizer=optimizer, max_steps=1).kept_rows is None
    )


def test_batches_keep_their_size_and_get_fewer():
    selection = Selection(Last(), 20)
    data = SelectedBatches(TensorBatches(*rows(), batch_size=7), selection)
    sizes, every = [], []
    for number in range(0, 19, 6):
        batches = [*data.one_pass(number)]
        assert len(data) == len(batches)
        sizes.append([len(batch.y) for batch in batches])
        index = torch.cat([batch.index for batch in batches])
        every.append(sorted(index.tolist()))
        assert torch.cat([batch.x[:, 0] for batch in batches]).tolist() == index.tolist()
    assert sizes == [[7, 7, 6], [7, 7], [4, 4], [2]]
    assert every == [[*range(20 - number)] for number in range(0, 19, 6)]


def test_several_inputs_and_weights_stay_together():
    x, y = rows(9)
    for both in ((x, x + 1), {"a": x, "b": x + 1}):
        data = SelectedBatches(TensorBatches(both, y, 1 + x[:, 0], batch_size=3), Selection(Last(), 9))
        for batch in data.one_pass(4):
            first, second = both_of = batch.x if isinstance(batch.x, tuple) else batch.x.values()
            assert type(batch.x) is type(both)
            assert len(both_of) == 2
            assert torch.equal(first[:, 0].long(), batch.index)
            assert torch.equal(second, first + 1)
            assert torch.equal(batch.weight, 1 + first[:, 0])


def test_a_sampler_that_draws_rows_more_than_once():
    x, y = rows(12)
    sampler = WeightedRandomSampler([1.0] * 6 + [1e-9] * 6, 12, generator=torch.Generator().manual_seed(0))
    loader = LoaderBatches(DataLoader(TensorDataset(x, y), batch_size=4, sampler=sampler))
    selection = Selection(Last(), 12)
    batches = [*SelectedBatches(loader, selection).one_pass(6)]
    assert [len(batch.y) for batch in batches] == [3, 3, 3, 3]
    assert all((batch.index < 6).all() for batch in batches)


def test_a_pass_is_decided_once_and_can_be_resumed_anywhere():
    data = TensorBatches(*rows(), batch_size=5)
    selection = Selection(RULE, 20)
    stream, seen, states = Endless(SelectedBatches(data, selection)), [], []
    for _ in range(25):
        states.append((selection.state(), stream.state()))
        seen.append(next(stream))
        confidence = torch.stack([seen[-1].x[:, 0] / 9, torch.zeros(len(seen[-1].y))], dim=1)
        selection.observe(selected.Output(confidence), seen[-1])
    assert len({len(batch.y) for batch in seen}) > 1
    for start, (of_selection, of_stream) in enumerate(states):
        again = Selection(RULE, 20)
        again.load_state(of_selection)
        resumed = Endless(SelectedBatches(data, again))
        resumed.load_state(of_stream)
        assert torch.equal(next(resumed).index, seen[start].index)


@pytest.mark.parametrize("name", PRUNED)
def test_every_recipe_with_a_selection_is_resumed_bit_for_bit(name, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "MAX_SAVING_FRACTION", math.inf)
    X, y = (torch.from_numpy(part) for part in Blobs(std=1.7).sample(120, seed=0))
    x = X.float()

    class Stop(Exception):  # noqa: N818 - not an error
        pass

    def go(folder=None, stop=None):
        def callback(event):
            if event.n_steps == stop:
                raise Stop

        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 5))
        parts = (x[:80], y[:80]), (x[80:100], y[80:100]), (x[100:], y[100:])
        settings = {"recipe": PRUNED[name], "optimizer": Adam(lr=0.01), "batch_size": 16, "patience": None}
        saving = {"checkpoint": folder, "checkpoint_seconds": 0, "evaluate_every": 1, "callback": callback}
        return train(module, *parts, max_steps=45, **settings, **saving)

    whole = go()
    for stop in (9, 21, 33):
        with pytest.raises(Stop):
            go(tmp_path, stop)
    resumed = go(tmp_path)
    assert int(whole.kept_rows.sum()) == 40
    assert torch.equal(whole.kept_rows, resumed.kept_rows)
    for one, other in zip(whole.module.parameters(), resumed.module.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_run_that_returns_to_an_earlier_state_brings_the_rows_back():
    step = BilevelStep(nn.Linear(1, 2), SGD(lr=0.1), PRUNED["focal"], n_train=20)
    data = SelectedBatches(TensorBatches(*rows()), step.selection)
    before = step.state()
    for number in range(3):
        for batch in data.one_pass(number):
            step(batch)
    assert int(step.selection.kept.sum()) == 15
    changed = step.state()
    step.load_state(before)
    assert step.selection.kept.all()
    step.load_state(changed)
    assert int(step.selection.kept.sum()) == 15


def test_batches_are_halved_if_memory_runs_out():
    selection = Selection(Last(), 20)
    data = SelectedBatches(TensorBatches(*rows(), batch_size=10), selection)
    half = data.halved()
    assert (len(data), len(half)) == (2, 4)
    assert [len(batch.y) for batch in half.one_pass(4)] == [4, 4, 4, 4]
    assert half.halved() is None


def test_a_loader_draws_its_order_from_the_same_generators():
    loader = DataLoader(TensorDataset(*rows()), batch_size=5, shuffle=True, generator=torch.Generator())
    batches = LoaderBatches(loader)
    assert SelectedBatches(batches, Selection(Last(), 20)).generators() == batches.generators()


@pytest.mark.parametrize(
    "kept",
    [torch.zeros(20, dtype=torch.bool), torch.ones(19, dtype=torch.bool), torch.arange(20)],
    ids=["none", "too few", "places"],
)
def test_a_mask_that_is_none(kept):
    data = SelectedBatches(TensorBatches(*rows()), Selection(Wrong(kept), 20))
    with pytest.raises(ConfigError, match=r"must keep at least one row, by a mask of shape \(20,\); got"):
        next(data.one_pass(1))


def test_a_batch_without_an_index():
    step = BilevelStep(nn.Linear(1, 2), SGD(lr=0.1), PRUNED["focal"], n_train=20)
    with pytest.raises(ConfigError, match="which training rows a batch holds"):
        step(Batch(*rows()))


def test_several_processes_cannot_draw_from_one_loader(monkeypatch):
    loader = LoaderBatches(DataLoader(TensorDataset(*rows()), batch_size=5, shuffle=True))
    monkeypatch.setattr(selected, "n_processes", lambda: 2)
    with pytest.raises(ConfigError, match="in memory if several processes train"):
        SelectedBatches(loader, Selection(Last(), 20))
    SelectedBatches(TensorBatches(*rows()), Selection(Last(), 20))


def test_networks_side_by_side_are_refused():
    module = nn.Linear(1, 2)
    module.independent_members = [nn.Linear(1, 2), nn.Linear(1, 2)]
    with pytest.raises(ConfigError, match="needs one network; got 2"):
        BilevelStep(module, SGD(lr=0.1), PRUNED["focal"], n_train=20)


def test_a_selection_must_be_one():
    with pytest.raises(ConfigError, match=r"selection must be a DataSelection object; got 0\.1"):
        Recipe(name="odd", loss=losses.cross_entropy, selection=0.1)


def test_the_classifier_takes_any_recipe_with_a_selection():
    X, y = Blobs(std=1.7).sample(200, seed=0)
    recipe = replace(recipes.focal(), selection=DynamicPruning())
    clf = SelfCalibratedClassifier(recipe, max_epochs=40, random_state=0).fit(X, y)
    assert "DynamicPruning" in repr(clf.method_)
    assert clf.score(X, y) > 0.75
