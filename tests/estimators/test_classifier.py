"""The estimator: scikit-learn's own checks, its composition with scikit-learn, and every way to misuse it."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from selfcal import SelfCalibratedClassifier, recipes
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, DataError, SelfcalError
from selfcal.losses import cross_entropy
from selfcal.training.engine import train
from selfcal.training.interfaces import Calibrator
from selfcal.training.recipe import Recipe

METHODS = ["standard", "isoreg", "bo4sc"]

EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": "which rows are held out depends on their number, and "
    "single precision sums a row of weight two in another order than the row twice"
}
EXPECTED_FAILURES["check_sample_weight_equivalence_on_sparse_data"] = EXPECTED_FAILURES[
    "check_sample_weight_equivalence_on_dense_data"
]
ISOREG_FAILURES = {
    "check_classifiers_train": "isotonic regression keeps the network's choice and may rightly give it less "
    "than another class"
}


def classifier(method="bo4sc", **settings):
    return SelfCalibratedClassifier(method, **{"max_epochs": 20, "random_state": 0, **settings})


@pytest.fixture(scope="module")
def data():
    X, y = Blobs(std=1.7).sample(150, seed=0)
    for array in (X, y):
        array.flags.writeable = False
    return X, y


@pytest.fixture(scope="module")
def fitted(data):
    return classifier(max_epochs=10).fit(*data)


def changed(X, value, row=4, column=1):
    X = X.astype(object if isinstance(value, (str, dict, type(None))) else float)
    X[row, column] = value
    return X


copies_in_their_data = pytest.mark.filterwarnings(
    "ignore:.* rows? repeats? an earlier row", "ignore:The .* distinct values"
)


def scikit_learn_checks(*estimators):
    return parametrize_with_checks(
        estimators,
        expected_failed_checks=lambda clf: (
            EXPECTED_FAILURES | (ISOREG_FAILURES if clf.method == "isoreg" else {})
        ),
    )


def several_networks(method):
    return SelfCalibratedClassifier(method, max_epochs=20, hidden=(16,), learning_rate=0.02)


@copies_in_their_data
@scikit_learn_checks(
    *(SelfCalibratedClassifier(method, max_epochs=20) for method in METHODS), several_networks("crossfit")
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@copies_in_their_data
@scikit_learn_checks(several_networks("auto"))
def test_scikit_learn_checks_of_the_default(estimator, check):
    check(estimator)


class TestWithScikitLearn:
    def test_pipeline(self, data):
        X, y = data
        plain = classifier().fit(StandardScaler().fit_transform(X), y)
        pipeline = make_pipeline(StandardScaler(), classifier()).fit(X, y)
        np.testing.assert_array_equal(
            pipeline.predict_proba(X), plain.predict_proba(StandardScaler().fit_transform(X))
        )

    def test_pipeline_hands_on_sample_weight(self, data):
        X, y = data
        weight = 1.0 + (y == 0)
        pipeline = make_pipeline(StandardScaler(), classifier())
        pipeline.fit(X, y, selfcalibratedclassifier__sample_weight=weight)
        assert not np.array_equal(
            pipeline.predict_proba(X), clone(pipeline).fit(X, y).predict_proba(X), equal_nan=True
        )

    def test_grid_search_over_names(self, data):
        search = GridSearchCV(
            classifier(), {"method": METHODS}, cv=2, scoring="neg_log_loss", error_score="raise"
        )
        search.fit(*data)
        assert search.best_params_["method"] in METHODS
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()

    def test_grid_search_over_recipes(self, data):
        grid = [recipes.bo4sc(outer_lr=lr) for lr in (0.001, 0.1)]
        search = GridSearchCV(classifier(max_epochs=40), {"method": grid}, cv=2, error_score="raise").fit(
            *data
        )
        assert search.best_estimator_.method_ in grid
        assert search.cv_results_["params"] == [{"method": recipe} for recipe in grid]

    def test_cross_val_score(self, data):
        assert np.mean(cross_val_score(classifier(max_epochs=100), *data, cv=3)) > 0.5

    def test_calibrated_classifier_cv(self, data):
        X, y = data
        model = CalibratedClassifierCV(classifier(), cv=2, method="isotonic").fit(X, y)
        assert model.predict_proba(X).shape == (len(X), 5)

    @pytest.mark.parametrize("method", [*METHODS, recipes.bo4sc(outer_lr=0.1)])
    def test_clone_is_unfitted_and_equal_in_settings(self, data, method):
        fitted = classifier(method, hidden=[8], patience=3).fit(*data)
        copy = clone(fitted)
        assert copy.get_params() == fitted.get_params()
        with pytest.raises(NotFittedError):
            copy.predict(data[0])

    @pytest.mark.parametrize("method", METHODS)
    def test_pickle_round_trip(self, data, method):
        fitted = classifier(method).fit(*data)
        again = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(again.predict_proba(data[0]), fitted.predict_proba(data[0]))

    def test_names_of_features(self, data):
        pandas = pytest.importorskip("pandas")
        X, y = data
        frame = pandas.DataFrame(X, columns=["age", "height"])
        model = classifier().fit(frame, pandas.Series(y))
        assert list(model.feature_names_in_) == ["age", "height"]
        with pytest.raises(DataError, match="feature names should match"):
            model.predict(frame[["height", "age"]])
        with pytest.raises(DataError, match=r"row 4, column 'height' is .*e\+29"):
            model.predict(pandas.DataFrame(changed(X, 1e30), columns=frame.columns))
        with pytest.raises(DataError, match="y must hold a label in every row; row 1 is <NA>"):
            classifier().fit(frame, pandas.Series(["a", pandas.NA, *y[2:].astype(str)], dtype=object))

    def test_two_columns_of_one_name(self, data):
        pandas = pytest.importorskip("pandas")
        with pytest.raises(DataError, match=r"each column once.*\n- 'age' 2 times"):
            classifier().fit(pandas.DataFrame(data[0], columns=["age", "age"]), data[1])


class TestLabels:
    @pytest.mark.parametrize(
        "names",
        [
            np.array(["cat", "dog", "owl", "elk", "bee"]),
            np.array(["cat", "dog", "owl", "elk", "bee"], dtype=object),
            np.array([10, -3, 7, 2, 0]),
            np.array([10, -3, 7, 2, 0], dtype=object),
            np.array([1.0, 0.0, 5.0, 3.0, 2.0]),
            np.array([True, False, False, True, False]),
        ],
        ids=lambda names: f"{type(names[0]).__name__}-{names.dtype}",
    )
    @pytest.mark.parametrize("method", ["bo4sc", "isoreg"])
    def test_predictions_are_labels_as_given(self, data, names, method):
        X, codes = data
        y = names[codes]
        model = classifier(method, max_epochs=150).fit(X, y)
        assert list(model.classes_) == sorted(set(names.tolist()))
        assert set(model.predict(X)) <= set(y)
        assert np.mean(model.predict(X) == y) > 0.5
        assert model.predict_proba(X).shape == (len(X), len(set(names.tolist())))

    def test_a_list_will_do(self, data):
        X, y = data
        np.testing.assert_array_equal(
            classifier().fit(X.tolist(), y.tolist()).predict_proba(X), classifier().fit(X, y).predict_proba(X)
        )

    def test_many_classes(self):
        X = np.random.default_rng(0).normal(size=(900, 2))
        assert classifier(max_epochs=10).fit(X, np.arange(900) % 300).predict_proba(X).shape == (900, 300)


class TestSampleWeight:
    @pytest.mark.parametrize("method", METHODS)
    def test_weight_zero_is_as_good_as_absent(self, data, method):
        X, y = data
        there = np.arange(len(X)) % 3 > 0
        weighted = classifier(method).fit(X, y, there.astype(float))
        np.testing.assert_array_equal(
            weighted.predict_proba(X), classifier(method).fit(X[there], y[there]).predict_proba(X)
        )
        assert set(weighted.train_rows_) < set(np.flatnonzero(there))

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("factor", [10, 4e307, 1e-300])
    def test_only_ratios_matter(self, data, method, factor):
        X, y = data
        weight = 1.0 + np.arange(len(X)) % 4
        np.testing.assert_allclose(
            classifier(method).fit(X, y, weight * factor).predict_proba(X),
            classifier(method).fit(X, y, weight).predict_proba(X),
            atol=1e-5,
        )

    def test_equal_weights_are_no_weights(self, data):
        X, y = data
        np.testing.assert_allclose(
            classifier().fit(X, y, np.full(len(X), 3.0)).predict_proba(X),
            classifier().fit(X, y).predict_proba(X),
            atol=1e-5,
        )

    def test_weight_two_is_as_good_as_twice_where_nothing_is_kept_back(self, data):
        X, y = data
        weight = 1 + np.arange(len(X)) % 3
        settings = {"method": "standard", "early_stopping": False, "batch_size": None}
        np.testing.assert_allclose(
            classifier(**settings).fit(X, y, weight).predict_proba(X),
            classifier(**settings).fit(np.repeat(X, weight, 0), np.repeat(y, weight)).predict_proba(X),
            atol=1e-4,
        )

    @pytest.mark.parametrize("method", METHODS)
    def test_weights_count_in_every_part(self, data, method):
        X, y = data
        heavy = np.where(y == 0, 20.0, 1.0)
        plain, weighted = classifier(method, max_epochs=60), classifier(method, max_epochs=60)
        share = [np.mean(m.predict(X) == 0) for m in (plain.fit(X, y), weighted.fit(X, y, heavy))]
        assert share[1] > share[0]

    def test_weights_belong_to_x_and_not_to_validation_data(self, data):
        X, y = data
        model = classifier().fit(X, y, np.ones(len(X)), X_val=X, y_val=y)
        np.testing.assert_allclose(
            model.predict_proba(X), classifier().fit(X, y, X_val=X, y_val=y).predict_proba(X), atol=1e-5
        )

    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            (np.r_[np.ones(149), np.nan], "row 149 is nan"),
            (np.r_[-1.0, np.ones(149)], "row 0 is -1.0"),
            (np.r_[1.0, np.inf, np.ones(148)], "row 1 is inf"),
            (np.zeros(150), "zero in every row"),
            (np.ones(149), r"each of the 150 rows; got shape \(149,\)"),
            (np.ones((150, 2)), r"each of the 150 rows; got shape \(150, 2\)"),
            (["heavy"] * 150, "must hold numbers"),
            (np.eye(150)[7], "leave at least two classes"),
        ],
    )
    def test_bad_weights(self, data, weight, message):
        with pytest.raises(DataError, match=message):
            classifier().fit(*data, weight)


def rows_given_to_training(monkeypatch, X, fit, *method, **settings):
    """Return which rows of `X` each of the parts holds, and their weights, as `train` receives them."""
    seen = []

    def spy(module, *parts, **others):
        seen.extend(next(part.one_pass(0)) for part in parts if part is not None)
        return train(module, *parts, **others)

    monkeypatch.setattr("selfcal.estimators.classifier.train", spy)
    fit(classifier(*method, standardize=False, **settings))
    places = {row.tobytes(): place for place, row in enumerate(X.astype(np.float32))}
    rows = [np.array([places[row.tobytes()] for row in batch.x.numpy()]) for batch in seen]
    return rows, seen


class TestParts:
    def test_three_parts_are_disjoint_and_cover_all_rows(self, monkeypatch, data):
        X, y = data
        weight = 1.0 + np.arange(len(X)) % 4
        rows, seen = rows_given_to_training(monkeypatch, X, lambda model: model.fit(X, y, weight))
        np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(len(X)))
        for places, batch in zip(rows, seen, strict=True):
            np.testing.assert_array_equal(batch.y, y[places])
            np.testing.assert_allclose(batch.weight, weight[places] / weight[places].mean(), rtol=1e-6)

    def test_validation_data_is_divided_and_training_data_is_not(self, monkeypatch, data):
        X, y = data
        validation = {"X_val": X[100:], "y_val": y[100:]}
        rows, seen = rows_given_to_training(monkeypatch, X, lambda m: m.fit(X[:100], y[:100], **validation))
        np.testing.assert_array_equal(rows[0], np.arange(100))
        np.testing.assert_array_equal(np.sort(np.concatenate(rows[1:])), np.arange(100, 150))
        for places, batch in zip(rows, seen, strict=True):
            np.testing.assert_array_equal(batch.y, y[places])

    def test_learned_weights_are_those_of_the_training_rows(self, data):
        X, y = data
        model = classifier(max_epochs=60).fit(X, y)
        weights = model.sample_weights_
        assert weights.shape == (len(X),)
        np.testing.assert_array_equal(np.flatnonzero(~np.isnan(weights)), model.train_rows_)
        learned = weights[model.train_rows_]
        assert ((learned >= 0) & (learned <= 1)).all()
        assert learned.std() > 0
        assert len(model.train_rows_) == pytest.approx(0.7 * len(X), abs=5)

    def test_only_methods_with_sample_weights_have_them(self, data):
        model = classifier("standard").fit(*data)
        assert not hasattr(model, "sample_weights_")
        assert not hasattr(classifier(), "sample_weights_")
        with pytest.raises(AttributeError, match="'standard' learns no sample weights"):
            model.sample_weights_  # noqa: B018 # reading it is the test

    def test_with_validation_data_every_row_is_trained_on(self, data):
        X, y = data
        model = classifier().fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:])
        np.testing.assert_array_equal(model.train_rows_, np.arange(100))
        assert not np.isnan(model.sample_weights_).any()

    @pytest.mark.parametrize("early_stopping", [True, False])
    def test_a_calibrator_takes_the_rows_that_decided_when_to_stop(self, monkeypatch, data, early_stopping):
        X, y = data
        rows, _ = rows_given_to_training(
            monkeypatch, X, lambda model: model.fit(X, y), "temperature", early_stopping=early_stopping
        )
        train, calibration, *selection = rows
        assert len(calibration) == pytest.approx(0.3 * len(X), abs=5)
        np.testing.assert_array_equal(np.sort(np.r_[train, calibration]), np.arange(len(X)))
        if early_stopping:
            np.testing.assert_array_equal(np.sort(calibration), np.sort(*selection))

    def test_half_of_the_validation_data_is_for_the_outer_level_and_half_for_stopping(self, data):
        X, y = data
        settings = {"X_val": X[100:], "y_val": y[100:]}
        both = classifier().fit(X[:100], y[:100], **settings)
        whole = classifier(early_stopping=False).fit(X[:100], y[:100], **settings)
        assert len(both.history_.selection_loss) > 0
        assert len(whole.history_.selection_loss) == 0
        assert not np.array_equal(both.predict_proba(X), whole.predict_proba(X))

    def test_validation_data_that_nobody_needs_is_mentioned(self, data):
        with pytest.warns(
            UserWarning, match="X_val is not used: method 'standard' with early_stopping=False"
        ) as seen:
            classifier("standard", early_stopping=False).fit(*data, X_val=data[0], y_val=data[1])
        assert seen[0].filename == __file__

    def test_without_early_stopping_standard_training_uses_every_row(self, data):
        model = classifier("standard", early_stopping=False).fit(*data)
        np.testing.assert_array_equal(model.train_rows_, np.arange(150))
        assert model.n_iter_ == model.best_iter_ == 20
        assert len(model.history_.selection_loss) == 0

    def test_class_with_one_row_is_trained_on(self, data):
        X, y = data
        y = np.r_[y[:-1], 99]
        with pytest.warns(UserWarning, match="1 of 6 classes has fewer than 3 rows") as seen:
            model = classifier().fit(X, y)
        assert seen[0].filename == __file__
        assert 149 in model.train_rows_
        assert 99 in model.classes_


class TestTraining:
    def test_what_happened_is_told(self, data):
        model = classifier(max_epochs=60).fit(*data)
        assert model.n_iter_ == len(model.history_.inner_loss) == 60
        np.testing.assert_array_equal(model.history_.outer_step, [10, 20, 30, 40, 50, 60])
        best = model.history_.selection_step[model.history_.selection_loss.argmin()]
        assert model.best_iter_ == best
        assert model.history_.inner_loss[-1] < model.history_.inner_loss[0]
        assert set(model.outer_params_) == {"weight"}
        np.testing.assert_array_equal(model.classes_, np.arange(5))
        assert model.n_features_in_ == 2
        assert not model.module_.training

    def test_stops_early(self, data):
        model = classifier("standard", max_epochs=3000, patience=2, learning_rate=0.05).fit(*data)
        assert model.best_iter_ < model.n_iter_ < 3000

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("batch_size", ["auto", 16])
    def test_seed(self, data, method, batch_size):
        X, y = data
        model = classifier(method, batch_size=batch_size, max_epochs=10).fit(X, y)
        first = model.predict_proba(X)
        torch.rand(1)  # the seed alone decides, whatever the global stream has come to
        np.testing.assert_array_equal(model.fit(X, y).predict_proba(X), first)
        np.testing.assert_array_equal(clone(model).fit(X, y).predict_proba(X), first)
        assert not np.array_equal(clone(model).set_params(random_state=1).fit(X, y).predict_proba(X), first)

    def test_random_state_object_gives_a_new_model_each_time(self, data):
        model = classifier(random_state=np.random.RandomState(0))
        assert not np.array_equal(
            model.fit(*data).predict_proba(data[0]), model.fit(*data).predict_proba(data[0])
        )

    @pytest.mark.parametrize("method", METHODS)
    def test_leaves_arrays_and_random_streams_alone(self, data, method):
        X, y = (array.copy() for array in data)
        weight = np.ones(len(X))
        before = torch.get_rng_state(), pickle.dumps(np.random.get_state())  # noqa: NPY002 # the global stream is what must stay as it is
        classifier(method, network=_dropout_and_batch_norm).fit(X, y, weight).predict_proba(X)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert pickle.dumps(np.random.get_state()) == before[1]  # noqa: NPY002 # the global stream is what must stay as it is
        np.testing.assert_array_equal(X, data[0])
        np.testing.assert_array_equal(y, data[1])
        np.testing.assert_array_equal(weight, 1)

    def test_prediction_of_a_row_does_not_depend_on_the_rows_beside_it(self, data):
        X, y = data
        X = np.tile(X, (4, 1))
        model = classifier().fit(X[:150], y)
        whole = model.predict_proba(X)
        order = np.random.default_rng(0).permutation(len(X))
        np.testing.assert_allclose(model.predict_proba(X[order]), whole[order], rtol=1e-5)
        one_by_one = np.vstack([model.predict_proba(row[None]) for row in X[:20]])
        np.testing.assert_allclose(one_by_one, whole[:20], rtol=1e-5)

    @pytest.mark.parametrize("method", METHODS)
    def test_probabilities_are_probabilities(self, data, method):
        X, y = data
        model = classifier(method).fit(X, y)
        probs = model.predict_proba(X)
        np.testing.assert_allclose(probs.sum(axis=1), 1)
        assert (probs >= 0).all()
        chosen = np.searchsorted(model.classes_, model.predict(X))
        np.testing.assert_allclose(model.confidence(X), probs[np.arange(len(X)), chosen])

    def test_units_of_the_columns_do_not_matter(self, data):
        X, y = data
        scaled = X * [1e300, 1e-300] + [0, 1e-300]
        np.testing.assert_allclose(
            classifier().fit(scaled, y).predict_proba(scaled),
            classifier().fit(X, y).predict_proba(X),
            atol=1e-4,
        )

    def test_standardizes_by_training_rows_unless_told_not_to(self, data):
        X, y = data
        model = classifier().fit(X, y)
        np.testing.assert_allclose(model._scaling.mean, X[model.train_rows_].mean(axis=0))
        np.testing.assert_allclose(model._scaling.scale, X[model.train_rows_].std(axis=0))
        assert not np.array_equal(
            classifier(standardize=False).fit(X, y).predict_proba(X), model.predict_proba(X)
        )

    @pytest.mark.parametrize(
        "form",
        [
            np.asfortranarray,
            lambda X: np.repeat(X, 2, axis=0)[::2],
            lambda X: X[::-1][::-1],
            lambda X: X.astype(object),
            lambda X: X.astype(str),
            lambda X: torch.from_numpy(X.copy()),
            lambda X: np.ma.array(X, mask=False),
        ],
        ids=["fortran", "strided", "negative strides", "object", "text of numbers", "torch", "unmasked"],
    )
    def test_same_numbers_in_another_form(self, data, form):
        X, y = data
        np.testing.assert_array_equal(
            classifier().fit(form(X), y).predict_proba(form(X)), classifier().fit(X, y).predict_proba(X)
        )

    @pytest.mark.filterwarnings("ignore:.*an earlier row", "ignore:.*distinct values")
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble, np.int8, np.uint64, bool])
    def test_any_number_type(self, data, dtype):
        X = np.abs(data[0] * 5).astype(dtype)
        assert np.isfinite(classifier().fit(X, data[1]).predict_proba(X)).all()

    def test_constant_column_changes_nothing_much(self, data):
        X = np.column_stack([data[0], np.full(150, 1e9)])
        assert classifier(max_epochs=100).fit(X, data[1]).score(X, data[1]) > 0.5


def _dropout_and_batch_norm(n_features, n_classes):
    return nn.Sequential(
        nn.Linear(n_features, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(16, n_classes),
    )


class TestNetwork:
    @pytest.mark.parametrize("method", METHODS)
    def test_own_network(self, data, method):
        X, y = data
        model = classifier(method, network=_dropout_and_batch_norm, max_epochs=100)
        first = model.fit(X, y).predict_proba(X)
        assert model.score(X, y) > 0.5
        assert isinstance(model.module_[1], nn.BatchNorm1d)
        np.testing.assert_array_equal(clone(model).fit(X, y).predict_proba(X), first)
        model.module_.train()
        np.testing.assert_array_equal(model.predict_proba(X), first)
        assert model.module_.training

    def test_layers_shared_between_calls_stay_as_they_are(self, data):
        backbone = nn.Linear(2, 5)
        before = backbone.weight.detach().clone()
        model = classifier(network=lambda n_features, n_classes: nn.Sequential(backbone))
        np.testing.assert_array_equal(
            model.fit(*data).predict_proba(data[0]), model.fit(*data).predict_proba(data[0])
        )
        assert torch.equal(backbone.weight, before)

    def test_class_and_lazy_network(self, data):
        assert classifier(network=nn.Linear).fit(*data).module_.weight.shape == (5, 2)
        lazy = classifier(network=lambda n_features, n_classes: nn.LazyLinear(n_classes))
        assert lazy.fit(*data).module_.weight.shape == (5, 2)

    def test_no_hidden_layer_is_logistic_regression(self, data):
        assert len(classifier(hidden=()).fit(*data).module_) == 1

    @pytest.mark.parametrize(
        ("network", "message"),
        [
            (
                nn.Linear(2, 5),
                r"must be a function \(n_features, n_classes\) -> nn.Module, so that every fit",
            ),
            ("mpl", "network must be one of .*; got 'mpl'. Did you mean 'mlp'"),
            (lambda n, k: None, "it returned None"),
            (lambda n, k: nn.Linear(n, k + 2), r"here \(8, 5\); got \(8, 7\)"),
            (
                lambda n, k: nn.Linear(n, 1),
                r"here \(8, 5\); got \(8, 1\). Give its last layer n_classes outputs",
            ),
            (lambda n, k: nn.Sequential(nn.Linear(n, k), nn.Flatten(0)), r"got \(40,\)"),
            (nn.LSTM, "got a tuple"),
            (
                lambda n, k: nn.Linear(n + 1, k),
                "must take float32 rows of 2 columns; .* cannot be multiplied",
            ),
            (lambda n, k: nn.Linear(n, k).double(), "must take float32 rows of 2 columns"),
            (lambda n, k: nn.Sequential(nn.Linear(n, k), nn.Softmax(1)), "Leave out the final softmax"),
            (lambda n, k: nn.Linear(n, k).requires_grad_(False), "no trainable parameters"),
        ],
    )
    def test_wrong_network_fails_before_training(self, data, network, message):
        with pytest.raises(ConfigError, match=message):
            classifier(network=network).fit(*data)

    def test_network_without_finite_output_at_a_row(self, data):
        class Pole(nn.Linear):
            def forward(self, x):
                return super().forward(x) / (x[:, :1] < 100)

        model = classifier(network=Pole, standardize=False).fit(*data)
        with pytest.raises(DataError, match=r"no finite scores for row 3 of X \(1 such row\)"):
            model.predict(changed(data[0], 1e3, row=3, column=0))


class Prior(Calibrator):
    """A calibrator of one's own, without scikit-learn's base class."""

    def fit(self, logits, y, sample_weight=None):
        self.prior = np.bincount(y, weights=sample_weight, minlength=logits.shape[1])
        return self

    def predict(self, logits):
        return np.full(len(logits), self.prior.argmax())

    def predict_proba(self, logits):
        return np.tile(self.prior / self.prior.sum(), (len(logits), 1))

    def confidence(self, logits):
        return self.predict_proba(logits).max(axis=1)


class TestMethod:
    def test_own_recipe_with_own_calibrator(self, data):
        X, y = data
        prior = Prior()
        model = classifier(Recipe("prior", cross_entropy, calibrator=prior)).fit(X, y)
        np.testing.assert_allclose(model.predict_proba(X), 0.2, atol=0.05)
        assert not hasattr(prior, "prior")
        weighted = clone(model).fit(X, y, np.where(y == 0, 4.0, 1.0))
        np.testing.assert_allclose(weighted.predict_proba(X)[0], [0.5, *[0.125] * 4], atol=0.05)

    def test_name_and_recipe_are_the_same(self, data):
        X, y = data
        np.testing.assert_array_equal(
            classifier("bo4sc").fit(X, y).predict_proba(X),
            classifier(recipes.bo4sc()).fit(X, y).predict_proba(X),
        )


class TestBadInput:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"method": "bosc"}, "Did you mean 'bo4sc'"),
            ({"method": "Isoreg"}, "Did you mean 'isoreg'"),
            ({"method": None}, "method must be the name of a method, a Recipe or an Ensemble; got None"),
            (
                {"method": recipes.bo4sc},
                "method must be the name of a method, a Recipe or an Ensemble; got <function bo4sc",
            ),
            ({"hidden": 64}, r"hidden must hold the width of each hidden layer, such as \(64, 64\); got 64"),
            ({"hidden": "64"}, "hidden must hold the width"),
            ({"hidden": [8, 0]}, r"hidden\[1\] must be a whole number of at least 1; got 0"),
            ({"hidden": [8.5]}, r"hidden\[0\] must be a whole number"),
            ({"learning_rate": 0}, r"learning_rate must be a number in \(0, inf\); got 0"),
            ({"learning_rate": -0.1}, "learning_rate must be"),
            ({"learning_rate": np.inf}, "learning_rate must be"),
            ({"learning_rate": np.nan}, "learning_rate must be"),
            ({"learning_rate": "fast"}, "learning_rate must be .* got 'fast'"),
            ({"max_epochs": 0}, "max_epochs must be a whole number of at least 1; got 0"),
            ({"max_epochs": 1.5}, "max_epochs must be a whole number"),
            ({"max_epochs": True}, "max_epochs must be a whole number"),
            ({"batch_size": 0}, "batch_size, if neither 'auto' nor None, must be a whole number"),
            ({"batch_size": "all"}, "batch_size, .* got 'all'"),
            ({"batch_size": 2.5}, "batch_size, .* got 2.5"),
            ({"patience": 0}, "patience, if not None, must be a whole number of at least 1; got 0"),
            ({"patience": "long"}, "patience, .* got 'long'"),
            ({"validation_fraction": 0}, r"validation_fraction must be a number in \(0, 0.9\]; got 0"),
            ({"validation_fraction": 1.0}, "validation_fraction must be"),
            ({"validation_fraction": None}, "validation_fraction must be"),
            ({"early_stopping": "no"}, "early_stopping must be True or False; got 'no'"),
            ({"standardize": None}, "standardize must be True or False; got None"),
            ({"random_state": "seed"}, "random_state must be None, a whole number or"),
            ({"random_state": -1}, "random_state must be .* Seed must be between 0"),
            ({"random_state": np.random.default_rng(0)}, "random_state must be .*RandomState"),
        ],
        ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
    )
    def test_settings(self, data, settings, message):
        with pytest.raises(ConfigError, match=message):
            classifier(**settings).fit(*data)

    @pytest.mark.parametrize("patience", [None, np.int64(3)])
    def test_settings_that_are_fine(self, data, patience):
        classifier(patience=patience, hidden=np.array([8, 8]), batch_size=10**9, early_stopping=np.True_).fit(
            *data
        )

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda X, y: (changed(X, np.nan), y), "row 4, column 1 is NaN .*SimpleImputer"),
            (lambda X, y: (changed(X, None), y), "row 4, column 1 is NaN"),
            (lambda X, y: (changed(X, -np.inf), y), "row 4, column 1 is infinity"),
            (lambda X, y: (changed(X, "red"), y), "Column 'x1' must hold numbers, as most .*row 5 is 'red'"),
            (lambda X, y: (X[:, 0], y), r"shape \(rows, columns\); got shape \(150,\). Reshape your data"),
            (lambda X, y: (X[:0], y[:0]), r"0 sample\(s\)"),
            (lambda X, y: (X[:, :0], y), r"0 feature\(s\)"),
            (lambda X, y: (X[:9], y), "X has 9, y has 150"),
            (lambda X, y: (X, y[:9]), "X has 150, y has 9"),
            (lambda X, y: (X, np.zeros(150)), "at least two classes; every row is 0.0, one class only"),
            (lambda X, y: (X, np.arange(150)), "got 150 rows in 150 classes, none of which has the 3 rows"),
            (lambda X, y: (X[:4], [0, 0, 1, 1]), "none of which has the 3 rows"),
            (lambda X, y: (X[:1], y[:1]), "one class"),
            (lambda X, y: (X, y + 0.5), "continuous.*row 0 is .*Bin a continuous target"),
        ],
    )
    def test_data(self, data, change, message):
        X, y = change(*data)
        with pytest.raises(DataError, match=message):
            classifier().fit(X, y)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda X: X[:, :1], "X has 1 features, but SelfCalibratedClassifier is expecting 2 features"),
            (lambda X: X[0], "Reshape your data"),
            (lambda X: changed(X, np.nan), "row 4, column 1 is NaN"),
            (lambda X: changed(X, "red"), "row 4, column 1 is 'red'"),
            (
                lambda X: changed(X, 1e300),
                r"1e\+18 standard deviations .* row 4, column 1 is 1e\+300 .*Clip or drop",
            ),
            (lambda X: changed(X, -1e30), r"row 4, column 1 is -1e\+30"),
            (lambda X: X[:0], r"0 sample\(s\)"),
        ],
    )
    @pytest.mark.parametrize("method", ["predict", "predict_proba", "confidence", "logits"])
    def test_data_at_prediction(self, fitted, data, change, message, method):
        with pytest.raises(DataError, match=message):
            getattr(fitted, method)(change(data[0]))

    @pytest.mark.parametrize("method", ["predict", "predict_proba", "confidence", "logits"])
    def test_not_fitted(self, data, method):
        with pytest.raises(NotFittedError):
            getattr(classifier(), method)(data[0])

    def test_fit_that_fails_leaves_nothing_to_predict_with(self, data):
        X, y = data
        model = classifier().fit(X, y)
        with pytest.raises(ConfigError):
            model.set_params(network=lambda n, k: nn.Linear(n, 1)).fit(X, y > 2)
        with pytest.raises(NotFittedError):
            model.predict(X)
        assert model.set_params(network=None).fit(X, y > 2).predict_proba(X).shape == (150, 2)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda X, y: {"X_val": X}, "go together; got X_val without y_val"),
            (lambda X, y: {"y_val": y}, "go together; got y_val without X_val"),
            (
                lambda X, y: {"X_val": X, "y_val": y + 1},
                r"y_val must hold labels from \[0, 1, 2, 3, 4\]; row .* is 5",
            ),
            (lambda X, y: {"X_val": X, "y_val": y.astype(str)}, "y_val must hold labels from .* is '"),
            (lambda X, y: {"X_val": X, "y_val": y[:3]}, "X_val has 150, y_val has 3"),
            (lambda X, y: {"X_val": X[:, :1], "y_val": y}, "X_val: X has 1 features, .* expecting 2"),
            (lambda X, y: {"X_val": changed(X, np.nan), "y_val": y}, "X_val must .* row 4, column 1 is NaN"),
            (
                lambda X, y: {"X_val": changed(X, 1e30), "y_val": y},
                r"X_val must lie within .* row 4, column 1 is 1e\+30",
            ),
            (lambda X, y: {"X_val": X[:1], "y_val": y[:1]}, "X_val must hold at least two rows of a class"),
            (lambda X, y: {"X_val": X[:0], "y_val": y[:0]}, r"X_val: Found array with 0 sample\(s\)"),
            (
                lambda X, y: {"X_val": X, "y_val": np.r_[y[:-1], np.nan]},
                "y_val must hold a label in every row; row 149",
            ),
        ],
    )
    def test_validation_data(self, data, change, message):
        with pytest.raises(SelfcalError, match=message):
            classifier().fit(*data, **change(*data))

    def test_huge_values_without_standardizing(self, data):
        with pytest.raises(
            DataError, match=r"within ±1e\+18 if standardize=False; row 4, column 1 is 1e\+30"
        ):
            classifier(standardize=False).fit(changed(data[0], 1e30), data[1])


@pytest.mark.parametrize("method", ["standard", "isoreg", "histogram"])
@pytest.mark.filterwarnings("ignore::selfcal.errors.CalibrationWarning")
def test_one_forward_pass_gives_what_the_three_methods_give(data, method):
    model = classifier(method).fit(*data)
    codes, confidence, probs = model.predict_with_confidence(data[0])
    np.testing.assert_array_equal(model.classes_[codes], model.predict(data[0]))
    np.testing.assert_array_equal(confidence, model.confidence(data[0]))
    np.testing.assert_array_equal(probs, model.predict_proba(data[0]))


class TestClassNames:
    NAMES = ("a", "b", "c", "d", "e" * 10_000)

    @pytest.mark.parametrize("method", ["bo4sc", "crossfit"])
    def test_codes_with_names_are_the_names(self, data, method):
        X, y = data
        names = np.array(self.NAMES, dtype=object)
        coded = classifier(method, hidden=(4,)).fit(X, y, class_names=names)
        named = classifier(method, hidden=(4,)).fit(X, names[y])
        np.testing.assert_array_equal(coded.classes_, names)
        np.testing.assert_array_equal(coded.predict(X), named.predict(X))
        np.testing.assert_array_equal(coded.predict_proba(X), named.predict_proba(X))

    def test_validation_rows_hold_codes_too(self, data):
        X, y = data
        model = classifier().fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:], class_names=self.NAMES)
        assert set(model.predict(X)) <= set(self.NAMES)

    @pytest.mark.parametrize("names", [["a", "b"], list("abcdef"), list("aabcd"), [["a"]] * 5])
    def test_names_that_do_not_fit(self, data, names):
        with pytest.raises(SelfcalError, match="class_names"):
            classifier().fit(*data, class_names=names)

    def test_labels_that_are_no_codes(self, data):
        X, y = data
        with pytest.raises(DataError, match="y must hold each code from 0 to 4"):
            classifier().fit(X, y + 1, class_names=self.NAMES)
