"""Networks side by side in the training loop, against each network trained alone; held-out predictions."""

import copy

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from selfcal import recipes
from selfcal.ensembles.folds import CrossFit, SameRows, Split
from selfcal.ensembles.mixing import log_losses
from selfcal.ensembles.modules import ParallelNetworks
from selfcal.ensembles.training import (
    Rows,
    TrainedMembers,
    train_members,
)
from selfcal.models import mlp
from selfcal.optimizers import SGD, Adam
from selfcal.training.engine import held_out_logits, selection_losses, train
from selfcal.training.problem import forward_in_blocks
from selfcal.training.step import BilevelStep
from selfcal.training.types import Batch


def rows_of(n=60, weight=None):
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(n, generator=torch.Generator().manual_seed(1))
    return Rows(x, (x[:, 0] + 0.5 * noise > 0).long().numpy(), weight)


def networks(n, make=lambda: mlp(2, 2, hidden=(8,))):
    made = []
    for seed in range(n):
        torch.manual_seed(seed)
        made.append(make())
    return made


def normalised():
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def options(**further):
    return {
        "recipe": recipes.standard(),
        "optimizer": Adam(lr=0.02),
        "max_epochs": 60,
        "batch_size": None,
        "patience": None,
        **further,
    }


class PartOfBatches:
    """The part of every batch that one of the parallel networks is given, as data of its own."""

    def __init__(self, batches, place, n_members):
        self._batches, self._place, self._n_members = batches, place, n_members
        self.n_rows = batches.n_rows

    def __len__(self):
        return len(self._batches)

    def one_pass(self, number):
        for batch in self._batches.one_pass(number):
            x, y, index, weight = (
                None if part is None else part.tensor_split(self._n_members)[self._place]
                for part in (batch.x, batch.y, batch.index, batch.weight)
            )
            yield Batch(x, y, index, weight)


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("make", [lambda: mlp(2, 2, hidden=(8,)), normalised], ids=["mlp", "batch norm"])
def test_parallel_networks_are_trained_as_each_would_be_alone(batch_size, weighted, make):
    """A step is the mean over all rows: each network's own gradient, divided by the number of networks."""
    rows = rows_of(weight=np.arange(60.0) % 3 + 1 if weighted else None)
    batches = rows.parallel_batches([s.train for s in CrossFit(4).splits(rows.y, seed=0)], batch_size, seed=5)
    members = networks(4, make)
    alone = copy.deepcopy(members)
    together = BilevelStep(ParallelNetworks(members), SGD(lr=0.4), recipes.standard(), n_train=60)
    steps = [BilevelStep(member, SGD(lr=0.1), recipes.standard(), n_train=60) for member in alone]
    for number in range(3):
        for batch in batches.one_pass(number):
            together(batch)
        for place, step in enumerate(steps):
            for batch in PartOfBatches(batches, place, 4).one_pass(number):
                step(batch)
    for member, single in zip(members, alone, strict=True):
        for name, value in single.state_dict().items():
            torch.testing.assert_close(member.state_dict()[name], value, rtol=1e-4, atol=1e-5)


def test_one_network_is_that_network_to_the_bit():
    rows, split = rows_of(), Split(np.arange(40), np.arange(40, 60))
    (member,) = networks(1)
    single = copy.deepcopy(member)
    trained = train_members([member], [split], rows, **options(batch_size=8))
    batches = rows.parallel_batches([split.train], 8, 0)
    found = train(
        single,
        batches,
        None,
        rows.parallel_batches([split.held_out], 8, 1),
        recipe=recipes.standard(),
        optimizer=Adam(lr=0.02),
        max_steps=60 * len(batches),
        patience=None,
    )
    assert found.best_step == trained.result.best_step
    assert all(torch.equal(a, b) for a, b in zip(member.parameters(), single.parameters(), strict=True))


def test_all_networks_return_to_the_step_of_the_lowest_mean_loss():
    rows, splits = rows_of(), CrossFit(3).splits(rows_of().y, seed=0)
    held_out = rows.parallel_batches([split.held_out for split in splits], None, 0)
    seen = []

    def watch(event):
        losses = selection_losses(event.step.problem.module, held_out)
        seen.append((losses, copy.deepcopy(event.step.problem.module.members.state_dict())))

    members = networks(3)
    trained = train_members(members, splits, rows, **options(optimizer=Adam(lr=0.2), callback=watch))
    losses = np.array([losses for losses, _ in seen])
    best = int(losses.mean(axis=1).argmin())
    assert len({best, *losses.argmin(axis=0)}) > 1  # not the best step of every network
    kept = seen[best][1]
    now = torch.nn.ModuleList(members).state_dict()
    assert all(torch.equal(kept[name], value) for name, value in now.items())
    assert trained.result.best_step == 10 * (best + 1)


def test_training_stops_when_the_mean_loss_has_not_improved():
    rows, splits = rows_of(), CrossFit(3).splits(rows_of().y, seed=0)
    result = train_members(
        networks(3), splits, rows, **options(optimizer=Adam(lr=0.2), max_epochs=2000, patience=2)
    ).result
    assert result.status == "stopped early"
    assert result.n_steps == result.best_step + 20


def test_no_row_is_predicted_by_a_network_that_was_trained_on_it():
    rows, splits = rows_of(), CrossFit(3).splits(rows_of().y, seed=0)
    trained = train_members(networks(3), splits, rows, **options())
    assert trained.held_out_logits.shape == (1, 60, 2)
    for member, split in zip(trained.members, splits, strict=True):
        said = forward_in_blocks(member, rows.x[split.held_out]).double()
        np.testing.assert_allclose(trained.held_out_logits[0, split.held_out], said, rtol=1e-5)


def test_labels_of_held_out_rows_do_not_matter_without_early_stopping():
    rows, splits = rows_of(), CrossFit(3).splits(rows_of().y, seed=0)
    changed = rows.y.copy()
    changed[splits[0].held_out] = 1 - changed[splits[0].held_out]
    first, second = (
        train_members(
            networks(3), splits, Rows(rows.x, y, None), **options(early_stopping=False)
        ).held_out_logits[0]
        for y in (rows.y, changed)
    )
    np.testing.assert_array_equal(first[splits[0].held_out], second[splits[0].held_out])
    assert not np.array_equal(first[splits[1].held_out], second[splits[1].held_out])


def test_networks_of_an_ensemble_predict_the_same_rows():
    rows = rows_of()
    splits = SameRows(3, held_out=4).splits(rows.y, seed=0)
    logits = train_members(networks(3), splits, rows, **options(max_epochs=5)).held_out_logits
    assert logits.shape == (3, 60, 2)
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(logits[:, :, 0]).any(axis=0)), splits[0].held_out)


def test_teams_join_to_what_one_team_would_have_been():
    nothing = np.nan
    first = TrainedMembers([nn.Identity()], np.array([[[1.0], [nothing], [2.0]]]), result=None)
    second = TrainedMembers([nn.Identity()], np.array([[[nothing], [3.0], [4.0]]]), result="later")
    joined = first.joined(second)
    assert len(joined.members) == 2
    assert joined.result == "later"
    np.testing.assert_array_equal(joined.held_out_logits[:, :, 0], [[1, 3, 2], [nothing, nothing, 4]])


@pytest.mark.parametrize("batch_size", [None, 4])
def test_selection_loss_is_that_of_each_network_on_its_rows(batch_size):
    weight = np.arange(60.0) % 4 + 1
    rows, members = rows_of(weight=weight), networks(2)
    splits = [np.arange(20), np.arange(20, 60)]
    losses = selection_losses(ParallelNetworks(members), rows.parallel_batches(splits, batch_size, 0))
    for member, own, loss in zip(members, splits, losses, strict=True):
        probs = softmax(member(rows.x[own]).detach().double().numpy(), axis=1)
        expected = np.average(log_losses(probs, rows.y[own]), weights=weight[own])
        assert loss == pytest.approx(expected, rel=1e-5)


def test_held_out_logits_of_parallel_networks_come_network_by_network():
    rows, members = rows_of(), networks(2)
    splits = [np.arange(10), np.arange(30, 40)]
    logits, y, weight = held_out_logits(ParallelNetworks(members), rows.parallel_batches(splits, 3, 0))
    assert weight is None
    assert len(y) == 20
    np.testing.assert_array_equal(np.sort(y[:10]), np.sort(rows.y[:10]))
    expected = members[1](rows.x[30:40]).detach()
    torch.testing.assert_close(logits[10:].sort(dim=0).values, expected.sort(dim=0).values)
