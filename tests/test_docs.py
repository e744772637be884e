"""Every code block of the README and the docs runs; every command in them exists."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from selfcal import SelfCalibratedClassifier
from selfcal.commands import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
FULL = SelfCalibratedClassifier().max_epochs
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    found = BLOCK.findall(page.read_text())
    return [
        re.sub(f"^{indent}", "", code, flags=re.MULTILINE) for indent, name, code in found if name == language
    ]


@pytest.mark.parametrize("max_epochs", [10, pytest.param(FULL, marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_blocks_run(page, max_epochs, tmp_path, monkeypatch):
    """One after the other in one namespace, as a reader would paste them; a few epochs show that they run."""
    monkeypatch.setitem(SelfCalibratedClassifier.__init__.__kwdefaults__, "max_epochs", max_epochs)
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for number, code in enumerate(blocks(page, "python"), start=1):
        exec(compile(code, f"{page.name}, block {number}", "exec"), namespace)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh")], ids=lambda p: p.name)
def test_commands_exist(page):
    """`selfcal` lines parse with all their options; `make` lines name a target."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    command = typer.main.get_command(app.app)
    for line in "".join(blocks(page, "sh")).splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["make"]:
            assert words[1] in targets
        elif words[:1] == ["selfcal"]:
            parse(command, words[1:])
        else:
            assert words[:1] in ([], ["pip"], ["git"], ["cd"], ["head"], ["python"]), line


def parse(command, args):
    context = command.make_context("selfcal", list(args), resilient_parsing=False)
    while hasattr(command, "resolve_command"):
        _, command, args = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(command.name, list(args), parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_are_there(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
