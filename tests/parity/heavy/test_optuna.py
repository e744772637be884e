"""A search over the settings of a recipe, pruned by the losses that the callback of `train` is given."""

import pytest
import torch

from selfcal import models, optimizers, recipes, train
from selfcal.datasets import Blobs

optuna = pytest.importorskip("optuna")

X, Y = (torch.tensor(part) for part in Blobs(std=1.7).sample(300, seed=0))
PARTS = [(X[rows].float(), Y[rows]) for rows in torch.arange(300).split([150, 75, 75])]


def objective(trial):
    recipe = recipes.bo4sc(outer_lr=trial.suggest_float("outer_lr", 0.01, 1.0, log=True), inner_steps=5)
    seen = []

    def report(event):
        seen.append(event.selection_loss)
        trial.report(event.selection_loss, event.n_steps)
        return trial.should_prune()

    torch.manual_seed(0)
    rule = optimizers.Adam(lr=trial.suggest_float("lr", 1e-4, 0.1, log=True))
    result = train(
        models.mlp(2, 5),
        *PARTS,
        recipe=recipe,
        optimizer=rule,
        max_epochs=30,
        evaluate_every=5,
        callback=report,
    )
    assert seen == result.history.selection_loss.tolist()
    if trial.should_prune():
        raise optuna.TrialPruned
    return result.history.selection_loss.min()


def test_poor_settings_are_stopped_early_and_the_best_is_found():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=optuna.samplers.RandomSampler(seed=0), pruner=optuna.pruners.MedianPruner(n_startup_trials=2)
    )
    study.optimize(objective, n_trials=8)
    states = [trial.state for trial in study.trials]
    assert states.count(optuna.trial.TrialState.PRUNED) >= 1
    assert states.count(optuna.trial.TrialState.FAIL) == 0
    pruned = next(t for t in study.trials if t.state is optuna.trial.TrialState.PRUNED)
    whole = next(t for t in study.trials if t.state is optuna.trial.TrialState.COMPLETE)
    assert max(pruned.intermediate_values) < max(whole.intermediate_values)
    assert study.best_value == min(t.value for t in study.trials if t.value is not None)
