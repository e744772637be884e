"""The classifier on data frames of every library, as the command line sees the same table."""

import datetime
import subprocess
import sys
import warnings

import numpy as np
import polars as pl
import pytest
import scipy.sparse
import sklearn
from packaging.version import Version
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from selfcal import CalibratedModel, SelectiveClassifier, SelfCalibratedClassifier, metrics
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, DataError, ModelFormatError, SelfcalError
from selfcal.reporting import report
from selfcal.reporting.predictions import Predictions
from selfcal.storage import files
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.io.reading import read_table
from selfcal.tabular.preprocessing import Preprocessor
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import run

ROWS = 120


def mixed(n=ROWS, seed=0):
    """Cells of every kind by column, some of them missing, and labels."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n).round(4)
    colour = rng.choice(["red", "blue", "gr,een"], n)
    hours = rng.integers(0, 9999, n).tolist()
    start = datetime.datetime(2020, 1, 1)

    def gaps(values, step):
        return [None if i % step == 1 else value for i, value in enumerate(values)]

    columns = {
        "size": gaps(size.tolist(), 17),
        "count": gaps(rng.integers(0, 9, n).tolist(), 29),
        "colour": gaps(colour.tolist(), 13),
        "vip": gaps((rng.random(n) < 0.3).tolist(), 19),
        "when": gaps([start + datetime.timedelta(hours=h) for h in hours], 23),
    }
    return columns, np.where(size + (colour == "red") + rng.normal(size=n) / 2 > 0, "yes", "no")


CELLS, Y = mixed()


def as_csv(columns, folder):
    pl.DataFrame(columns).write_csv(folder / "table.csv")
    return read_table(folder / "table.csv")


def pandas_frame(columns, **options):
    return pytest.importorskip("pandas").DataFrame(columns, **options)


FRAMES = {
    "polars": lambda columns, _: pl.DataFrame(columns),
    "polars, categories": lambda columns, _: pl.DataFrame(columns).with_columns(
        pl.col("colour").cast(pl.Categorical)
    ),
    "pandas": lambda columns, _: pandas_frame(columns),
    "pandas, objects": lambda columns, _: pandas_frame(columns, dtype=object),
    "pandas, its own missing values": lambda columns, _: pandas_frame(columns).convert_dtypes(),
    "pandas, categories": lambda columns, _: pandas_frame(columns).astype({"colour": "category"}),
    "pandas, rows in another order of the index": lambda columns, _: pandas_frame(
        columns, index=range(len(columns["size"]), 0, -1)
    ),
    "pyarrow": lambda columns, _: pytest.importorskip("pyarrow").table(columns),
    "array": lambda columns, _: np.array(list(zip(*columns.values(), strict=True)), dtype=object),
    "array of a pandas frame": lambda columns, _: pandas_frame(columns).to_numpy(),
    "lists": lambda columns, _: [list(row) for row in zip(*columns.values(), strict=True)],
    "CSV file": as_csv,
}


def classifier(method="temperature", **settings):
    return SelfCalibratedClassifier(
        method, **{"max_epochs": 15, "hidden": (8,), "random_state": 0, **settings}
    )


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(pl.DataFrame(CELLS), Y)


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """A model of `selfcal fit`, and its predictions for the rows of `mixed(seed=1)`."""
    folder = tmp_path_factory.mktemp("command")
    pl.DataFrame({**CELLS, "y": Y}).write_csv(folder / "train.csv")
    pl.DataFrame(mixed(seed=1)[0]).write_csv(folder / "new.csv")
    said = run(
        "fit", folder / "train.csv", "--target", "y", "--out", folder / "model", "--method", "temperature"
    )
    assert said.exit_code == 0, said.output
    return folder / "model", predicted(folder / "model", folder / "new.csv", folder)


def predicted(model, table, folder):
    said = run("predict", model, table, "--out", folder / "predicted.parquet", "--force")
    assert said.exit_code == 0, said.output
    return pl.read_parquet(folder / "predicted.parquet")


def named_classes(table):
    return np.column_stack([table["prob_no"].to_numpy(), table["prob_yes"].to_numpy()])


@pytest.mark.parametrize("form", FRAMES)
class TestEveryKindOfFrame:
    @pytest.mark.filterwarnings("ignore:X does not have valid feature names")
    def test_fits_and_predicts_the_same(self, form, fitted, tmp_path):
        X = FRAMES[form](CELLS, tmp_path)
        mine = classifier().fit(X, Y)
        expected = fitted.predict_proba(pl.DataFrame(CELLS))
        np.testing.assert_array_equal(mine.predict_proba(X), expected)
        np.testing.assert_array_equal(fitted.predict_proba(X), expected)
        assert mine.n_features_in_ == len(CELLS)
        assert hasattr(mine, "feature_names_in_") == (
            form not in ("array", "array of a pandas frame", "lists")
        )

    @pytest.mark.filterwarnings("ignore:X does not have valid feature names")
    def test_is_predicted_as_on_the_command_line(self, form, command, tmp_path):
        folder, expected = command
        X = FRAMES[form](mixed(seed=1)[0], tmp_path)
        clf = SelfCalibratedClassifier.load(folder)
        np.testing.assert_array_equal(clf.predict_proba(X), named_classes(expected))
        np.testing.assert_array_equal(clf.predict(X), expected["predicted"].to_numpy())
        np.testing.assert_array_equal(clf.confidence(X), expected["confidence"].to_numpy())


class TestFolders:
    def test_the_command_line_uses_the_model_of_an_estimator(self, fitted, tmp_path):
        new = pl.DataFrame(mixed(seed=1)[0])
        new.write_csv(tmp_path / "new.csv")
        folder = fitted.save(tmp_path / "model")
        found = predicted(folder, tmp_path / "new.csv", tmp_path)
        np.testing.assert_array_equal(named_classes(found), fitted.predict_proba(new))
        np.testing.assert_array_equal(found["predicted"].to_numpy(), fitted.predict(new))
        again = SelfCalibratedClassifier.load(folder)
        np.testing.assert_array_equal(again.predict_proba(new), fitted.predict_proba(new))
        assert list(again.feature_names_in_) == list(CELLS)
        assert files.PREPROCESSOR in {path.name for path in folder.iterdir()}

    def test_inspect_says_that_it_was_not_evaluated(self, fitted, tmp_path):
        said = run("inspect", fitted.save(tmp_path / "model"))
        assert said.exit_code == 0, said.output
        assert "saved from Python" in said.output
        assert "colour" in said.output
        said = run("inspect", tmp_path / "model", "--json")
        assert '"report_numbers": null' in said.output

    def test_there_is_no_threshold_with_a_guarantee(self, fitted, tmp_path):
        pl.DataFrame(CELLS).write_csv(tmp_path / "new.csv")
        folder = fitted.save(tmp_path / "model")
        said = run("predict", folder, tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--max-risk", "0.1")
        assert said.exit_code == 2
        assert "saved from Python" in said.output
        with pytest.raises(ConfigError, match="saved from Python"):
            _ = TableModel.load(folder).report

    def test_labels_that_are_numbers(self, tmp_path):
        clf = classifier().fit(pl.DataFrame(CELLS), (Y == "yes").astype(int))
        pl.DataFrame(CELLS).write_csv(tmp_path / "new.csv")
        found = predicted(clf.save(tmp_path / "model"), tmp_path / "new.csv", tmp_path)
        assert set(found["predicted"]) == {"0", "1"}

    def test_a_model_of_a_table_stored_again(self, command, tmp_path):
        clf = SelfCalibratedClassifier.load(command[0])
        X = pl.DataFrame(mixed(seed=1)[0])
        again = SelfCalibratedClassifier.load(clf.save(tmp_path / "again"))
        np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))

    def test_a_preprocessor_of_another_model(self, fitted, tmp_path):
        other = classifier("standard", max_epochs=1).fit(pl.DataFrame(CELLS).drop("when"), Y)
        stored = (other.save(tmp_path / "other") / files.PREPROCESSOR).read_bytes()
        folder = fitted.save(tmp_path / "model", extras={files.PREPROCESSOR: stored})
        with pytest.raises(ModelFormatError, match="not that of the network"):
            SelfCalibratedClassifier.load(folder)

    def test_settings_come_back(self, tmp_path):
        weight, kinds = {"no": 1.0, "yes": 2.0}, {"count": "category"}
        clf = classifier(class_weight=weight, kinds=kinds).fit(pl.DataFrame(CELLS), Y)
        again = SelfCalibratedClassifier.load(clf.save(tmp_path / "model"))
        assert (again.class_weight, again.kinds) == (weight, kinds)


class TestColumns:
    def test_numbers_are_scaled_as_those_of_an_array(self):
        pandas = pytest.importorskip("pandas")
        X, y = Blobs(std=1.7).sample(150, seed=0)
        X = X * [1e6, 1e-3]
        frame = pandas.DataFrame(X, columns=["east", "north"])
        np.testing.assert_allclose(
            classifier().fit(frame, y).predict_proba(frame),
            classifier().fit(X, y).predict_proba(X),
            atol=1e-3,
        )

    def test_order_and_names(self, fitted):
        X = pl.DataFrame(CELLS)
        with pytest.raises(DataError, match="must be in the same order"):
            fitted.predict(X[:, ::-1])
        with pytest.raises(DataError, match=r"unseen at fit time:\n- color\n.*\n- colour"):
            fitted.predict(X.rename({"colour": "color"}))
        with pytest.raises(DataError, match="expecting 5 features"), pytest.warns(UserWarning, match="names"):
            fitted.predict(np.zeros((3, 4)))
        with pytest.raises(DataError, match="at least one row"):
            fitted.predict(X[:0])

    def test_further_columns_are_ignored_with_a_warning(self, fitted):
        X = pl.DataFrame(CELLS)
        with pytest.warns(UserWarning, match="are ignored: 'more'"):
            found = fitted.predict_proba(X.with_columns(more=1))
        np.testing.assert_array_equal(found, fitted.predict_proba(X))

    def test_a_new_category_warns_the_caller(self, fitted):
        X = pl.DataFrame(CELLS).with_columns(colour=pl.lit("pink"))
        with pytest.warns(
            UserWarning, match="'colour' has 120 cells with a category that was not seen"
        ) as seen:
            fitted.predict(X)
        assert seen[0].filename == __file__

    def test_columns_that_are_only_numbered_have_no_names(self):
        pandas = pytest.importorskip("pandas")
        X, y = Blobs(std=1.7).sample(100, seed=0)
        clf = classifier("standard", max_epochs=2).fit(pandas.DataFrame(X), y)
        assert not hasattr(clf, "feature_names_in_")
        np.testing.assert_array_equal(clf.predict_proba(X), clf.predict_proba(pandas.DataFrame(X)))

    def test_kinds(self):
        X = pl.DataFrame(CELLS)
        clf = classifier("standard", max_epochs=2, kinds={"count": "category", "when": "drop"}).fit(X, Y)
        assert "count=3" in clf.preprocessor_.feature_names
        assert clf.predict_proba(X.drop("when")).shape == (ROWS, 2)
        assert clone(clf).kinds == clf.kinds

    def test_a_categorical_column_of_numbers_holds_categories(self):
        frame = pandas_frame({**CELLS, "code": [i % 4 for i in range(ROWS)]})
        clf = classifier("standard", max_epochs=2).fit(frame.astype({"code": "category"}), Y)
        assert clf.preprocessor_.feature_names[-4:] == ["code=0", "code=1", "code=2", "code=3"]

    def test_a_dropped_column_warns(self):
        X = pl.DataFrame(CELLS).with_columns(row=pl.int_range(ROWS), same=pl.lit("a"))
        with pytest.warns(UserWarning, match="is dropped") as seen:
            clf = classifier("standard", max_epochs=1).fit(X, Y)
        assert {str(w.message).split("'")[1] for w in seen} == {"row", "same"}
        assert clf.n_features_in_ == 7

    def test_copies_are_one_group(self):
        X = pl.DataFrame(CELLS)
        with pytest.warns(UserWarning, match="repeat"):
            clf = classifier("standard", max_epochs=1).fit(pl.concat([X, X]), np.append(Y, Y))
        train = set(clf.train_rows_.tolist())
        assert {(row + ROWS) % (2 * ROWS) for row in train} == train

    def test_rows_of_weight_zero_are_as_good_as_absent(self):
        X = pl.DataFrame(CELLS).with_columns(colour=pl.Series([*CELLS["colour"][:-1], "rare"]))
        weight = np.append(np.ones(ROWS - 1), 0.0)
        clf = classifier("standard", max_epochs=1).fit(X, Y, weight)
        assert "colour=rare" not in clf.preprocessor_.feature_names

    def test_validation_rows(self):
        X = pl.DataFrame(CELLS)
        clf = classifier().fit(X[:80], Y[:80], X_val=X[80:], y_val=Y[80:])
        assert sorted(clf.train_rows_) == list(range(80))
        assert clf.predict_proba(X).shape == (ROWS, 2)

    def test_a_preprocessor_of_ones_own(self):
        X = pl.DataFrame(CELLS)
        own = Preprocessor(max_levels=9).fit(X, infer_schema(X))
        clf = classifier("standard", max_epochs=1).fit(X, Y, preprocessor=own)
        assert clf.preprocessor_ is own
        assert clf.predict_proba(X).shape == (ROWS, 2)


class TestMistakes:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"size": ["1.5"] * (ROWS - 1) + ["red"]}, "row 120 is 'red'.*kinds={'size': 'category'}"),
            ({"size": [float("inf"), *CELLS["size"][1:]]}, "infinite or too large: 'size'.*make them None"),
            (
                {"size": [f"1,{100 + i}" if i % 2 else str(10_000 + i) for i in range(ROWS)]},
                "kinds={'size': 'number:,'}",
            ),
            (
                {"when": [f"0{1 + i % 9}/0{1 + i % 7}/2020" for i in range(ROWS)]},
                "pass kinds={'when': 'date:%d/%m/%Y'} or kinds",
            ),
            (
                {"text": [f"the patient has come {i} times" for i in range(ROWS)]},
                "free text.*kinds={'text': 'drop'}",
            ),
            ({"text": [[i] for i in range(ROWS)]}, "column 'text' is List"),
            (dict.fromkeys(CELLS, ["a"] * ROWS), "feature column"),
        ],
        ids=["text", "infinity", "comma", "date", "free text", "lists", "constant"],
    )
    def test_cells_in_fit(self, change, message):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(SelfcalError, match=f"(?is){message}") as caught:
                classifier().fit(pl.DataFrame({**CELLS, **change}), Y)
        assert "--" not in str(caught.value)  # no option of the command line

    def test_cells_in_predict(self, fitted):
        with pytest.raises(DataError, match=r"'size' must hold numbers.*\(kinds\)") as caught:
            fitted.predict(pl.DataFrame({**CELLS, "size": ["red"] * ROWS}))
        assert "--" not in str(caught.value)
        with pytest.raises(DataError, match=r"of the magnitude|standard deviations"):
            fitted.predict(pl.DataFrame({**CELLS, "size": [1e30, *CELLS["size"][1:]]}))

    def test_two_columns_of_one_name(self):
        frame = pandas_frame(CELLS)
        with pytest.raises(DataError, match="each column once"):
            classifier().fit(frame[["size", "size", "colour"]], Y)
        with pytest.raises(DataError, match=r"each column once.*'1'"):
            classifier().fit(frame[["size", "count"]].set_axis([1, "1"], axis=1), Y)

    def test_no_rows(self):
        with pytest.raises(DataError, match="X must have at least one row"):
            classifier().fit(pl.DataFrame(CELLS)[:0], [])

    def test_settings_about_names_of_an_array(self):
        X, y = Blobs().sample(60, seed=0)
        with pytest.raises(ConfigError, match="kinds is for data frames"):
            classifier(kinds={"x0": "category"}).fit(X, y)

    @pytest.mark.parametrize("kinds", ["size", {"size": "text"}, {"size": 1}])
    def test_kinds_that_are_none(self, kinds):
        with pytest.raises(ConfigError, match="kinds"):
            classifier(kinds=kinds).fit(pl.DataFrame(CELLS), Y)

    def test_a_kind_for_a_column_that_is_not_there(self):
        with pytest.raises(DataError, match=r"column 'sise'.*'size'"):
            classifier(kinds={"sise": "drop"}).fit(pl.DataFrame(CELLS), Y)

    def test_a_fit_that_fails_leaves_no_model(self):
        clf = classifier("standard", max_epochs=1).fit(pl.DataFrame(CELLS), Y)
        with pytest.raises(DataError):
            clf.fit(pl.DataFrame(CELLS)[:0], [])
        with pytest.raises(NotFittedError):
            clf.predict(pl.DataFrame(CELLS))

    def test_frame_then_array(self):
        X, y = Blobs().sample(60, seed=0)
        clf = classifier("standard", max_epochs=1).fit(pl.DataFrame(CELLS), Y).fit(X, y)
        assert clf.preprocessor_ is None
        assert not hasattr(clf, "feature_names_in_")
        assert clf.predict_proba(X).shape == (60, 5)


class TestWithOthers:
    def test_the_default_method(self):
        X = pl.DataFrame(CELLS)
        clf = classifier("crossfit", max_epochs=2).fit(X, Y)
        assert clf.predict_proba(X).shape == (ROWS, 2)
        assert not np.isnan(clf.out_of_fold_).any()

    def test_selective_classifier_calibrated_model_and_report(self, fitted, tmp_path):
        cells, y = mixed(400, seed=1)
        X = pandas_frame(cells)
        careful = SelectiveClassifier(fitted, min_coverage=0.5).fit(X, y)
        assert careful.accepts(X).mean() >= 0.5
        model = CalibratedModel(fitted).fit(X, y)
        assert (
            metrics.log_loss(y == "yes", model.predict_proba(X))
            <= metrics.log_loss(y == "yes", fitted.predict_proba(X)) + 1e-6
        )
        judged = Predictions.of(fitted, X, y)
        assert report({"a data frame": judged}, tmp_path / "report.html").exists()

    def test_permutation_importance(self, fitted):
        X = pandas_frame(CELLS)
        found = permutation_importance(fitted, X, Y, n_repeats=2, random_state=0, scoring="neg_log_loss")
        assert found.importances_mean.argmax() in (0, 2)  # size and colour are all that matters

    def test_cross_validation(self):
        scores = cross_val_score(classifier(), pandas_frame(CELLS), Y, cv=3, scoring="roc_auc")
        assert scores.min() > 0.6

    def test_pipeline_that_returns_frames(self):
        X = pandas_frame(CELLS)
        scale = ColumnTransformer([("scale", StandardScaler(), ["size"])], remainder="passthrough")
        pipeline = make_pipeline(scale.set_output(transform="pandas"), classifier()).fit(X, Y)
        assert "remainder__colour" in pipeline[-1].feature_names_in_
        assert pipeline.predict_proba(X).shape == (ROWS, 2)

    @pytest.mark.skipif(
        Version(sklearn.__version__) < Version("1.8"), reason="the score of a pipeline takes no weights"
    )
    def test_metadata_routing(self, monkeypatch):
        X, groups = pandas_frame(CELLS), np.arange(ROWS) // 4
        seen = []
        fit = SelfCalibratedClassifier.fit

        def spy(self, X, y, sample_weight=None, *, groups=None, **further):
            seen.append((len(X), sample_weight, groups))
            return fit(self, X, y, sample_weight, groups=groups, **further)

        monkeypatch.setattr(SelfCalibratedClassifier, "fit", spy)
        with sklearn.config_context(enable_metadata_routing=True):
            clf = classifier("standard", max_epochs=2).set_fit_request(sample_weight=True, groups=True)
            clf.set_score_request(sample_weight=True)
            scale = StandardScaler().set_fit_request(sample_weight=False)
            columns = ColumnTransformer([("scale", scale, ["size"])], remainder="passthrough")
            found = cross_validate(
                make_pipeline(columns.set_output(transform="pandas"), clf),
                X,
                Y,
                cv=GroupKFold(3),
                params={"groups": groups, "sample_weight": np.linspace(1, 2, ROWS)},
            )
        assert len(found["test_score"]) == len(seen) == 3
        for n, weight, own in seen:
            assert len(weight) == len(own) == n
            assert np.bincount(own).max() == 4  # a group is on one side


class TestSparse:
    @pytest.mark.parametrize(
        "form", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, scipy.sparse.coo_array]
    )
    def test_is_as_good_as_dense(self, form):
        X, y = Blobs(std=1.7).sample(120, seed=0)
        X[:40, 0] = 0.0
        dense = classifier().fit(X, y)
        clf = classifier().fit(form(X), y)
        np.testing.assert_array_equal(clf.predict_proba(form(X)), dense.predict_proba(X))
        np.testing.assert_array_equal(clf.predict_proba(X), dense.predict_proba(X))

    def test_too_wide_for_memory(self):
        X = scipy.sparse.csr_array((1000, 10**7))
        with pytest.raises(DataError, match=r"4 GB as a dense table.*TruncatedSVD"):
            classifier().fit(X, np.arange(1000) % 2)


class TestClassWeight:
    @pytest.mark.parametrize("method", ["standard", "crossfit"])
    def test_is_that_of_the_rows(self, method):
        X, y = Blobs(std=1.7).sample(200, seed=0)
        weight = {0: 4.0, 1: 2.0}
        rows = np.select([y == 0, y == 1], [4.0, 2.0], 1.0)
        settings = {"max_epochs": 3}
        np.testing.assert_array_equal(
            classifier(method, class_weight=weight, **settings).fit(X, y).predict_proba(X),
            classifier(method, **settings).fit(X, y, rows).predict_proba(X),
        )

    def test_multiplies_the_weights_of_rows(self):
        X, y = Blobs(std=1.7).sample(200, seed=0)
        rows = 1.0 + np.arange(200) % 3
        np.testing.assert_allclose(
            classifier(class_weight={0: 4.0}).fit(X, y, rows).predict_proba(X),
            classifier().fit(X, y, rows * np.where(y == 0, 4, 1)).predict_proba(X),
            atol=1e-4,
        )

    def test_balanced_predicts_rare_classes_more_often(self):
        X, y = Blobs(std=2.5).sample(400, seed=0)
        rare = y == 0
        plain, even = (classifier(class_weight=w, max_epochs=40).fit(X, rare) for w in (None, "balanced"))
        assert even.predict(X).sum() > plain.predict(X).sum()
        assert abs(even.predict_proba(X)[rare, 1].mean() + even.predict_proba(X)[~rare, 1].mean() - 1) < 0.2

    def test_validation_rows_are_weighted_too(self):
        X, y = Blobs(std=1.7).sample(300, seed=0)
        settings = {"X_val": X[200:], "y_val": y[200:]}
        plain, weighted = (
            classifier(class_weight=w).fit(X[:200], y[:200], **settings) for w in (None, {0: 50.0})
        )
        assert weighted.predict_proba(X[200:])[:, 0].mean() > plain.predict_proba(X[200:])[:, 0].mean() + 0.1

    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            ("even", "None, 'balanced' or a dictionary"),
            ([1, 2], "None, 'balanced' or a dictionary"),
            ({"mybe": 1.0}, "which has 'no', 'yes'; got 'mybe'"),
            ({"no": -1.0}, r"class_weight\['no'\]"),
            ({"no": "heavy"}, r"class_weight\['no'\]"),
        ],
    )
    def test_mistakes(self, weight, message):
        with pytest.raises(SelfcalError, match=message):
            classifier(class_weight=weight).fit(pl.DataFrame(CELLS), Y)

    def test_nothing_is_left(self):
        with pytest.raises(DataError, match="every row has weight zero"):
            classifier(class_weight={"no": 0, "yes": 0}).fit(pl.DataFrame(CELLS), Y)


def test_scores_as_scikit_learn_has_them(fitted):
    X = pl.DataFrame(CELLS)
    probs = fitted.predict_proba(X)
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(probs))
    np.testing.assert_allclose(fitted.decision_function(X), np.log(probs[:, 1] / probs[:, 0]))
    X, y = Blobs().sample(80, seed=0)
    clf = classifier("standard", max_epochs=2).fit(X, y)
    scores = clf.decision_function(X)
    np.testing.assert_array_equal(clf.classes_[scores.argmax(axis=1)], clf.predict(X))


@pytest.mark.slow
def test_neither_pandas_nor_pyarrow_is_needed():
    code = (
        "import sys, polars as pl\n"
        "class Refuse:\n"
        "    def find_spec(name, *_):\n"
        "        if name in ('pandas', 'pyarrow'):\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Refuse)\n"
        "from selfcal import SelfCalibratedClassifier\n"
        "X = pl.DataFrame({'a': [*'xy'] * 20, 'b': [i * .7 % 3 for i in range(40)]})\n"
        "SelfCalibratedClassifier('standard', max_epochs=1).fit(X, [0, 1] * 20).predict(X)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
