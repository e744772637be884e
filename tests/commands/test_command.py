"""What all commands share: options are given once, mistakes are found early, and errors name options."""

import re
import subprocess
import sys

import pytest
import typer

from selfcal.commands import app
from tests.commands.conftest import run, shelf

__all__ = ["shelf"]  # the fixture


def commands(group=None, path=()):
    """The words that call each command, and the command."""
    for name, command in (group or typer.main.get_command(app.app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


OPTIONS = [
    pytest.param(words, option, id=" ".join((*words, option.opts[0])))
    for words, command in commands()
    for option in command.params
    if option.param_type_name == "option" and not (option.is_flag or option.multiple)
]


@pytest.mark.parametrize(("words", "option"), OPTIONS)
def test_an_option_with_one_value_is_given_once(words, option):
    name = option.opts[0]
    result = run(*words, name, "1", name, "1")
    assert result.exit_code == 2
    assert result.stderr == f"error: {name} must be given once; got it 2 times. Keep the one that is meant.\n"


def test_flags_and_lists_may_be_given_again():
    words = ["--kind", "x=drop", "--kind", "z=drop", "--force", "--force"]
    assert run("fit", "nosuch.csv", "--target", "y", *words).exit_code == 3


def test_another_spelling_of_an_option_counts():
    result = run("fit", "d.csv", "--target=a", "--kind", "x=drop", "--target", "b")
    assert (result.exit_code, "--target must be given once" in result.stderr) == (2, True)


def test_a_name_is_given_one_value():
    result = run("fit", "d.csv", "--target", "y", "--kind", "x=drop", "--kind", "x=number")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: --kind must name 'x' once; got it with 'drop' and 'number'. Keep one of them.\n"
    )


@pytest.mark.parametrize(
    ("option", "suggested"),
    [
        ("--traget", "--target"),
        ("--Target", "--target"),
        ("--target-column", None),
        ("--xyz", None),
    ],
)
def test_a_mistyped_option_is_compared_by_its_letters(option, suggested):
    said = run("fit", "d.csv", option, "y").stderr
    assert re.search(f"No such option:? '?{option}'?", said)
    found = re.search(r"(?:Possible options:|Did you mean) '?(--[\w-]+)", said)  # versions of click differ
    assert (found and found[1]) == suggested


INVALID = {
    "--time-budget -3": "--time-budget must be a number in (0, inf); got -3.0.",
    "--time-budget nan": "--time-budget must be a number",
    "--held-out 2": "--held-out must be a number in [0.01, 0.9]; got 2.0.",
    "--memory much": "--memory must be a size",
    "--sep ab": "--sep must be one character",
    "--encoding utf-9": "--encoding must be a text encoding",
    "--decimal ;": "--decimal must be one of",
    "--nonfinite imput": "--nonfinite must be one of 'error', 'impute'; got 'imput'. Did you mean 'impute'?",
    "--kind size=numbr": "--kind size must be one of",
    "--kind size=number:%d": "--kind size may name a format for a date only",
    "--method bo4cs": "--method must be one of",
    "--method standard --time-budget 9": "--time-budget is for methods that train several networks",
    "--method standard --one-network": "--one-network is for methods that train several networks",
    "--method standard --noisy-labels": "--noisy-labels is for methods that train several networks",
}


@pytest.mark.parametrize("options", INVALID)
def test_values_are_refused_before_the_table_is_read_by_the_name_of_the_option(
    options, tmp_path, monkeypatch
):
    monkeypatch.setattr("selfcal.tabular.io.read_table", lambda *_, **__: pytest.fail("the table was read"))
    (tmp_path / "d.csv").write_text("x,y\n")
    words = ["--target", "y", "--out", tmp_path / "model", *options.split()]
    result = run("fit", tmp_path / "d.csv", *words)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"error: {INVALID[options]}")
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


def test_values_of_a_grid_are_refused_before_the_table_is_read(tmp_path):
    (tmp_path / "d.csv").write_text("")
    words = ["--target", "y", "--out", tmp_path / "t", "--grid"]
    result = run("tune", tmp_path / "d.csv", *words, "learning_rate=0.1,-1")
    assert result.exit_code == 2
    assert result.stderr == "error: --grid learning_rate must be a number in (0, inf); got -1.0.\n"
    result = run("tune", tmp_path / "d.csv", *words, "method=focl")
    assert (result.exit_code, "--grid method must be one of" in result.stderr) == (2, True)


def test_a_mistyped_calibrator_is_refused_before_the_table_is_read(tmp_path):
    (tmp_path / "p.csv").write_text("")
    words = ["--target", "y", "--out", tmp_path / "c.csv", "--calibrator", "isotnic"]
    result = run("calibrate", tmp_path / "p.csv", *words)
    assert (result.exit_code, "Did you mean 'isotonic'?" in result.stderr) == (2, True)


def test_files_and_values_are_checked_before_torch_is_imported(shelf):
    """In another process, since torch is imported in this one."""
    there, model, out = shelf / "people.csv", shelf / "people-model", shelf / "new.csv"
    lines = [
        "fit nosuch.csv --target y",
        f"fit {there} --target y --time-budget -3",
        f"fit {there} --target kind --out {shelf}",
        "predict nosuch new.csv --out new.csv",
        f"predict {model} nosuch.csv --out {out}",
        f"predict {model} {there} --out {there}",
        "compare nosuch.csv --target y",
        "tune nosuch.csv --target y",
        "report nosuch.csv --target y --out page.html",
        f"calibrate nosuch.csv --target y --out {out}",
        "inspect nosuch",
        f"export {model} --onnx {there}",
        f"demo --out {shelf}",
        f"reproduce bo4sc --out {shelf}",
        f"reproduce loss-functions --out {shelf} --data-dir .",
    ]
    code = (
        "import sys; from typer.testing import CliRunner; from selfcal.commands.app import app\n"
        f"for line in {lines!r}:\n"
        "    result = CliRunner().invoke(app, line.split())\n"
        "    print(line, result.exit_code in (2, 3, 5), 'torch' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"{line} True False" for line in lines]
