"""`evaluate` and `predict` for several files, a folder and a pattern."""

import os

import polars as pl
import pytest
from joblib import parallel_config

from selfcal.commands import _predict_parts
from tests.commands.conftest import as_json, people, run, succeed


@pytest.fixture
def inputs(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number, part in enumerate(people(90, seed=1).iter_slices(30)):
        part.write_csv(folder / f"{number}.csv")
    return folder


@pytest.fixture
def predicted(shelf, inputs, tmp_path):
    succeed("predict", shelf / "people-model", inputs, "--out", tmp_path / "out")
    return tmp_path / "out"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_each_file_has_its_predictions(shelf, inputs, predicted, tmp_path):
    assert sorted(os.listdir(predicted)) == [_predict_parts.SETTINGS, "0.csv", "1.csv", "2.csv"]
    succeed("predict", shelf / "people-model", inputs / "1.csv", "--out", tmp_path / "alone.csv")
    assert (predicted / "1.csv").read_bytes() == (tmp_path / "alone.csv").read_bytes()
    judged = as_json("evaluate", str(predicted / "*.csv"), "--target", "kind")
    pl.concat([pl.read_csv(predicted / f"{i}.csv") for i in range(3)]).write_csv(tmp_path / "all.csv")
    whole = as_json("evaluate", tmp_path / "all.csv", "--target", "kind")
    assert judged["rows"] == whole["rows"] == 90
    assert judged["files"] == {"found": 3, "reused": 0, "skipped": []}
    assert judged["methods"][0].keys() == whole["methods"][0].keys()
    for name in ("accuracy", "ece", "log_loss", "brier_score"):
        ours, theirs = (one["methods"][0][name] for one in (judged, whole))
        assert ours == pytest.approx(theirs, abs=2e-5)


def test_nothing_is_overwritten_and_resuming_does_the_rest(shelf, inputs, predicted, monkeypatch):
    before = contents(predicted)
    again = ["predict", shelf / "people-model", inputs, "--out", predicted]
    refused = run(*again)
    assert (refused.exit_code, contents(predicted)) == (2, before)
    assert "--resume to keep finished files" in refused.stderr
    (predicted / "1.csv").unlink()
    done = []
    real = _predict_parts.predict_part
    monkeypatch.setattr(
        _predict_parts, "predict_part", lambda path, *rest: (done.append(path), real(path, *rest))[1]
    )
    result = as_json(*again, "--resume")
    assert (result["files"], result["rows"]) == ({"found": 3, "finished_before": 2}, 30)
    assert done == [str(inputs / "1.csv")]
    assert contents(predicted) == before
    assert succeed(*again, "--force").stdout.startswith("3 files, 90 rows")
    assert run(*again, "--force", "--resume").exit_code == 2


def test_resuming_with_other_options_or_newer_inputs_is_refused(shelf, inputs, predicted):
    again = ["predict", shelf / "people-model", inputs, "--out", predicted, "--resume"]
    refused = run(*again, "--keep", "size")
    assert refused.exit_code == 2
    assert "same model and options" in refused.stderr
    os.utime(inputs / "2.csv", ns=(2**62, 2**62))
    refused = run(*again)
    assert refused.exit_code == 2
    assert "2.csv already exists and is older than its input" in refused.stderr


def test_workers_write_the_same_files(shelf, inputs, predicted, tmp_path):
    with parallel_config("threading"):
        succeed("predict", shelf / "people-model", inputs, "--out", tmp_path / "two", "--jobs", "2")
    assert contents(tmp_path / "two") == contents(predicted)


@pytest.mark.parametrize(
    ("out", "more", "message"),
    [
        ("in", ["--force"], "must not name the folder of the input"),
        ("in/0.csv", [], "must name a folder"),
        ("new", ["other/0.csv"], "would both become"),
        ("-", [], "must name a folder for several files"),
    ],
)
def test_outputs_that_cannot_be(shelf, inputs, tmp_path, out, *, more, message):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "0.csv").write_bytes((inputs / "0.csv").read_bytes())
    before = contents(inputs)
    more = [tmp_path / word if "/" in word else word for word in more]
    refused = run(
        "predict", shelf / "people-model", inputs, *more, "--out", out if out == "-" else tmp_path / out
    )
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert contents(inputs) == before


def test_a_bad_input_is_named_and_leaves_no_output(shelf, inputs, tmp_path):
    (inputs / "1.csv").write_text("size,colour,weight\nx,red,1\n")
    failed = run("predict", shelf / "people-model", inputs, "--out", tmp_path / "out")
    assert failed.exit_code == 3
    assert "1.csv" in failed.stderr
    assert sorted(os.listdir(tmp_path / "out")) == [_predict_parts.SETTINGS, "0.csv"]


def test_one_file_has_nothing_to_resume(shelf, tmp_path):
    refused = run(
        "predict", shelf / "people-model", shelf / "people.csv", "--out", tmp_path / "p.csv", "--resume"
    )
    assert refused.exit_code == 2
    assert "--resume needs several files" in refused.stderr


def test_corrupt_files_are_named_or_skipped_and_said(predicted, tmp_path):
    (predicted / "1.csv").write_text("")
    words = ["evaluate", predicted, "--target", "kind"]
    failed = run(*words)
    assert failed.exit_code == 3
    assert "1.csv" in failed.stderr
    skipping = succeed(*words, "--skip-corrupt", "--report", tmp_path / "r.html")
    assert "warning: left out: " in skipping.stderr
    assert "60 rows, 3 classes" in skipping.stdout
    assert "files left out" in (tmp_path / "r.html").read_text()
    assert len(as_json(*words, "--skip-corrupt")["files"]["skipped"]) == 1


def test_sums_are_kept(predicted, tmp_path):
    words = ["evaluate", predicted, "--target", "kind", "--sums", tmp_path / "sums"]
    first = as_json(*words)
    again = succeed(*words)
    assert "3 of 3 files not read again" in again.stderr
    second = as_json(*words)
    assert second["files"].pop("reused") == 3
    assert first["files"].pop("reused") == 0
    assert first == second
    refused = run("evaluate", predicted, "--target", "kind", "--sums", predicted)
    assert refused.exit_code == 2
