import warnings

import numpy as np
import polars as pl
import pytest
import skops.io

from selfcal import SelectiveClassifier, SelfCalibratedClassifier
from selfcal.datasets import Blobs
from selfcal.errors import ModelFormatError
from selfcal.estimators.splits import with_validation
from selfcal.workflows.table_model import TableModel


def table_of(n=300, seed=0):
    X, y = Blobs(std=1.7).sample(n, seed=seed)
    return pl.DataFrame({"east": X[:, 0], "north": X[:, 1], "kind": [f"kind {label}" for label in y]})


@pytest.fixture(scope="module")
def model():
    return TableModel("temperature", max_epochs=20).fit(table_of(), "kind")


def test_a_stored_model_says_the_same_bit_for_bit(model, tmp_path):
    again = TableModel.load(model.save(tmp_path / "m"))
    mine, theirs = model.predict(table_of()), again.predict(table_of())
    np.testing.assert_array_equal(mine.probs, theirs.probs)
    np.testing.assert_array_equal(mine.chosen, theirs.chosen)
    assert (again.classes, again.notes, again.schema) == (model.classes, model.notes, model.schema)
    assert again.report == model.report
    assert again.threshold(0.4) == model.threshold(0.4)


def test_the_classifier_inside_answers_with_names(model, tmp_path):
    clf = SelfCalibratedClassifier.load(model.save(tmp_path / "m"))
    assert set(clf.predict(table_of())) <= set(model.classes)


def test_the_threshold_is_that_of_the_selective_classifier_on_the_held_out_rows(model):
    table = table_of()
    parts = TableModel("temperature", max_epochs=20).parts(table, "kind")
    apart = table[parts.held_out]
    chosen = SelectiveClassifier(model.classifier, max_risk=0.4).fit(apart, apart["kind"].to_numpy())
    assert model.threshold(0.4)[0] == chosen.threshold_
    assert model.threshold(0.4)[1].errors == chosen.guarantee_.errors


def test_no_rows(model):
    answers = model.predict(table_of().head(0))
    assert answers.probs.shape == (0, 5)


def test_a_model_of_arrays_is_not_one_of_tables(tmp_path):
    X, y = Blobs(std=1.7).sample(100, seed=0)
    clf = SelfCalibratedClassifier("standard", max_epochs=2, random_state=0).fit(X, y)
    with pytest.raises(ModelFormatError, match="trained on arrays"):
        TableModel.load(clf.save(tmp_path / "m"))


@pytest.mark.parametrize(
    "stored",
    [
        b"no archive",
        skops.io.dumps({"other": 1}),
        skops.io.dumps({"table": "{}", "preprocessor": {}, "confidence": np.ones(1), "wrong": np.ones(1)}),
    ],
    ids=["bytes", "names", "empty"],
)
def test_a_preprocessor_that_is_none(model, stored, tmp_path):
    folder = model.classifier.save(tmp_path / "m", extras={"preprocessor.skops": stored})
    with pytest.raises(ModelFormatError, match="holds nothing that can be used"):
        TableModel.load(folder)


def test_warnings_of_training_become_notes(monkeypatch):
    fit = SelfCalibratedClassifier.fit

    def warned(self, *args, **options):
        warnings.warn("something is odd", stacklevel=2)
        return fit(self, *args, **options)

    monkeypatch.setattr(SelfCalibratedClassifier, "fit", warned)
    with pytest.warns(UserWarning, match="something is odd"):
        model = TableModel("standard", max_epochs=1, novelty=None).fit(table_of(60), "kind")
    assert model.notes == ("something is odd",)
    assert model.report.notes == ("something is odd",)


def test_groups_reach_the_halves_of_the_validation_rows(monkeypatch):
    """A method with an outer level and early stopping divides them once more."""
    seen = {}

    def spy(rows, codes, groups, first, **needs):
        seen.update(groups=groups)
        return with_validation(rows, codes, groups, first, **needs)

    monkeypatch.setattr("selfcal.estimators.classifier.with_validation", spy)
    table = table_of(120).with_columns(visit=pl.Series([f"patient {i // 4}" for i in range(120)]))
    model = TableModel("bo4sc", max_epochs=20)
    rows = model.parts(table, "kind", group="visit").validation
    model.fit(table, "kind", group="visit")
    np.testing.assert_array_equal(
        np.unique(seen["groups"], return_inverse=True)[1], np.unique(rows // 4, return_inverse=True)[1]
    )


def test_copies_of_a_row_are_held_out_together_by_the_default_method(monkeypatch):
    table = table_of(80)
    table = pl.concat([table, table])
    seen = {}

    def spy(classifier, X, y, *, groups, **further):
        seen.update(X=X, groups=groups)
        return fit(classifier, X, y, groups=groups, **further)

    fit = SelfCalibratedClassifier.fit
    monkeypatch.setattr(SelfCalibratedClassifier, "fit", spy)
    model = TableModel(max_epochs=1, hidden=(4,)).fit(table, "kind")
    assert model.classifier.method == "auto"
    rows = seen["X"].rows()
    assert len(set(rows)) < len(rows)  # copies are there
    assert len(set(zip(rows, seen["groups"], strict=True))) == len(set(rows)) == len(set(seen["groups"]))
    assert len(rows) + len(model.held_out_wrong) == table.height
