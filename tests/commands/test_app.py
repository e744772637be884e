import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from selfcal import __version__
from selfcal.commands import app
from selfcal.errors import ConfigError, DataError, OutputError, TrainingError
from selfcal.experiments import bo4sc, demo

run = CliRunner().invoke


def test_help_names_the_commands_and_version_prints_it():
    assert "reproduce" in run(app.app, ["--help"]).output
    assert run(app.app, ["--version"]).output.strip() == __version__


def test_demo_prints_a_table_for_each_data_set_and_writes_a_page_for_each(tmp_path, monkeypatch):
    few = {
        name: (method.replace("auto", "standard"), {"max_epochs": 20})
        for name, (method, _) in demo.METHODS.items()
    }
    monkeypatch.setattr(demo, "METHODS", few)
    result = run(app.app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    for label in (*few, demo.ORACLE, demo.LOGISTIC):
        assert label in result.output
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written >= {"report.html", "report.json", "model_card.md", "table.html", "table.json"}


def test_reproduce_writes_everything_and_resumes(tmp_path, monkeypatch):
    rows = [
        {"dataset": "bac", "method": m, "seed": 0, "settings": {}}
        | dict.fromkeys(("accuracy", "ece", "log_loss", "brier", "calibration_error"), 0.5)
        | dict.fromkeys(("accuracy_100k", "ece_100k", "log_loss_100k", "brier_100k"), 0.5)
        for m in bo4sc.METHODS
    ]
    bo4sc.Results(tmp_path / "results.json", bo4sc.protocol()).write(rows)
    monkeypatch.setattr(bo4sc, "run_unit", lambda unit: pytest.fail("a finished unit was run again"))
    result = run(app.app, ["reproduce", "bo4sc", "--seeds", "1", "--datasets", "bac", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "BO4SC" in (tmp_path / "table.md").read_text()
    assert json.loads((tmp_path / "results.json").read_text())["rows"] == rows


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError, 2), (DataError, 3), (TrainingError, 4), (OutputError, 6)]
)
def test_our_errors_are_one_line_and_an_exit_code(error, code, monkeypatch, tmp_path):
    def fail(out):
        raise error("expected this, got that, do so")

    monkeypatch.setattr(demo, "run_demo", fail)
    result = run(app.app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == code
    assert result.output.strip() == "error: expected this, got that, do so"
    assert isinstance(run(app.app, ["--debug", "demo"]).exception, error)


def test_interruption_exits_130(monkeypatch):
    def interrupted(out):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", interrupted)
    result = run(app.app, ["demo"])
    assert (result.exit_code, result.output.strip()) == (130, "Stopped by SIGINT.")


@pytest.mark.parametrize(
    "args", [["reproduce", "bo4sc"], ["reproduce", "bo4sc", "--out", "x", "--seeds", "0"], ["dmeo"]]
)
def test_usage_errors_exit_2(args):
    assert run(app.app, args).exit_code == 2


def test_the_command_is_installed():
    ran = subprocess.run(
        [sys.executable, "-m", "selfcal", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == __version__
