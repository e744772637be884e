"""`selfcal predict` on rows unlike the training data."""

import numpy as np
import polars as pl
import pytest

from selfcal.tabular.io import read_table
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import QUICK, as_json, people, run, succeed


@pytest.fixture
def mixed(tmp_path):
    """A table of which every tenth row is of giants."""
    giant = pl.int_range(200) % 10 == 0
    table = people(200, seed=5).with_columns(size=pl.when(giant).then(pl.col("size") + 50).otherwise("size"))
    table.write_csv(tmp_path / "mixed.csv")
    return tmp_path / "mixed.csv"


def test_marks_are_those_of_the_model_and_counted(shelf, mixed, tmp_path):
    out = tmp_path / "p.csv"
    said = as_json("predict", shelf / "people-model", mixed, "--out", out)
    marked = pl.read_csv(out)["novel"].to_numpy()
    model = TableModel.load(shelf / "people-model")
    np.testing.assert_array_equal(marked, model.predict(read_table(mixed)).novel)
    assert marked[::10].all()
    assert (said["novel"], said["novel_expected"]) == (marked.sum(), 10)
    assert (
        said["novel_guarantee"] == "A row like the 32 held-out rows is flagged with probability at most 5%."
    )
    assert "abstained" not in said
    assert said["novel_p_value"] > 1e-3  # 32 held-out rows leave the rate open
    assert not any("than chance" in text for text in said["notes"])
    people(200, seed=5).with_columns(pl.col("size") + 50).write_csv(mixed)
    said = as_json("predict", shelf / "people-model", mixed, "--out", tmp_path / "q.csv")
    assert said["novel_p_value"] < 1e-3
    assert "More rows than chance would make are unlike the training data" in said["notes"][-1]
    words = succeed("predict", shelf / "people-model", mixed, "--out", out, "--force").stdout
    assert "200 rows, 200 unlike the training data (up to 10.0 expected): " in words


def test_parts_of_a_table_have_the_same_marks(shelf, mixed, tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    succeed("predict", shelf / "people-model", mixed, "--out", whole)
    monkeypatch.setattr("selfcal.commands.predict.ROWS", 30)
    said = as_json("predict", shelf / "people-model", mixed, "--out", parts)
    assert pl.read_csv(parts)["novel"].equals(pl.read_csv(whole)["novel"])
    assert said["novel_expected"] == 10


def test_abstaining_joins_both_reasons(shelf, mixed, tmp_path):
    folder = shelf / "people-model"
    strange = as_json("predict", folder, mixed, "--out", tmp_path / "a.csv", "--novel", "abstain")
    read = pl.read_csv(tmp_path / "a.csv")
    assert read["abstain"].equals(read["novel"].alias("abstain"))
    assert strange["abstained"] == strange["novel"]
    risk = ["--max-risk", "0.5"]
    both = as_json("predict", folder, mixed, "--out", tmp_path / "b.csv", "--novel", "abstain", *risk)
    unsure = as_json("predict", folder, mixed, "--out", tmp_path / "c.csv", *risk)
    read, alone = (pl.read_csv(tmp_path / name) for name in ("b.csv", "c.csv"))
    assert read["abstain"].equals((alone["abstain"] | read["novel"]).alias("abstain"))
    assert both["abstained"] == read["abstain"].sum() >= unsure["abstained"]
    assert "withholds as well" in both["guarantee"]
    assert "withholds" not in unsure["guarantee"]


def test_several_files_have_the_marks_of_one(shelf, mixed, tmp_path):
    whole = read_table(mixed)
    (tmp_path / "in").mkdir()
    whole.head(60).write_csv(tmp_path / "in" / "a.csv")
    whole.tail(-60).write_csv(tmp_path / "in" / "b.csv")
    args = ["--out", tmp_path / "out", "--novel", "abstain"]
    said = as_json("predict", shelf / "people-model", tmp_path / "in", *args)
    one = as_json("predict", shelf / "people-model", mixed, "--out", tmp_path / "one.csv")
    parts = pl.concat([pl.read_csv(tmp_path / "out" / name) for name in ("a.csv", "b.csv")])
    assert parts["novel"].equals(pl.read_csv(tmp_path / "one.csv")["novel"])
    assert (said["novel"], said["novel_expected"]) == (one["novel"], 10)
    assert said["abstained"] == said["novel"]
    resumed = run("predict", shelf / "people-model", tmp_path / "in", *args[:2], "--resume")
    assert "must continue with the same model and options" in resumed.stderr


def test_off_writes_no_column_and_evaluation_ignores_it(shelf, mixed, tmp_path):
    said = as_json("predict", shelf / "people-model", mixed, "--out", tmp_path / "p.csv", "--novel", "off")
    assert "novel" not in {*said, *pl.read_csv(tmp_path / "p.csv").columns}
    succeed("predict", shelf / "people-model", mixed, "--out", tmp_path / "q.csv")
    judged = [as_json("evaluate", tmp_path / name, "--target", "kind") for name in ("p.csv", "q.csv")]
    assert judged[0]["methods"] == judged[1]["methods"]


def test_fit_sets_the_rate_and_can_leave_it_out(shelf, tmp_path):
    args = ["fit", shelf / "people.csv", "--target", "kind", *QUICK, "--out", tmp_path / "m"]
    said = succeed(*args, "--novelty", "0.25")
    assert "Rows unlike the training data: " in said.stdout
    assert "at a promised rate of at most 25%." in said.stdout
    assert TableModel.load(tmp_path / "m").detector.false_alarms == 0.25
    plain = succeed(*args, "--force", "--novelty", "0")
    assert "unlike" not in plain.stdout
    refused = run("predict", tmp_path / "m", shelf / "people.csv", "--out", "-", "--novel", "mark")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--novelty 0" in refused.stderr
    assert "novel" not in succeed("predict", tmp_path / "m", shelf / "people.csv", "--out", "-").stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["fit", "people.csv", "--target", "kind", "--novelty", "5"],
            "--novelty must be a number in [0, 0.5]",
        ),
        (
            ["predict", "people-model", "people.csv", "--out", "-", "--novel", "abstian"],
            "Did you mean 'abstain'",
        ),
    ],
)
def test_mistakes_are_explained(shelf, monkeypatch, args, words):
    monkeypatch.chdir(shelf)
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
