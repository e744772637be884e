"""Messages name options that exist, on every command that can show them."""

import ast
import re
from pathlib import Path

import pytest
import typer

import selfcal
from selfcal.commands import app

PACKAGE = Path(selfcal.__file__).parent
COMMANDS = typer.main.get_command(app.app).commands
OPTIONS = {
    name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    | {"--help", "--debug", "--version"}
    for name, command in COMMANDS.items()
    if name != "reproduce"
}
OPTIONS |= {
    f"reproduce {name}": {option for parameter in command.params for option in parameter.opts}
    for name, command in COMMANDS["reproduce"].commands.items()
}
TRAINING, JUDGING = ("fit", "compare", "tune"), ("evaluate", "report", "calibrate")
SHOWN_BY = {
    "commands/calibrate.py": ("calibrate",),
    "commands/evaluate.py": ("evaluate",),
    "commands/export.py": ("export",),
    "commands/fit.py": ("fit",),
    "commands/inspect.py": ("inspect",),
    "commands/predict.py": ("predict",),
    "commands/report.py": ("report",),
    "tabular/io": (*TRAINING, *JUDGING, "predict"),
    "tabular": TRAINING,
    "workflows/table_training.py": TRAINING,
    "workflows/evaluation.py": JUDGING,
    "workflows/layout.py": JUDGING,
    "workflows/layout_search.py": JUDGING,
    "workflows/recalibration.py": ("calibrate",),
}
"""The commands that show the messages of a file or folder; of all others, one command must have the option."""


def advice():
    """Every option in a text of the package, with the file, the text and the command that it is said to belong to."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text())
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                place = file.relative_to(PACKAGE).as_posix()
                for found in re.finditer(r"(?<![\w-])--[a-z][a-z-]*[a-z]", node.value):
                    named = re.match(r" of (?:selfcal )?(\w+)", node.value[found.end() :])
                    before = re.search(
                        r"selfcal (\w+)[^.]*$|\b(\w+) $", node.value[: found.start()].rstrip("(")
                    )
                    own = [word for match in (named, before) if match for word in match.groups()]
                    yield place, found[0], next((word for word in own if word in OPTIONS), None)


def commands_of(place):
    return next(
        (SHOWN_BY[known] for known in SHOWN_BY if place == known or place.startswith(f"{known}/")), None
    )


@pytest.mark.parametrize(("place", "option", "command"), sorted(set(advice()), key=str))
def test_advice_names_options_that_exist(place, option, command):
    wanted = (command,) if command else commands_of(place)
    if wanted is None:
        assert any(option in options for options in OPTIONS.values())
    else:
        assert [name for name in wanted if option not in OPTIONS[name]] == []


def test_advice_is_found():
    assert ("workflows/evaluation.py", "--drop-unlabelled", None) in set(advice())
