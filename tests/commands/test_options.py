import inspect
from dataclasses import dataclass, fields
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from selfcal.commands._options import PredictionOptions, TableOptions, grouped
from selfcal.commands.calibrate import calibrate
from selfcal.commands.compare import compare, tune
from selfcal.commands.evaluate import evaluate
from selfcal.commands.fit import fit
from selfcal.commands.report import report
from selfcal.errors import ConfigError


@dataclass(frozen=True)
class Size:
    width: Annotated[int, typer.Option(help="How wide.")] = 3
    tall: Annotated[bool, typer.Option("--tall")] = False


@grouped
def draw(name: str, *, size: Size, times: int = 1) -> None:
    """Draw something."""
    typer.echo(f"{name} {size} {times}")


def test_a_group_is_taken_apart_on_the_command_line_and_put_together_for_the_command():
    app = typer.Typer()
    app.command()(draw)
    said = CliRunner().invoke(app, ["box", "--width", "5", "--tall", "--times", "2"])
    assert said.output == "box Size(width=5, tall=True) 2\n"
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "Draw something." in shown
    assert "How wide." in shown
    assert list(inspect.signature(draw).parameters) == ["name", "width", "tall", "times"]


def test_commands_that_train_have_the_same_options_of_tables():
    names = ("kind", "decimal", "missing", "nonfinite", "group", "sep", "encoding")
    options = [
        [(of[name].default, of[name].annotation.__metadata__[0].help) for name in names]
        for of in (inspect.signature(command).parameters for command in (fit, compare, tune))
    ]
    assert options[0] == options[1] == options[2]


def test_commands_that_read_predictions_have_the_same_options_of_layouts():
    names = [one.name for one in fields(PredictionOptions)]
    for command in (evaluate, calibrate, report):
        assert [name for name in inspect.signature(command).parameters if name in names] == names


def test_words_are_read_when_the_command_runs():
    assert TableOptions(kind=["zip=category"]).fitting()["kinds"] == {"zip": "category"}
    assert PredictionOptions(columns="a, b").layout()["columns"] == ["a", "b"]
    with pytest.raises(ConfigError, match="--columns must name at least one"):
        PredictionOptions(columns=",").layout()
