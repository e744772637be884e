"""The estimator with methods that train several networks: every row is judged by networks that have not seen it."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from selfcal import SelfCalibratedClassifier, models, recipes
from selfcal.datasets import Blobs
from selfcal.ensembles import CrossFit, Ensemble, NetworkCandidate
from selfcal.ensembles.modules import EnsembleModule, LogarithmicPool
from selfcal.ensembles.training import train_members
from selfcal.errors import ConfigError, DataError, Interrupted, TimeBudgetWarning
from selfcal.metrics import log_loss

METHODS = ["crossfit", "ensemble", "auto"]


def classifier(method="crossfit", **settings):
    return SelfCalibratedClassifier(
        method, **{"max_epochs": 10, "hidden": (8,), "random_state": 0, **settings}
    )


@pytest.fixture(scope="module")
def data():
    X, y = Blobs(std=1.7).sample(150, seed=0)
    for array in (X, y):
        array.flags.writeable = False
    return X, y


@pytest.fixture(scope="module")
def fitted(data):
    return {method: classifier(method).fit(*data) for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
class TestContract:
    def test_probabilities(self, fitted, data, method):
        model, (X, _) = fitted[method], data
        probs = model.predict_proba(X)
        np.testing.assert_allclose(probs.sum(axis=1), 1)
        np.testing.assert_array_equal(model.confidence(X), probs.max(axis=1))
        np.testing.assert_array_equal(model.predict(X), probs.argmax(axis=1))
        assert isinstance(model.module_, (EnsembleModule, LogarithmicPool))
        assert not model.module_.training
        assert model.calibrator_ is None

    def test_seed(self, fitted, data, method):
        X, y = data
        first = fitted[method]
        torch.rand(1)  # the seed alone decides, whatever the global stream has come to
        again, other = (clone(first).set_params(random_state=seed).fit(X, y) for seed in (0, 1))
        np.testing.assert_array_equal(again.predict_proba(X), first.predict_proba(X))
        np.testing.assert_array_equal(again.out_of_fold_, first.out_of_fold_)
        assert not np.array_equal(other.predict_proba(X), first.predict_proba(X))

    def test_the_clock_and_the_global_streams_stay_out_of_it(self, fitted, data, method):
        before = torch.get_rng_state(), pickle.dumps(np.random.get_state())  # noqa: NPY002 # the global stream is what must stay as it is
        slow = classifier(method, batch_size=None, time_budget=1e9).fit(*data)
        np.testing.assert_array_equal(slow.predict_proba(data[0]), fitted[method].predict_proba(data[0]))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert pickle.dumps(np.random.get_state()) == before[1]  # noqa: NPY002 # the global stream is what must stay as it is

    def test_weight_zero_is_as_good_as_absent(self, data, method):
        X, y = data
        there = np.arange(len(X)) % 3 > 0
        moved = np.where(there[:, None], X, 1e6 * X)  # neither scaling nor encoding may look at them
        weighted = classifier(method).fit(moved, y, there.astype(float))
        plain = classifier(method).fit(X[there], y[there])
        np.testing.assert_array_equal(weighted.predict_proba(X), plain.predict_proba(X))
        np.testing.assert_array_equal(weighted.train_rows_, np.flatnonzero(there))
        np.testing.assert_array_equal(weighted.out_of_fold_[there], plain.out_of_fold_)
        assert np.isnan(weighted.out_of_fold_[~there]).all()

    def test_weights_count(self, fitted, data, method):
        X, y = data
        heavy = classifier(method).fit(X, y, np.where(y == 0, 20.0, 1.0))
        assert np.mean(heavy.predict(X) == 0) > np.mean(fitted[method].predict(X) == 0)

    def test_what_was_tried(self, fitted, data, method):
        model, y = fitted[method], data[1]
        first, *others = model.selection_
        assert 0.5 < sum(record["weight"] for record in model.selection_) < 2
        assert all(record["weight"] <= first["weight"] for record in others)
        assert len(others) == (len(recipes.auto().candidates) - 1 if method == "auto" else 0)
        judged = ~np.isnan(model.out_of_fold_[:, 0])
        assert judged.sum() == (30 if method == "ensemble" else 150)
        assert (
            log_loss(y[judged], model.out_of_fold_[judged])
            <= min(r["out_of_fold_log_loss"] for r in model.selection_) + 1e-9
        )
        module = model.module_
        pooled = isinstance(module, LogarithmicPool)
        kinds = module.members if pooled else [module]
        assert [len(kind.members) for kind in kinds] == [
            1 if pooled and record["network"] == "extra-trees" else record["networks"]  # one forest of all
            for record in model.selection_
            if record["weight"]
        ]

    def test_validation_data_is_not_used(self, fitted, data, method):
        with pytest.warns(
            UserWarning, match=f"X_val is not used: method '{method}' holds out rows of X"
        ) as seen:
            model = classifier(method).fit(*data, X_val=data[0][:50], y_val=data[1][:50])
        assert seen[0].filename == __file__
        np.testing.assert_array_equal(model.predict_proba(data[0]), fitted[method].predict_proba(data[0]))

    def test_a_class_with_one_row_is_trained_on_and_never_held_out(self, data, method):
        X, y = data[0], np.r_[data[1][:-1], 99]
        model = classifier(method).fit(X, y)
        assert model.predict_proba(X).shape == (150, 6)
        assert np.isnan(model.out_of_fold_[-1]).all()

    def test_too_few_rows(self, data, method):
        with pytest.raises(
            DataError, match="Too few rows for 5 folds: got 4 rows, of which 4 can be held out"
        ):
            classifier(method).fit(data[0][:4], [0, 0, 1, 1])

    @pytest.mark.parametrize("n_classes", [2, pytest.param(26, marks=pytest.mark.slow)])
    def test_any_number_of_classes_of_any_name(self, method, n_classes):
        codes = np.arange(130) % n_classes
        X = np.column_stack([codes, np.random.default_rng(0).normal(size=130)])
        names = np.array([f"class {letter}" for letter in "abcdefghijklmnopqrstuvwxyz"])
        model = classifier(method, max_epochs=2).fit(X, names[codes])
        assert list(model.classes_) == names[:n_classes].tolist()
        assert set(model.predict(X)) <= set(names)
        assert model.predict_proba(X).shape == (130, n_classes)

    def test_resumed_is_the_same_bits(self, fitted, data, method, tmp_path, monkeypatch):
        """Interrupted in the second candidate, or the first evaluation of a single one; then resumed; then read."""
        X, y = data
        folders = []

        def interrupted(*args, **settings):
            folders.append(settings["checkpoint"])

            def watch(event):
                if len(folders) == (2 if method == "auto" else 1):
                    raise Interrupted("enough", 2)

            return train_members(*args, **settings, callback=watch, checkpoint_seconds=0)

        with monkeypatch.context() as patched:
            patched.setattr("selfcal.ensembles.settings.train_members", interrupted)
            with pytest.raises(Interrupted):
                classifier(method, checkpoint_dir=tmp_path / "run").fit(X, y)
        assert all(folder.is_dir() for folder in folders)
        for _ in range(2):
            resumed = classifier(method, checkpoint_dir=tmp_path / "run").fit(X, y)
            np.testing.assert_array_equal(resumed.predict_proba(X), fitted[method].predict_proba(X))
            np.testing.assert_array_equal(resumed.out_of_fold_, fitted[method].out_of_fold_)

    def test_pickle(self, fitted, data, method):
        again = pickle.loads(pickle.dumps(fitted[method]))
        np.testing.assert_array_equal(again.predict_proba(data[0]), fitted[method].predict_proba(data[0]))


class TestGroups:
    @pytest.mark.parametrize("method", METHODS)
    def test_no_row_is_judged_by_a_network_that_was_trained_on_its_group(self, data, method, monkeypatch):
        X, y = data
        groups = np.array([f"patient {row % 40}" for row in range(len(X))])
        seen = []

        def spy(modules, splits, rows, **settings):
            seen.extend(splits)
            return train_members(modules, splits, rows, **settings)

        monkeypatch.setattr("selfcal.ensembles.settings.train_members", spy)
        model = classifier(method, max_epochs=1).fit(X, y, groups=groups)
        assert len(seen) >= 5
        for train, held_out in seen:
            assert not set(groups[train]) & set(groups[held_out])
        judged = ~np.isnan(model.out_of_fold_[:, 0])
        assert judged.any()

    def test_groups_go_with_rows_of_weight_zero(self, data):
        X, y = data
        there, groups = np.arange(len(X)) % 3 > 0, np.arange(len(X)) // 2
        np.testing.assert_array_equal(
            classifier().fit(X, y, there.astype(float), groups=groups).predict_proba(X),
            classifier().fit(X[there], y[there], groups=groups[there]).predict_proba(X),
        )

    @pytest.mark.parametrize(
        ("method", "groups", "error", "message"),
        [
            ("crossfit", np.arange(149), DataError, r"each of the 150 rows; got shape \(149,\)"),
            ("crossfit", np.zeros(150), DataError, "Too few rows for 5 folds"),
            ("standard", np.zeros(150), DataError, "Too few rows to hold out 30% of them"),
            (
                "bo4sc",
                np.array(["a", 1] * 75, dtype=object),
                DataError,
                "groups must hold values of one kind",
            ),
        ],
    )
    def test_bad_groups(self, data, method, groups, error, message):
        with pytest.raises(error, match=message):
            classifier(method).fit(*data, groups=groups)


class TestNetworks:
    def test_a_chosen_kind_is_the_only_one(self, data):
        model = classifier("auto", network="linear").fit(*data)
        assert [record["network"] for record in model.selection_] == ["linear"]
        assert len(model.module_.members) == 10

    def test_own_network_with_running_statistics(self, data):
        def network(n_features, n_classes):
            return nn.Sequential(
                nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, n_classes)
            )

        model = classifier("auto", network=network, max_epochs=60).fit(*data)
        assert [record["network"] for record in model.selection_] == ["own"]
        means = [member[1].running_mean for member in model.module_.members]
        assert not torch.equal(means[0], means[1])
        assert model.score(*data) > 0.5

    @pytest.mark.parametrize("kind", models.FOR_TABLES)
    def test_every_kind_learns(self, data, kind):
        X, y = data
        model = classifier(network=kind, max_epochs=60, hidden=None).fit(X, y)
        assert model.score(X, y) > 0.6
        assert model.selection_[0]["out_of_fold_log_loss"] < np.log(5)

    @pytest.mark.parametrize("kind", models.FOR_TABLES)
    def test_every_kind_can_be_interrupted_and_gives_the_same_bits(self, data, kind, tmp_path, monkeypatch):
        X, y = data
        weight = np.linspace(0, 2, len(X))
        method = recipes.auto(candidates=[kind], folds=3)

        def interrupted(*args, **settings):
            def watch(event):
                raise Interrupted("enough", 2)

            return train_members(*args, **settings, callback=watch, checkpoint_seconds=0)

        with monkeypatch.context() as patched:
            patched.setattr("selfcal.ensembles.settings.train_members", interrupted)
            with pytest.raises(Interrupted):
                classifier(method, checkpoint_dir=tmp_path / "run").fit(X, y, weight)
        resumed = classifier(method, checkpoint_dir=tmp_path / "run").fit(X, y, weight)
        whole = classifier(method).fit(X, y, weight)
        np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
        np.testing.assert_array_equal(resumed.out_of_fold_, whole.out_of_fold_)

    @pytest.mark.parametrize("kind", models.FOR_TABLES)
    def test_every_kind_can_be_the_student(self, data, kind, tmp_path):
        model = classifier(network=kind, n_networks=1, max_epochs=60).fit(*data)
        assert models.origin(model.module_) is not None
        assert model.distilled_["log_loss"] < np.log(5)
        again = SelfCalibratedClassifier.load(model.save(tmp_path / "model"))
        np.testing.assert_array_equal(again.predict_proba(data[0]), model.predict_proba(data[0]))

    def test_no_early_stopping(self, data):
        model = classifier(early_stopping=False).fit(*data)
        assert model.n_iter_ == model.best_iter_ == 10
        assert len(model.history_.selection_loss) == 0


def test_a_bilevel_method_can_be_cross_fitted(data):
    """One weight for each row, shared by all networks, learned from the rows that each has not seen."""
    X, y = data
    recipe = recipes.bo4sc(inner_steps=2, outer_lr=0.1)
    ensemble = Ensemble("bo4sc", (NetworkCandidate("mlp", recipe),), CrossFit(3))
    there = np.arange(len(X)) % 5 > 0
    model = classifier(ensemble, max_epochs=20).fit(X, y, there.astype(float))
    weights = model.sample_weights_
    np.testing.assert_array_equal(~np.isnan(weights), there)
    assert weights[there].std() > 0


def test_cross_fitting_twice_has_every_row_judged_by_two_networks(data):
    once, twice = (classifier(recipes.crossfit(folds=3, repeats=n), network="mlp").fit(*data) for n in (1, 2))
    assert [len(model.module_.members) for model in (once, twice)] == [3, 6]
    assert np.isfinite(twice.out_of_fold_).all()
    assert not np.array_equal(once.out_of_fold_, twice.out_of_fold_)


def test_with_noisy_labels_it_predicts_the_true_ones():
    X, y = Blobs(std=1.3).sample(600, seed=0)
    X_test, y_test = Blobs(std=1.3).sample(2000, seed=1)
    wrong = np.random.default_rng(0).random(600) < 0.3
    given = np.where(wrong, (y + 1 + np.arange(600) % 4) % 5, y)
    plain, corrected = (
        classifier(network="mlp", max_epochs=60, hidden=(32,), noisy_labels=noisy).fit(X, given)
        for noisy in (False, True)
    )
    losses = [log_loss(y_test, model.predict_proba(X_test)) for model in (plain, corrected)]
    assert losses[1] < 0.7 * losses[0]


def test_another_method_leaves_nothing_of_a_selection(data):
    model = classifier("crossfit").fit(*data)
    model.set_params(method="standard").fit(*data)
    assert not hasattr(model, "selection_")
    assert not hasattr(model, "out_of_fold_")


def test_without_time_it_predicts_all_the_same(data):
    with pytest.warns(
        TimeBudgetWarning, match="left out .* 'waves' was not trained.*speed of this machine"
    ) as told:
        model = classifier("auto", time_budget=1e-9).fit(*data)
    assert told[0].filename == __file__
    tried = {record["network"]: record["networks"] for record in model.selection_}
    first, *others = (candidate.name for candidate in recipes.auto().candidates)
    assert tried == {first: 1} | dict.fromkeys(others, 0)
    np.testing.assert_allclose(model.predict_proba(data[0]).sum(axis=1), 1)


@pytest.mark.parametrize("time_budget", [0, -1, np.nan, "long"])
def test_bad_time_budget(data, time_budget):
    with pytest.raises(ConfigError, match="time_budget must be a number"):
        classifier(time_budget=time_budget).fit(*data)


@pytest.mark.slow
def test_the_default_is_auto_and_learns(data):
    X, y = data
    model = SelfCalibratedClassifier(random_state=0).fit(X[:100], y[:100])
    assert model.method_.name == "auto"
    assert model.score(X[100:], y[100:]) > 0.6
