"""Boosted trees as candidates: the number of iterations, categories, weights and time."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from selfcal.datasets import Blobs
from selfcal.ensembles import Boosting, CrossFit, Split
from selfcal.ensembles.settings import MemberSettings
from selfcal.ensembles.training import Rows
from selfcal.errors import ConfigError
from selfcal.models.factory import NetworkFactory
from selfcal.tabular.features import FeatureGroups
from selfcal.training.problem import forward_in_blocks


def settings(n_classes):
    return MemberSettings(NetworkFactory(n_classes), None, 10, 256, True, 10, seed=3)


def trainer(X, y, candidate=None, *, weight=None, groups=None, folds=3):
    rows = Rows(torch.from_numpy(np.asarray(X, dtype=np.float32)), y, weight, groups)
    splits = CrossFit(folds).splits(y, seed=0)
    return (candidate or Boosting(max_iter=60)).trainer(rows, splits, settings(int(y.max()) + 1)), splits


@pytest.fixture(scope="module")
def blobs():
    return Blobs(std=1.7).sample(400, seed=0)


def test_one_number_of_iterations_has_the_lowest_log_loss_on_all_held_out_rows(blobs):
    X, y = blobs
    made, splits = trainer(X, y)
    trained = made.train(range(3), float("inf"))
    table, losses = X.astype(np.float32).astype(np.float64), []
    for member, split in enumerate(splits):
        model = made.candidate.model(made._columns, 3 + member).set_params(max_iter=trained.result.n_steps)
        model.fit(table[split.train], y[split.train])
        staged = model.staged_predict_proba(table[split.held_out])
        losses.append([log_loss(y[split.held_out], probs, labels=range(5)) for probs in staged])
        best = list(model.staged_predict_proba(table[split.held_out]))[trained.result.best_step - 1]
        ours = forward_in_blocks(trained.members[member], torch.from_numpy(X.astype(np.float32)))
        np.testing.assert_allclose(ours[split.held_out].softmax(dim=1), best, atol=1e-5)
    expected = np.mean(losses, axis=0)
    np.testing.assert_allclose(trained.result.history.selection_loss, expected, rtol=1e-6)
    assert trained.result.best_step == expected.argmin() + 1
    assert not np.isnan(trained.held_out_logits).any()


def test_training_stops_when_more_iterations_do_not_help(blobs):
    result = trainer(*blobs, Boosting(learning_rate=0.5, max_iter=10_000))[0].train([0], float("inf")).result
    assert result.status == "stopped early"
    assert result.n_steps < 100


def test_time_that_runs_out_ends_training_with_what_there_is(blobs):
    trained = trainer(*blobs, Boosting(learning_rate=1e-3))[0].train([0, 1], 1e-9)
    assert trained.result.status == "out of time"
    assert len(trained.members) == 2
    assert trained.result.n_steps < 100


def test_additive_trees_split_one_column_each():
    """Whether two signs are equal cannot be told by a sum of effects of the columns."""
    X = np.random.default_rng(0).normal(size=(500, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    losses = [
        trainer(X, y, Boosting(max_iter=60, additive=additive))[0]
        .train(range(3), float("inf"))
        .result.history.selection_loss.min()
        for additive in (False, True)
    ]
    assert losses[0] < 0.4
    assert losses[1] > 0.6


def test_many_classes_have_fewer_iterations_at_a_larger_learning_rate(monkeypatch):
    monkeypatch.setattr("selfcal.ensembles.boosting.MAX_TREES", 24 * 30)
    rng = np.random.default_rng(0)
    y = np.arange(480) % 24
    made, _ = trainer(y[:, None] + rng.normal(size=(480, 1)), y, Boosting(learning_rate=0.01))
    assert made.train([0], float("inf")).result.n_steps == 30
    assert made.candidate.model(made._columns, 0, 24).learning_rate == pytest.approx(0.02)


def test_categories_and_missing_values_are_split_as_such():
    """A label that depends on the parity of a category of 12 levels, and on whether a number is missing."""
    rng = np.random.default_rng(0)
    level, missing = rng.integers(12, size=600), rng.random(600) < 0.5
    y = (level % 2 ^ missing).astype(np.int64)
    number = np.where(missing, 0.0, rng.normal(size=600))
    X = np.column_stack([number, missing, np.eye(12)[level]])
    groups = FeatureGroups(missing=((0, 1),), categories=((2, 14),))
    candidate = Boosting(leaves=4, max_features=1.0, max_iter=30)
    grouped, plain = (
        trainer(X, y, candidate, groups=given)[0].train(range(3), float("inf")) for given in (groups, None)
    )
    assert grouped.result.history.selection_loss.min() < 0.8 * plain.result.history.selection_loss.min()


def test_rows_of_weight_zero_do_not_matter(blobs):
    X, y = blobs
    weight = (np.arange(len(y)) % 2).astype(np.float64)
    changed = X.copy()
    changed[weight == 0] += 100.0
    made = [trainer(X, y, weight=weight)[0].train(range(3), float("inf")) for X in (X, X)]
    assert made[0].result.best_step == made[1].result.best_step
    np.testing.assert_array_equal(made[0].held_out_logits, made[1].held_out_logits)


def test_a_class_that_a_model_has_not_seen_is_possible_but_unlikely():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 60, 6])
    X = (rng.normal(size=(126, 2)) + y[:, None]).astype(np.float32)
    rows, last = np.arange(126), np.arange(120, 126)
    splits = [Split(np.setdiff1d(rows, last), last), Split(rows[6:], rows[:6])]
    trained = Boosting(max_iter=5).trainer(Rows(torch.from_numpy(X), y, None), splits, settings(3))
    probs = torch.from_numpy(trained.train([0, 1], float("inf")).held_out_logits[0, last]).softmax(dim=1)
    assert torch.isfinite(probs).all()
    assert (probs[:, 2] > 0).all()
    assert (probs[:, 2] < 1e-3).all()


def test_the_bits_do_not_depend_on_how_many_threads_there_are(blobs):
    from threadpoolctl import threadpool_limits

    predicted = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            predicted.append(trainer(*blobs)[0].train(range(3), float("inf")).held_out_logits)
    np.testing.assert_array_equal(*predicted)


def test_models_are_those_of_scikit_learn():
    made = Boosting(leaves=7, learning_rate=0.2).model(
        trainer(np.zeros((9, 2)), np.arange(9) % 2)[0]._columns, 0
    )
    assert isinstance(made, HistGradientBoostingClassifier)
    assert (made.max_leaf_nodes, made.learning_rate, made.categorical_features) == (7, 0.2, None)


@pytest.mark.parametrize(
    "bad", [{"leaves": 1}, {"learning_rate": 0}, {"max_features": 1.5}, {"min_rows": 0}, {"max_iter": 0}]
)
def test_settings_out_of_range(bad):
    with pytest.raises(ConfigError, match=f"^{next(iter(bad))} must"):
        Boosting(**bad)


def test_expected_seconds_grow_with_rows_columns_and_classes():
    def seconds(n_rows, n_columns, n_classes):
        y = np.arange(n_rows) % n_classes
        return trainer(np.zeros((n_rows, n_columns)), y)[0].expected_seconds

    base = seconds(100, 2, 3)
    assert seconds(200, 2, 3) > base
    assert seconds(100, 4, 3) > base
    assert seconds(100, 2, 6) == pytest.approx(2 * base)
