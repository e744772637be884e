import io
import json

import numpy as np
import polars as pl
import pytest

from selfcal._support import progress
from selfcal.tabular.io import read_table
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import as_json, people, run, succeed

COLUMNS = ["kind", "predicted", "confidence", "prob_k0", "prob_k1", "prob_k2"]


def test_predictions_are_those_of_the_model_in_the_order_of_the_rows(shelf):
    written = pl.read_csv(shelf / "predictions.csv")
    assert written.columns == [*COLUMNS, "novel"]
    answers = TableModel.load(shelf / "people-model").predict(read_table(shelf / "people.csv"))
    np.testing.assert_array_equal(written.select(COLUMNS[3:]).to_numpy(), answers.probs)
    assert written["predicted"].to_list() == [f"k{code}" for code in answers.chosen]
    assert written["kind"].to_list() == people()["kind"].to_list()


@pytest.mark.parametrize("name", ["p.tsv", "p.csv.gz", "p.parquet"])
def test_every_format_says_the_same(shelf, tmp_path, name):
    succeed("predict", shelf / "people-model", shelf / "people.csv", "--out", tmp_path / name)
    read = read_table(tmp_path / name).with_columns(
        pl.col(COLUMNS[2:]).cast(pl.Float64), pl.col("novel").cast(pl.String) == "true"
    )
    assert read.equals(pl.read_csv(shelf / "predictions.csv"))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_standard_input_to_standard_output(shelf):
    data = (shelf / "people.csv").read_bytes()
    result = run("predict", shelf / "people-model", "-", "--out", "-", input=data)
    assert result.stdout == (shelf / "predictions.csv").read_text()


@pytest.mark.parametrize("most", ["ROWS", "NUMBERS"])
def test_parts_of_a_table_make_the_same_whole(most, shelf, tmp_path, monkeypatch):
    monkeypatch.setattr(f"selfcal.commands.predict.{most}", 50)
    succeed("predict", shelf / "people-model", shelf / "people.csv", "--out", tmp_path / "p.csv")
    # sums over blocks of another size may differ in the last bit
    parts, at_once = (pl.read_csv(path) for path in (tmp_path / "p.csv", shelf / "predictions.csv"))
    assert parts.drop(COLUMNS[2:]).equals(at_once.drop(COLUMNS[2:]))
    np.testing.assert_allclose(parts.select(COLUMNS[2:]), at_once.select(COLUMNS[2:]), rtol=1e-6)


def test_abstaining_keeps_the_promise_that_is_printed(shelf, tmp_path):
    out = tmp_path / "p.csv"
    result = as_json(
        "predict", shelf / "people-model", shelf / "people.csv", "--out", out, "--max-risk", "0.5"
    )
    read = pl.read_csv(out)
    assert result["abstained"] == read["abstain"].sum()
    assert "at most 50% of the answers" in result["guarantee"]
    sure, unsure = (read.filter(pl.col("abstain") == withheld)["confidence"] for withheld in (False, True))
    assert not len(unsure) or sure.min() > unsure.max()


def test_a_promise_that_cannot_be_kept_answers_nothing(shelf, tmp_path):
    args = ["--out", tmp_path / "p.csv", "--max-risk", "0.001"]
    result = succeed("predict", shelf / "people-model", shelf / "people.csv", *args)
    assert "No threshold guarantees" in result.stderr
    assert "Pass a higher --max-risk, or fit the model on more rows." in result.stderr
    assert "abstained on 160 of them" in result.stdout


def test_columns_are_kept_when_asked_for(shelf):
    args = ["--out", "-", "--keep", "size,kind"]
    result = succeed("predict", shelf / "people-model", shelf / "people.csv", *args)
    assert result.stdout.splitlines()[0].startswith("size,kind,predicted,")


def test_formulas_are_defused_only_when_asked(shelf, tmp_path):
    table = people().with_columns(note=pl.lit("=HYPERLINK(0)"))
    table.write_csv(tmp_path / "d.csv")
    args = ["predict", shelf / "people-model", tmp_path / "d.csv", "--out", "-", "--keep", "note"]
    raw, safe = (succeed(*args, *more).stdout for more in ([], ["--excel-safe"]))
    assert set(pl.read_csv(io.StringIO(raw))["note"]) == {"=HYPERLINK(0)"}
    assert set(pl.read_csv(io.StringIO(safe))["note"]) == {"'=HYPERLINK(0)"}


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--out", "p.xlsx"], 2, ".csv, .tsv, .csv.gz, .tsv.gz or .parquet"),
        (["--out", "-", "--json"], 2, "cannot both write to standard output"),
        (["--out", "-", "--keep", "szie"], 3, "Did you mean 'size'?"),
        (
            ["--out", "-", "--max-risk", "7"],
            2,
            "--max-risk must be between 0 and 1, for example 0.05; got 7.",
        ),
    ],
)
def test_mistakes(shelf, args, code, message):
    result = run("predict", shelf / "people-model", shelf / "people.csv", *args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_a_name_that_is_taken(shelf, tmp_path):
    people().rename({"weight": "w"}).with_columns(weight=0.0, confidence=0.5).write_csv(tmp_path / "d.csv")
    args = [shelf / "people-model", tmp_path / "d.csv", "--out", tmp_path / "p.csv"]
    result = run("predict", *args, "--keep", "confidence")
    assert (result.exit_code, (tmp_path / "p.csv").exists()) == (2, False)
    assert "Rename it in the data" in result.stderr


def test_json_counts_what_was_not_known(shelf, tmp_path):
    people(20).with_columns(colour=pl.lit("pink"), extra=1).write_csv(tmp_path / "d.csv")
    said = as_json("predict", shelf / "people-model", tmp_path / "d.csv", "--out", tmp_path / "p.csv")
    assert said["rows"] == 20
    assert json.dumps(said["notes"]).count("'colour' has 20 cells") == 1
    assert "ignored: 'extra'" in said["notes"][1]


def test_progress_goes_to_standard_error_and_results_stay_clean(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    data, model, out = shelf / "people.csv", shelf / "people-model", tmp_path / "out.csv"
    said = succeed("predict", model, data, "--out", out, "--json", "--progress")
    assert "Predicting 100%: 160 rows; " in said.stderr
    assert json.loads(said.stdout)["rows"] == 160
    piped = succeed("predict", model, "-", "--out", "-", "--progress", input=data.read_bytes())
    assert "Predicting: 160 rows; " in piped.stderr
    assert piped.stdout == out.read_text()
    judged = succeed("evaluate", out, "--target", "kind", "--json", "--progress")
    assert "Evaluating 100%: 160 rows; " in judged.stderr
    assert json.loads(judged.stdout)["rows"] == 160


def test_progress_of_a_parquet_file_is_counted_in_rows(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    people(100).write_parquet(tmp_path / "people.parquet")
    monkeypatch.setattr("selfcal.commands.predict.ROWS", 25)
    words = [shelf / "people-model", tmp_path / "people.parquet", "--out", tmp_path / "out.parquet"]
    said = succeed("predict", *words, "--progress")
    assert "Predicting 100%: 100 rows; " in said.stderr
