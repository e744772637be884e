"""inspect, doctor, calibrate, report, compare and tune."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import polars as pl
import pytest
import typer

from selfcal.commands import app
from selfcal.errors import ConfigError, WorkerError
from selfcal.tabular.split import divide
from selfcal.training import engine
from selfcal.workflows import comparison
from selfcal.workflows.comparison import Candidate, Task, run_trials, standings
from selfcal.workflows.recalibration import Recalibration
from selfcal.workflows.table_model import TableModel
from tests.commands.conftest import as_json, inline, people, run, succeed


def test_inspect_shows_what_a_model_expects_and_how_it_did(shelf):
    shown = succeed("inspect", shelf / "people-model").stdout
    for line in (
        "classes        3: k0, k1, k2",
        "colour  category",
        "Verdict: ",
        "method         standard",
        "hidden layers [64, 64]",
    ):
        assert line in shown
    numbers = as_json("inspect", shelf / "people-model")
    assert numbers["description"]["format_version"] == 2


@pytest.mark.parametrize(
    ("options", "network"),
    [
        ([], "ensemble of 5 models, corrected for wrong labels"),
        (["--one-network"], r"hidden layers \[.+\], corrected for wrong labels"),
    ],
)
def test_inspect_shows_a_model_of_noisy_labels(options, network, shelf, tmp_path):
    words = ["--method", "crossfit", "--noisy-labels", "--max-epochs", "2", *options]
    succeed("fit", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "m", *words)
    assert re.search(network, succeed("inspect", tmp_path / "m").stdout)


@pytest.mark.parametrize("command", [["inspect"], ["predict"]])
def test_something_else_than_a_model_exits_5(command, shelf, tmp_path):
    (tmp_path / "model.pt").write_bytes(b"\x80\x04K\x01.")
    rest = [shelf / "people.csv", "--out", tmp_path / "p.csv"] if command == ["predict"] else []
    result = run(*command, tmp_path / "model.pt", *rest)
    assert result.exit_code == 5
    assert "a pickle" in result.stderr


def test_doctor_finds_everything_here():
    assert "No problems found." in succeed("doctor").stdout
    assert as_json("doctor")["problems"] == []


def overconfident(tmp_path, n=400):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, n)
    z = 4 * np.log(p / (1 - p))
    said = 1 / (1 + np.exp(-z))
    table = pl.DataFrame({"y": np.where(rng.random(n) < p, "b", "a"), "prob_a": 1 - said, "prob_b": said})
    table.write_csv(tmp_path / "theirs.csv")
    return tmp_path / "theirs.csv"


def test_calibrate_recalibrates_an_overconfident_model(tmp_path):
    theirs, out = overconfident(tmp_path), tmp_path / "recalibrated.csv"
    said = as_json("calibrate", theirs, "--target", "y", "--out", out, "--apply", theirs)
    assert said["after"]["log_loss"] < said["before"]["log_loss"] - 0.1
    assert said["log_loss_difference"]["high"] < 0
    assert said["after"]["accuracy"] == said["before"]["accuracy"]
    before, after = (pl.read_csv(path) for path in (theirs, out))
    assert after.columns == before.columns
    logit = {name: np.log(t["prob_b"] / t["prob_a"]) for name, t in (("before", before), ("after", after))}
    np.testing.assert_allclose(logit["before"] / logit["after"], 4, rtol=0.3)


def test_calibrate_leaves_out_what_was_decided_by_the_old_confidences(tmp_path):
    theirs, out = overconfident(tmp_path), tmp_path / "recalibrated.csv"
    table = pl.read_csv(theirs)
    table.with_columns(abstain=table["prob_a"] > 0.2).write_csv(theirs)
    said = succeed("calibrate", theirs, "--target", "y", "--out", out)
    assert "'abstain' was computed from the old confidences" in said.stderr
    assert pl.read_csv(out).columns == ["y", "prob_a", "prob_b"]


def test_calibrate_a_class_and_a_confidence():
    table = pl.DataFrame(
        {"y": ["a", "a", "a", "b"] * 25, "predicted": ["a"] * 100, "confidence": [0.99] * 100}
    )
    from selfcal.workflows.layout_search import find_layout

    recalibrated = Recalibration(find_layout(table, "y")).fit(table).apply(table)
    np.testing.assert_allclose(recalibrated["confidence"], 0.75, atol=1e-6)


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["--calibrator", "temprature"], 2, "Did you mean 'temperature'?"),
        (["--apply", "nowhere.csv"], 3, "nowhere.csv"),
    ],
)
def test_calibrate_mistakes(tmp_path, args, code, message):
    result = run("calibrate", overconfident(tmp_path), "--target", "y", "--out", tmp_path / "o.csv", *args)
    assert result.exit_code == code
    assert message in result.stderr
    assert not (tmp_path / "o.csv").exists()


def calibrated_already(tmp_path, n=60):
    """The true probabilities; on these few rows a calibrator fits the noise, at the cost of 0.014 in log loss."""
    rng = np.random.default_rng(3)
    p = rng.uniform(0.05, 0.95, n)
    table = pl.DataFrame({"y": np.where(rng.random(n) < p, "b", "a"), "prob_a": 1 - p, "prob_b": p})
    table.write_csv(tmp_path / "theirs.csv")
    return tmp_path / "theirs.csv"


def test_calibrate_warns_before_it_makes_predictions_worse(tmp_path):
    args = ["calibrate", calibrated_already(tmp_path), "--target", "y", "--out"]
    said = succeed(*args, tmp_path / "o.csv")
    assert re.search(
        r"^warning: The calibrated predictions are not better: in cross-validation their log loss is \d\.\d{4}, and "
        r"\d\.\d{4} as they are\. The output may be worse",
        said.stderr,
        re.M,
    )
    assert said.output.index("warning: ") < said.output.index("before  accuracy")
    numbers = as_json(*args, tmp_path / "again.csv")
    assert numbers["better"] is False
    assert numbers["log_loss_difference"]["value"] > 0
    gains = succeed("calibrate", overconfident(tmp_path), "--target", "y", "--out", tmp_path / "better.csv")
    assert "warning" not in gains.output


@pytest.mark.parametrize("command", ["evaluate", "calibrate", "report"])
def test_the_probability_of_one_class_is_understood_by_each_command(tmp_path, command):
    rng = np.random.default_rng(0)
    p = rng.uniform(0.05, 0.95, 200)
    table = pl.DataFrame({"y_true": (rng.random(200) < p) * 1, "y_pred": (p > 0.5) * 1, "y_prob": p})
    table.write_csv(tmp_path / "theirs.csv")
    table.drop("y_pred").write_csv(tmp_path / "alone.csv")
    outs = {
        "evaluate": [],
        "calibrate": ["--out", tmp_path / "o.csv"],
        "report": ["--out", tmp_path / "r.html"],
    }
    args = ["--target", "y_true", *outs[command]]
    said = succeed(command, tmp_path / "theirs.csv", *args)
    assert "Using 'y_prob' as the probability of class '1'" in said.stderr
    asked = succeed(
        command, tmp_path / "alone.csv", *args, "--positive", "1", *(["--force"] * bool(outs[command]))
    )
    assert asked.stdout.replace("alone", "theirs") == said.stdout
    refused = run(command, tmp_path / "alone.csv", *args, "--force")
    assert refused.exit_code == 3
    assert "use --positive 1" in refused.stderr


def test_report_shows_several_models_on_one_page(shelf, tmp_path):
    other = tmp_path / "other.csv"
    pl.read_csv(shelf / "predictions.csv").write_csv(other)
    args = ["report", shelf / "predictions.csv", other, "--target", "kind", "--out", tmp_path / "r.html"]
    assert "other: " in succeed(*args).stdout
    numbers = json.loads((tmp_path / "r.json").read_text())
    assert [method["name"] for method in numbers["methods"]] == ["predictions", "other"]


def test_compare_is_paired_and_does_not_run_twice(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("selfcal._support.parallel.run_units", inline)
    args = ["compare", shelf / "people.csv", "--target", "kind", "--methods", "standard,temperature"]
    args += ["--seeds", "2", "--max-epochs", "4", "--out", tmp_path]
    found = as_json(*args)["standings"]
    assert {one["name"] for one in found} == {"standard", "temperature"}
    behind = found[1]["behind"]
    assert behind["low"] < behind["value"] < behind["high"]
    assert found[0]["behind"] == {"value": 0.0, "low": None, "high": None}
    monkeypatch.setattr(Task, "run", lambda *_: pytest.fail("a finished trial was run again"))
    shown = succeed(*args).stdout
    assert "vs. best" in shown
    assert run(*args, "--drop-unlabelled").exit_code == 2  # other settings, other results


def test_warnings_of_trials_are_notes_with_their_seeds(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("selfcal._support.parallel.run_units", inline)
    args = ["compare", shelf / "people.csv", "--target", "kind", "--methods", "bo4sc", "--seeds", "2"]
    args += ["--max-epochs", "1", "--out", tmp_path]
    found = as_json(*args)["standings"][0]
    ((text, seeds),) = found["notes"].items()
    assert text.startswith("No outer step will be taken")
    assert seeds == [0, 1]
    assert f"note: bo4sc, seeds 0, 1: {text}\n" in succeed(*args).stderr


def test_compare_passes_the_time_budget_on(shelf, tmp_path, monkeypatch):
    def trials(task, *_, **options):
        raise ConfigError(f"{task.settings} {options['progress']}")

    monkeypatch.setattr("selfcal.workflows.comparison.run_trials", trials)
    args = [
        "compare",
        shelf / "people.csv",
        "--target",
        "kind",
        "--out",
        tmp_path / "c",
        "--time-budget",
        "5",
    ]
    assert "{'time_budget': 5.0} None" in run(*args).stderr
    assert "{'time_budget': 5.0} True" in run(*args, "--progress").stderr


def test_tune_without_options_tries_three_methods(shelf, tmp_path, monkeypatch):
    tried = []

    def trials(task, candidates, **_):
        tried.extend((one.name, one.method) for one in candidates)
        raise ConfigError("enough")

    monkeypatch.setattr("selfcal.workflows.comparison.run_trials", trials)
    assert run("tune", shelf / "people.csv", "--target", "kind", "--out", tmp_path / "t").exit_code == 2
    assert tried == [(f"method={name}", name) for name in ("auto", "crossfit", "temperature")]
    tried.clear()
    args = ["--method", "focal", "--out", tmp_path / "u"]
    assert run("tune", shelf / "people.csv", "--target", "kind", *args).exit_code == 2
    assert {method for _, method in tried} == {"focal"}
    assert len(tried) == 6


def test_compare_says_what_is_wrong_with_the_table_at_once(shelf, tmp_path):
    result = run("compare", shelf / "people.csv", "--target", "knd", "--out", tmp_path / "c")
    assert result.exit_code == 3
    assert not (tmp_path / "c").exists()
    assert run("compare", "-", "--target", "kind").exit_code == 2


def test_tune_chooses_by_other_rows_than_it_is_judged_by(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("selfcal._support.parallel.run_units", inline)
    args = ["tune", shelf / "people.csv", "--target", "kind", "--method", "standard", "--max-epochs", "4"]
    args += ["--grid", "learning_rate=0.00001,0.02", "--seeds", "1", "--out", tmp_path]
    said = as_json(*args)
    assert said["best"] == "learning_rate=0.02"
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    # a fifth of the 128 rows that the last word is not about
    assert [row["rows"] for row in rows] == [25, 25]
    assert said["report_numbers"]["rows"] == 32
    assert (tmp_path / "model" / "report.html").exists()
    assert run(*args, "--grid", "depth=3").exit_code == 2


def test_tune_goes_on_with_its_last_training(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("selfcal._support.parallel.run_units", inline)
    args = ["tune", shelf / "people.csv", "--target", "kind", "--method", "standard", "--max-epochs", "30"]
    args += ["--grid", "learning_rate=0.01", "--seeds", "1"]
    whole = as_json(*args, "--out", tmp_path / "whole")
    looks = []

    def stop(advance):
        looks.append(1)
        if len(looks) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(comparison.Task, "run", lambda *_: pytest.fail("a finished trial ran again"))
        shutil.copytree(tmp_path / "whole", tmp_path / "cut")
        shutil.rmtree(tmp_path / "cut" / "model")
        patched.setattr(engine, "progress_bar", lambda *_, **__: nullcontext(lambda *_: stop(0)))
        stopped = run(*args, "--out", tmp_path / "cut")
    assert stopped.exit_code == 143
    assert "Run the same command again to continue" in stopped.stderr
    assert not (tmp_path / "cut" / "model").exists()
    again = as_json(*args, "--out", tmp_path / "cut")
    assert again["report_numbers"] == whole["report_numbers"]
    assert {path.name for path in (tmp_path / "cut").iterdir()} == {"model", "results.json"}


def test_a_trial_that_fails_is_a_row_and_the_others_finish(shelf, tmp_path, monkeypatch):
    monkeypatch.setattr("selfcal._support.parallel.run_units", inline)
    task = Task(str(shelf / "people.csv"), "kind", settings={"max_epochs": 2})
    bad = Candidate("bad", "standard", {"learning_rate": 1e30})
    rows = run_trials(
        task,
        [Candidate("good", "standard"), bad],
        seeds=1,
        results=tmp_path / "r.json",
        jobs=1,
        title="",
    )
    good, failed = standings(rows)
    assert (good.name, good.failures) == ("good", {})
    assert failed.name == "bad"
    assert "TrainingError" in failed.failures[0]


def test_a_trial_that_kills_its_process_is_a_row(shelf, tmp_path, monkeypatch):
    calls = []

    def broken(work, units, results, **options):
        calls.append(units)
        if ("killer", 0) in units and ("killer", 0) not in {(r["name"], r["seed"]) for r in results.rows()}:
            raise WorkerError("died")
        return inline(work, units, results, **options)

    monkeypatch.setattr("selfcal._support.parallel.run_units", broken)
    task = Task(str(shelf / "people.csv"), "kind", settings={"max_epochs": 1})
    candidates = [Candidate("killer", "standard"), Candidate("good", "standard")]
    rows = run_trials(task, candidates, seeds=1, results=tmp_path / "r.json", jobs=2, title="")
    assert {row["name"]: row["failed"] is None for row in rows} == {"killer": False, "good": True}


def test_names_cannot_reach_the_terminal(tmp_path):
    text = "y,prob_a,\x1b[31mprob_b[/red]\na,0.9,0.1\n"
    result = run("evaluate", "-", "--target", "\x1b]0;owned\x07", input=text.encode())
    assert "\x1b" not in result.output
    assert "\x07" not in result.output


@pytest.mark.parametrize("name", [*typer.main.get_command(app.app).commands])
def test_every_command_has_examples_in_its_help_and_json(name):
    command = typer.main.get_command(app.app).commands[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options or name in {"demo", "reproduce"}  # they write files with every number
    assert f"selfcal {name}" in command.help or name == "reproduce"


def test_help_loads_no_heavy_library():
    heavy = "import sys, selfcal.commands.app; print({'torch', 'numpy', 'polars', 'sklearn'} & sys.modules.keys())"
    loaded = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "set()"


def test_groups_are_kept_together_by_compare_and_tune(tmp_path, monkeypatch):
    seen = []

    def spy(*args, group=None, **options):
        seen.append(group)
        return divide(*args, group=group, **options)

    monkeypatch.setattr("selfcal.workflows.table_model.divide", spy)
    monkeypatch.setattr("selfcal._support.parallel.run_units", inline)
    people().with_columns(who=pl.Series([i // 4 for i in range(160)])).write_csv(tmp_path / "d.csv")
    words = [tmp_path / "d.csv", "--target", "kind", "--group", "who", "--seeds", "1", "--max-epochs", "2"]
    succeed("compare", *words, "--methods", "standard", "--out", tmp_path / "c")
    succeed("tune", *words, "--method", "standard", "--grid", "hidden=4", "--out", tmp_path / "t")
    assert set(seen) == {"who"}
    assert "who" not in [column.name for column in TableModel.load(tmp_path / "t" / "model").schema.used]


def test_calibrate_says_how_the_log_loss_changed(tmp_path):
    said = succeed("calibrate", overconfident(tmp_path), "--target", "y", "--out", tmp_path / "o.csv").stdout
    assert re.search(
        r"^Log loss fell from \d\.\d{4} to \d\.\d{4} on 400 rows in cross-validation: difference -",
        said,
        re.M,
    )
    assert "no significant difference" not in said
    assert "400 rows: " in said
