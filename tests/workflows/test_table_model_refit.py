"""A table model that is fitted again on all rows after its evaluation."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from selfcal import SelectiveClassifier, SelfCalibratedClassifier
from selfcal.errors import ConfigError, DataError
from selfcal.training.run import Run
from selfcal.workflows.table_model import TableModel
from tests.workflows.test_table_model import table_of


def fitted(refit, table=None, method="temperature", **settings):
    table = table_of() if table is None else table
    return TableModel(method, refit=refit, **{"max_epochs": 20, **settings}).fit(table, "kind")


@pytest.fixture(scope="module")
def models():
    """The same fit without and with a refit."""
    return fitted(False), fitted(True)


def test_the_report_is_that_on_the_model_before(models):
    before, after = models
    assert replace(after.report, refit=None) == before.report
    assert before.report.refit is None
    assert (after.report.refit.rows, after.report.refit.evaluated_rows) == (300, 240)
    assert after.report.refit.text == (
        "The stored model was refitted on all 300 rows after the evaluation; the scores are those of the same method "
        "trained on 240 of them, and for the stored model, if anything, slightly pessimistic on average."
    )
    assert (after.notes, after.classes, after.schema) == (before.notes, before.classes, before.schema)


def test_the_model_is_another_one_whose_scaling_is_that_of_all_rows(models):
    before, after = models
    assert np.abs(before.predict(table_of()).probs - after.predict(table_of()).probs).max() > 1e-3
    scaled = [model.preprocessor.transform(table_of()) for model in models]
    np.testing.assert_allclose(scaled[1].mean(axis=0), 0, atol=1e-9)
    assert np.abs(scaled[0].mean(axis=0)).max() > 1e-3


def test_a_refitted_model_can_be_stored(models, tmp_path):
    again = TableModel.load(models[1].save(tmp_path / "m"))
    np.testing.assert_array_equal(again.predict(table_of()).probs, models[1].predict(table_of()).probs)
    assert again.report == models[1].report
    assert len(again.held_out_confidence) == len(again.held_out_wrong) == 0


def test_no_guarantee_of_the_model_before_is_given_for_the_other(models, tmp_path):
    assert models[0].threshold(0.4)[1].n == 60
    for model in (models[1], TableModel.load(models[1].save(tmp_path / "m"))):
        with pytest.raises(ConfigError, match=r"this model was refitted on all rows. Fit it without --refit"):
            model.threshold(0.4)
    new = table_of(100, seed=1)  # the way out that the error names
    chosen = SelectiveClassifier(models[1].classifier, max_risk=0.5).fit(new, new["kind"].to_numpy())
    assert chosen.guarantee_.n == 100


def test_what_only_held_out_rows_have_is_known_after_the_refit():
    """A category and a missing number there take no part in the evaluation; a class always has a training row."""
    table = table_of()
    first, second = TableModel("temperature").parts(table, "kind").held_out[:2].tolist()
    row = pl.int_range(300)
    table = table.with_columns(
        north=pl.when(row == second).then(None).otherwise("north"),
        place=pl.when(row == first).then(pl.lit("island")).otherwise(pl.lit("shore")),
        kind=pl.when(row == 7).then(pl.lit("single")).otherwise("kind"),
    )
    before, after = fitted(False, table), fitted(True, table)
    assert replace(after.report, refit=None) == before.report
    assert before.predict(table[[first]]).unseen == {"place": 1}
    assert after.predict(table[[first]]).unseen == {}
    assert {*after.preprocessor.feature_names} - {*before.preprocessor.feature_names} == {
        "place=island",
        "north is missing",
    }
    assert "single" in after.classes


@pytest.fixture
def seen(monkeypatch):
    """The arguments of each fit of a classifier."""
    fit, calls = SelfCalibratedClassifier.fit, []

    def spy(self, X, y, **further):
        calls.append({"rows": len(X), "classifier": self, **further})
        return fit(self, X, y, **further)

    monkeypatch.setattr(SelfCalibratedClassifier, "fit", spy)
    return calls


@pytest.mark.parametrize("method", ["temperature", "bo4sc", "crossfit"])
def test_all_rows_take_part_and_groups_stay_together(method, seen):
    table = table_of(120).with_columns(visit=pl.Series([f"patient {i // 4}" for i in range(120)]))
    model = TableModel(method, refit=True, max_epochs=12, hidden=(4,)).fit(table, "kind", group="visit")
    for call, expected in zip(seen, (120 - model.report.rows, 120), strict=True):
        groups, others = call["groups"], call.get("groups_val", np.empty(0))
        assert len(groups) + len(others) == expected
        assert not {*groups} & {*others}
        assert {*np.unique([*groups, *others], return_counts=True)[1]} == {4}
    assert seen[0]["classifier"] is not seen[1]["classifier"] is model.classifier
    assert seen[0]["classifier"].random_state == seen[1]["classifier"].random_state


def test_settings_hold_for_both_fits_and_notes_say_which_one_they_are_on(seen):
    settings = {"n_networks": 1, "noisy_labels": True, "time_budget": 7.5, "max_epochs": 2, "hidden": (4,)}
    model = fitted(True, table_of(100), "crossfit", **settings)
    assert [call["rows"] for call in seen] == [100 - model.report.rows, 100]
    assert [call["classifier"].time_budget for call in seen] == [7.5, 7.5]
    told = [note for note in model.notes if "distilled from the ensemble" in note]
    assert [note.startswith("Refit: ") for note in told] == [False, True]
    assert sum("predicts true labels" in note for note in model.notes) == 1
    assert {*model.report.notes} >= {*told}


def test_memory_for_the_refit_is_checked_before_training(monkeypatch):
    """It needs more than the first fit, which would otherwise be in vain."""
    monkeypatch.setattr(SelfCalibratedClassifier, "fit", lambda *_, **__: pytest.fail("training has begun"))
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"a": rng.normal(size=900), "kind": [f"k{i % 60}" for i in range(900)]})

    def refused(refit, memory):
        try:
            TableModel("crossfit", refit=refit, memory=memory).fit(table, "kind")
        except DataError as error:
            return str(error)
        except pytest.fail.Exception:
            return ""

    low, high = 2**16, 2**30
    while high - low > 1000:  # the least memory for the first fit
        middle = (low + high) // 2
        low, high = (middle, high) if refused(False, middle) else (low, middle)
    assert "60 classes and 900 rows to predict need about" in refused(True, high)
    assert not refused(True, 2 * high)


def test_an_interrupted_refit_goes_on_to_the_same_model(models, tmp_path, monkeypatch):
    """Even by the same object, which has the evaluated model in the meantime."""
    model = TableModel("temperature", refit=True, max_epochs=20, checkpoint_dir=tmp_path)
    advance, steps = Run.advance, []

    def interrupted(self):
        steps.append(1)
        if len(steps) == 25:
            raise KeyboardInterrupt
        return advance(self)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(table_of(), "kind")
    evaluated = model.predict(table_of()).probs
    np.testing.assert_array_equal(evaluated, models[0].predict(table_of()).probs)
    assert model.threshold(0.4) == models[0].threshold(0.4)
    for _ in range(2):
        model.fit(table_of(), "kind")
        np.testing.assert_array_equal(model.predict(table_of()).probs, models[1].predict(table_of()).probs)
        assert model.report == models[1].report


def test_refit_is_true_or_false():
    with pytest.raises(ConfigError, match="refit must be True or False"):
        TableModel(refit="yes")
