"""The novelty score that a table model fits by itself."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from selfcal import SelfCalibratedClassifier
from selfcal.errors import ConfigError
from selfcal.workflows import table_novelty
from selfcal.workflows.table_model import TableModel
from tests.workflows.test_table_model import table_of


def fitted(n=600, **settings):
    return TableModel("standard", **{"max_epochs": 1, **settings}).fit(table_of(n), "kind")


@pytest.fixture(scope="module")
def model():
    return fitted()


def test_held_out_rows_are_marked_as_rarely_as_promised(model):
    held_out = table_of(600)[model.parts(table_of(600), "kind").held_out]
    marked = model.predict(held_out).novel
    assert len(marked) == 120
    assert marked.sum() == 120 - np.ceil(0.95 * 121)  # those above the rank of the threshold
    assert model.detector.guarantee_.startswith("A row like the 120 held-out rows is flagged")


def test_strange_rows_are_marked_and_the_classifier_alone_agrees(model, tmp_path):
    table = table_of(400, seed=3)
    moved = table.with_columns(pl.col("east") + 40)
    assert model.predict(moved).novel.all()
    folder = model.save(tmp_path / "m")
    again, inside = TableModel.load(folder), SelfCalibratedClassifier.load(folder)
    novel = model.predict(table).novel
    np.testing.assert_array_equal(again.predict(table).novel, novel)
    np.testing.assert_array_equal(inside.is_novel(table), novel)
    assert model.predict(table.head(0)).novel.shape == (0,)


def test_the_report_has_the_rate_on_rows_that_chose_no_threshold(model):
    found = model.report.novelty
    assert (found.chosen_on + found.rows, found.false_alarms) == (120, 0.05)
    assert found.rate.low <= 0.05 <= found.rate.high
    assert (
        found.examined
        == model.predict(table_of(600)[model.parts(table_of(600), "kind").held_out]).novel.sum()
    )
    assert [one.column for one in sorted(found.columns, key=lambda one: one.column)] == ["east", "north"]
    for sets in model.report.methods[0].sets:
        assert sets.coverage.low <= sets.promised <= sets.coverage.high


def test_it_can_be_switched_off(tmp_path):
    plain = fitted(novelty=None)
    assert (plain.detector, plain.report.novelty, plain.predict(table_of(5)).novel) == (None, None, None)
    assert TableModel.load(plain.save(tmp_path / "m")).detector is None
    with pytest.raises(ConfigError, match="novelty must be a number"):
        TableModel(novelty=5)


def test_few_rows_and_many_columns_are_said(monkeypatch):
    few = fitted(60)
    assert few.detector is None
    assert "take at least 19 held-out rows; there are 13" in few.notes[-1]
    assert few.remarks[-1] == few.notes[-1]
    assert few.report.notes[-1] == few.notes[-1]
    monkeypatch.setattr(table_novelty, "MAX_FEATURES", 1)
    assert "there are 2. Use fewer columns" in fitted().notes[-1]


def test_too_few_rows_for_two_halves_are_marked_but_not_measured():
    some = fitted(150)
    assert some.detector is not None
    assert some.report.novelty is None


def test_a_refitted_model_marks_none_and_keeps_the_report(model):
    after = fitted(refit=True)
    assert after.detector is None
    assert replace(after.report, refit=None) == model.report
