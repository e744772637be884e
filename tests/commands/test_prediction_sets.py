"""`selfcal predict --sets`, and `selfcal evaluate` on what it wrote."""

import json

import numpy as np
import polars as pl
import pytest

from selfcal.conformal import evaluate_sets
from selfcal.errors import ConfigError
from selfcal.tabular.io import read_table
from selfcal.workflows import table_storage
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import as_json, run, succeed


@pytest.fixture
def written(shelf, tmp_path):
    out = tmp_path / "p.csv"
    result = as_json("predict", shelf / "people-model", shelf / "people.csv", "--out", out, "--sets", "0.8")
    return result, out


def test_sets_are_those_of_the_stored_rows(shelf, written):
    result, out = written
    model = TableModel.load(shelf / "people-model")
    probs = model.predict(read_table(shelf / "people.csv")).probs
    sets = model.prediction_sets(0.8).predict_set(probs)
    listed = [json.loads(text) for text in pl.read_csv(out)["prediction_set"]]
    assert listed == [[model.classes[code] for code in np.flatnonzero(row)] for row in sets]
    assert result["mean_set_size"] == pytest.approx(sets.sum(axis=1).mean())
    assert "at least 80%" in result["set_guarantee"]


def test_parts_have_the_same_sets(shelf, written, tmp_path, monkeypatch):
    monkeypatch.setattr("selfcal.commands.predict.ROWS", 50)
    args = ["--out", tmp_path / "parts.csv", "--sets", "0.8"]
    said = succeed("predict", shelf / "people-model", shelf / "people.csv", *args)
    assert "classes on average" in said.stdout
    assert "The set of a new row contains" in said.stderr
    parts, whole = (pl.read_csv(path)["prediction_set"] for path in (tmp_path / "parts.csv", written[1]))
    assert (parts == whole).mean() > 0.99  # sums over blocks of another size may differ in the last bit


def test_evaluate_measures_coverage_and_size(written):
    _, out = written
    result = as_json("evaluate", out, "--target", "kind")["prediction_sets"]
    table = pl.read_csv(out)
    names = ["k0", "k1", "k2"]
    listed = [json.loads(text) for text in table["prediction_set"]]
    sets = np.array([[name in members for name in names] for members in listed])
    expected = evaluate_sets(table["kind"].to_list(), sets, classes=names)
    assert result["coverage"]["value"] == expected.coverage.value
    assert result["size"]["low"] == pytest.approx(expected.size.low)
    assert (
        "Prediction sets, with intervals of 95%: 160 sets"
        in succeed("evaluate", out, "--target", "kind").stdout
    )


def test_another_column_of_that_name_is_left_alone(written):
    _, out = written
    pl.read_csv(out).with_columns(prediction_set=pl.lit("train")).write_csv(out)
    assert "prediction_sets" not in as_json("evaluate", out, "--target", "kind")


def test_too_few_rows_are_said_once(shelf, tmp_path):
    args = ["--out", tmp_path / "p.csv", "--sets", "0.999"]
    said = succeed("predict", shelf / "people-model", shelf / "people.csv", *args)
    assert said.stderr.count("only sets of all classes") == 1
    assert "sets of 3.00 classes" in said.stdout


def test_mistakes_are_explained(shelf, tmp_path):
    result = run(
        "predict", shelf / "people-model", shelf / "people.csv", "--out", tmp_path / "p.csv", "--sets", "95"
    )
    assert result.exit_code == 2
    assert "--sets must be between 0 and 1" in result.stderr


def test_refitted_and_older_models_refuse(shelf, tmp_path, monkeypatch):
    model = TableModel.load(shelf / "people-model")
    dump = table_storage.skops_archive.dump
    monkeypatch.setattr(
        table_storage.skops_archive,
        "dump",
        lambda stored: dump({name: v for name, v in stored.items() if name not in ("codes", "probs")}),
    )
    old = TableModel.load(model.save(tmp_path / "old"))
    assert len(old.held_out_confidence) == len(model.held_out_confidence)
    with pytest.raises(ConfigError, match="earlier version"):
        old.prediction_sets(0.9)
    model.held_out_confidence = model.held_out_confidence[:0]
    with pytest.raises(ConfigError, match="without --refit"):
        model.prediction_sets(0.9)


def test_several_files_have_the_sets_of_one(shelf, written, tmp_path):
    whole = read_table(shelf / "people.csv")
    (tmp_path / "in").mkdir()
    whole.head(60).write_csv(tmp_path / "in" / "a.csv")
    whole.tail(-60).write_csv(tmp_path / "in" / "b.csv")
    result = as_json(
        "predict", shelf / "people-model", tmp_path / "in", "--out", tmp_path / "out", "--sets", "0.8"
    )
    assert "at least 80%" in result["set_guarantee"]
    parts = pl.concat([pl.read_csv(tmp_path / "out" / name) for name in ("a.csv", "b.csv")])
    assert (parts["prediction_set"] == pl.read_csv(written[1])["prediction_set"]).mean() > 0.99
