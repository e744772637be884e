"""Discriminant analysis as a candidate: settings by held-out rows, weights, time."""

import numpy as np
import torch

from selfcal import SelfCalibratedClassifier, metrics, recipes
from selfcal.datasets import Blobs
from selfcal.ensembles import CrossFit, Discriminant
from selfcal.ensembles.discriminant import COMMON_ROWS, DIAGONALS
from selfcal.ensembles.settings import MemberSettings
from selfcal.ensembles.training import Rows
from selfcal.models.factory import NetworkFactory


def trained(X, y, *, weight=None, max_seconds=float("inf"), folds=3):
    rows = Rows(torch.from_numpy(np.asarray(X, dtype=np.float32)), y, weight)
    settings = MemberSettings(NetworkFactory(int(y.max()) + 1), None, 10, 256, True, 10, seed=3)
    trainer = Discriminant().trainer(rows, CrossFit(folds).splits(y, seed=0), settings)
    assert trainer.expected_seconds > 0
    return trainer.train(range(folds), max_seconds)


def test_all_settings_are_tried_and_the_best_is_kept():
    found = trained(*Blobs(std=1.7).sample(300, seed=0))
    losses = found.result.history.selection_loss
    assert len(losses) == found.result.n_steps == len(COMMON_ROWS) * len(DIAGONALS)
    assert found.result.best_step == losses.argmin() + 1
    assert len(found.members) == 3
    assert not np.isnan(found.held_out_logits).any()


def test_classes_of_different_shapes_get_covariances_of_their_own():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 300)
    X = rng.normal(size=(600, 2)) * np.where(y == 0, 0.3, 3.0)[:, None]
    assert type(trained(X, y).members[0][-1]).__name__ == "ClassDistances"


def test_without_time_the_first_setting_is_used():
    found = trained(*Blobs(std=1.7).sample(300, seed=0), max_seconds=0.0)
    assert (found.result.status, found.result.n_steps) == ("out of time", 1)
    assert len(found.members) == 3


def test_weights_count():
    X, y = Blobs(std=1.7).sample(300, seed=0)
    equal, other = (trained(X, y, weight=weight) for weight in (np.ones(300), 1.0 + 9 * (y == 0)))
    unweighted = trained(X, y)
    np.testing.assert_allclose(equal.held_out_logits, unweighted.held_out_logits, atol=1e-5)
    more = other.held_out_logits[0].argmax(axis=1) == 0
    assert more.sum() > (unweighted.held_out_logits[0].argmax(axis=1) == 0).sum()


def test_it_is_nearly_optimal_for_gaussian_classes(tmp_path):
    X, y = Blobs(std=1.7).sample(500, seed=0)
    X_test, y_test = Blobs(std=1.7).sample(5000, seed=1)
    model = SelfCalibratedClassifier(recipes.auto(candidates=["discriminant"]), random_state=0).fit(X, y)
    probs = model.predict_proba(X_test)
    best = metrics.log_loss(y_test, Blobs(std=1.7).posterior(X_test))
    assert metrics.log_loss(y_test, probs) < best + 0.02
    model.save(tmp_path / "model")
    loaded = SelfCalibratedClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X_test), probs)
