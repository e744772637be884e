import numpy as np
import pytest
from torch import nn

from selfcal import SelfCalibratedClassifier, recipes
from selfcal.datasets import Blobs
from selfcal.ensembles.settings import DEFAULT_OPTIMIZERS, FIXED_EPOCHS, MemberSettings, expected_seconds
from selfcal.models.batch_ensemble import BatchEnsembleLinear
from selfcal.models.factory import NetworkFactory


def settings(rate=None, max_epochs=1000, patience=7):
    return MemberSettings(NetworkFactory(5), rate, max_epochs, 32, True, patience, seed=3)


def test_expected_seconds_grow_with_everything():
    base = expected_seconds(nn.Linear(9, 2), 1024, 5)
    assert expected_seconds(nn.Linear(9, 2), 2048, 5) == 2 * base
    assert expected_seconds(nn.Linear(9, 2), 1024, 10) == 2 * base
    assert expected_seconds(nn.Linear(19, 2), 1024, 5) > base
    assert expected_seconds(nn.Linear(9, 2), 1024, 5, n_epochs=50) == 2 * base


def test_patience_does_not_cut_waves_of_the_step_size_short():
    arguments = settings().training("name", "realmlp", 0, 900)
    assert (arguments["max_epochs"], arguments["patience"]) == (FIXED_EPOCHS["realmlp"], None)
    assert settings(max_epochs=9).training("name", "realmlp", 0, 900)["max_epochs"] == 9
    arguments = settings().training("name", "mlp", 0, 900)
    assert (arguments["max_epochs"], arguments["patience"]) == (1000, 7)


@pytest.mark.parametrize("kind", DEFAULT_OPTIMIZERS)
def test_a_given_step_size_keeps_the_waves(kind):
    rules = DEFAULT_OPTIMIZERS[kind].planned(999), settings(rate=0.5).optimizer(kind).planned(999)
    usual, given = ([rule.step_size(count) for count in range(1, 1000)] for rule in rules)
    assert max(given) == pytest.approx(0.5, rel=1e-3)
    np.testing.assert_allclose(np.divide(given, max(given)), np.divide(usual, max(usual)), atol=1e-12)


def test_all_waves_are_run_and_the_best_state_is_kept():
    X, y = Blobs(std=1.7).sample(150, seed=0)
    model = SelfCalibratedClassifier(
        recipes.auto(candidates=["realmlp"], folds=3), hidden=(8,), batch_size=50, patience=1, random_state=0
    ).fit(X, y)
    assert model.n_iter_ == FIXED_EPOCHS["realmlp"] * 2
    losses = model.history_.selection_loss
    assert model.best_iter_ == model.history_.selection_step[losses.argmin()]
    assert np.log(5) > losses.min()


def test_every_member_multiplies_with_the_weights_they_share():
    few, many = (expected_seconds(BatchEnsembleLinear(k, 900, 800), 10**6, 1) for k in (1, 16))
    assert 15 < many / few < 16.1
