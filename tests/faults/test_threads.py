"""Fits in several threads at once: each gives what it gives alone, and global random streams stay as they were."""

import copy
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from selfcal import SelfCalibratedClassifier, optimizers, recipes, train
from selfcal.datasets import Blobs

X, Y = Blobs(std=1.7).sample(300, seed=0)
METHODS = ("standard", "bo4sc", "crossfit", "auto")
LONG = 3600.0
"""A time budget that no fit here reaches: one that is cut short depends on the clock."""


class OwnDropout(nn.Module):
    """A user's network, which draws from torch's global stream as torch's own functions do."""

    def __init__(self, n_features, n_classes):
        super().__init__()
        self.first, self.last = nn.Linear(n_features, 16), nn.Linear(16, n_classes)

    def forward(self, x):
        hidden = F.dropout(self.first(x).relu(), 0.2, self.training)
        return self.last(hidden + 0.1 * torch.randn_like(hidden) if self.training else hidden)


def probabilities(method, seed, network=None):
    settings = {"max_epochs": 12, "time_budget": LONG, "random_state": seed}
    return SelfCalibratedClassifier(method, network=network, **settings).fit(X, Y).predict_proba(X)


def global_states():
    numpys = repr(np.random.get_state())  # noqa: NPY002 # the global stream is what this is about
    return torch.get_rng_state().tolist(), numpys, random.getstate()


@pytest.mark.fault("F17")
@pytest.mark.parametrize(
    "network", [None, pytest.param(OwnDropout, marks=pytest.mark.slow)], ids=["selfcal", "own"]
)
def test_concurrent_fits_equal_serial_ones(network):
    tasks = [(method, seed, network) for method in METHODS for seed in (0, 1)]
    alone = [probabilities(*task) for task in tasks]
    before = global_states()
    with ThreadPoolExecutor(len(tasks)) as pool:
        together = list(pool.map(lambda task: probabilities(*task), tasks))
    assert global_states() == before
    for task, expected, got in zip(tasks, alone, together, strict=True):
        assert np.array_equal(got, expected), task


@pytest.mark.fault("F17")
def test_a_fit_and_another_thread_do_not_draw_from_one_another():
    def draws():
        torch.manual_seed(5)
        return torch.stack([torch.rand(3) for _ in range(2000)])

    fitted, drawn = probabilities("crossfit", 0, OwnDropout), draws()
    with ThreadPoolExecutor(1) as pool:
        fit = pool.submit(probabilities, "crossfit", 0, OwnDropout)
        assert torch.equal(draws(), drawn)
        assert np.array_equal(fit.result(), fitted)


@pytest.mark.fault("F17")
@pytest.mark.parametrize("method", [*METHODS[:-1], pytest.param(METHODS[-1], marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", [0, None])
def test_global_random_states_are_neither_used_nor_changed(method, seed):
    before = global_states()
    first = probabilities(method, seed)
    assert global_states() == before
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 # likewise
    random.seed(1)
    assert np.array_equal(probabilities(method, seed), first) == (seed is not None)


@pytest.mark.fault("F17")
@pytest.mark.parametrize("recipe", [recipes.mixup(), recipes.bo4sc(inner_steps=3)], ids=["mixup", "bo4sc"])
def test_a_shuffled_loader_follows_the_seed_alone(recipe):
    data, outer = (
        TensorDataset(torch.tensor(X[part], dtype=torch.float32), torch.tensor(Y[part]))
        for part in (slice(0, 150), slice(150, 300))
    )
    start = nn.Sequential(nn.Linear(2, 16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 5))

    def trained(global_seed):
        torch.manual_seed(global_seed)
        before = global_states()
        loaders = [DataLoader(rows, batch_size=50, shuffle=True) for rows in (data, outer)]
        module = copy.deepcopy(start)
        train(module, *loaders, recipe=recipe, optimizer=optimizers.Adam(lr=0.01), max_steps=30, seed=3)
        assert global_states() == before
        return nn.utils.parameters_to_vector(module.parameters())

    assert torch.equal(trained(1), trained(2))
