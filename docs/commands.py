"""The reference of the command line, from its own help: ``docs/reference/commands.rst``, written with the site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from sphinx.application import Sphinx

from selfcal.commands.app import app as command_line

PAGE = Path(__file__).parent / "reference" / "commands.rst"


def write_page(app: Sphinx) -> None:
    """Write the page, if it is not the same."""
    root = typer.main.get_command(command_line)
    text = "\n".join([*_section("selfcal", root, "=")]) + "\n"
    if not PAGE.exists() or PAGE.read_text() != text:
        PAGE.write_text(text)


def _section(name: str, command: Any, line: str) -> Iterator[str]:
    title = "Every command and its options" if line == "=" else name
    yield from (title, line * len(title), "", f".. program:: {name}", "")
    context = command.make_context(name, [], resilient_parsing=True)
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    usage = [name, *(f"{param.name.upper()}{'...' * (param.nargs != 1)}" for param in arguments), "[OPTIONS]"]
    says, _, examples = (command.help or "").partition("Try:")
    yield from (_escaped(" ".join(says.split())), "")
    yield from _code([" ".join([*usage, *["COMMAND [ARGUMENTS]"] * hasattr(command, "commands")])])
    if examples:
        yield from ("For example:", "")
        yield from _code([line.strip() for line in examples.splitlines() if line.strip()])
    for param in command.params:
        if param.name != "help":
            yield from _parameter(param, context)
    for name_of_part, part in getattr(command, "commands", {}).items():
        yield from _section(f"{name} {name_of_part}", part, "-" if line == "=" else "~")


def _code(lines: list[str]) -> Iterator[str]:
    yield from (".. code-block:: text", "", *(f"   {line}" for line in lines), "")


def _parameter(param: Any, context: Any) -> Iterator[str]:
    head, text = param.get_help_record(context)
    yield from (f".. option:: {head}", "", f"   {_escaped(' '.join(text.split()))}", "")


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_|])", r"\\\1", re.sub(r"`+", "", text))


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx what is done here."""
    app.connect("builder-inited", write_page)
    return {"parallel_read_safe": True}
