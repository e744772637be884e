"""Every code block of the README and the docs runs, every command in them exists, and they mention what there is."""

import inspect
import re
import shlex
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from docs import architecture

from selfcal import SelfCalibratedClassifier, calibrators, metrics, models, recipes, uncertainty
from selfcal.commands import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/[!_]*/*.md")])


def name_of(page):
    """The place of a page in the project, as two pages in different sections may have the same name."""
    return page.relative_to(ROOT).as_posix()


FULL = SelfCalibratedClassifier().max_epochs
MEASURED = re.compile(r"<!-- begin: (.+?) -->.*?<!-- end: \1 -->", re.DOTALL)
SCRIPT = re.compile(r"# (\w+\.py)\n")
"""A block that begins with the name of a file is run as that script."""

EXTRAS = ("dask", "lightning", "mlflow", "optuna")
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    found = BLOCK.findall(page.read_text())
    return [
        re.sub(f"^{indent}", "", code, flags=re.MULTILINE) for indent, name, code in found if name == language
    ]


@pytest.mark.parametrize("max_epochs", [10, pytest.param(FULL, marks=pytest.mark.slow)])
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=name_of)
def test_python_blocks_run(page, max_epochs, tmp_path, monkeypatch):
    """One after the other in one namespace, as a reader would paste them; a few epochs show that they run."""
    monkeypatch.setitem(SelfCalibratedClassifier.__init__.__kwdefaults__, "max_epochs", max_epochs)
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for number, code in enumerate(blocks(page, "python"), start=1):
        if script := SCRIPT.match(code):
            Path(script[1]).write_text(code)
            subprocess.run([sys.executable, script[1]], check=True)
        elif all(find_spec(name) for name in extras(code)):
            with warnings.catch_warnings():
                if extras(code):  # what they warn of among themselves is not ours
                    warnings.simplefilter("ignore")
                exec(compile(code, f"{name_of(page)}, block {number}", "exec"), namespace)


def extras(code):
    """The extras that a block imports."""
    return [name for name in EXTRAS if re.search(rf"^(import|from) {name}\b", code, re.MULTILINE)]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "sh")], ids=name_of)
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
            assert words[:1] in ([], ["pip"], ["git"], ["cd"], ["head"], ["python"], ["torchrun"]), line


def parse(command, args):
    context = command.make_context("selfcal", list(args), resilient_parsing=False)
    while hasattr(command, "resolve_command"):
        _, command, args = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(command.name, list(args), parent=context)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_pictures_are_there(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def text_of(name):
    """A page without what programs have put into it."""
    return MEASURED.sub("", (ROOT / name).read_text())


def code_spans(name):
    return set(re.findall(r"`(\w+)`", text_of(name)))


def test_the_page_of_methods_lists_every_one_and_counts_the_calibrators():
    assert {*recipes.names()} <= code_spans("docs/start/methods.md")
    counted = f"{len(calibrators.__all__)} [post-hoc calibrators]"
    assert counted in " ".join(text_of("docs/start/methods.md").split())


def test_the_page_of_calibrators_lists_every_one():
    assert {*calibrators.__all__, *calibrators.POST_HOC} <= code_spans("docs/guides/calibrators.md")


def test_the_page_of_uncertainty_scores_lists_every_one():
    scores = {name for name in uncertainty.__all__ if not inspect.isabstract(getattr(uncertainty, name))}
    assert scores <= code_spans("docs/guides/uncertainty.md")


def test_the_page_of_metrics_mentions_every_one():
    functions = {name for name in metrics.__all__ if inspect.isfunction(getattr(metrics, name))}
    text = text_of("docs/guides/metrics.md") + text_of("docs/guides/reject-option.md")
    assert not {name for name in functions if not re.search(rf"\b{name}\b", text)}


def test_the_page_of_commands_has_a_section_for_every_one():
    headings = re.findall(r"^## ([a-z ]+):", text_of("docs/guides/command-line.md"), re.MULTILINE)
    described = {word for heading in headings for word in heading.split() if word != "and"}
    registered = {*typer.main.get_command(app.app).commands}
    files = {path.stem for path in (ROOT / "src/selfcal/commands").glob("[!_]*.py")} - {"app"}
    assert described == registered >= files


def test_the_page_of_auto_lists_every_kind_of_network_for_tables():
    assert {*models.FOR_TABLES} <= code_spans("docs/understanding/auto.md")


def test_the_layers_in_the_pages_are_those_of_the_contract():
    layers = architecture.layers()
    (shown,) = blocks(ROOT / "CONTRIBUTING.md", "")
    assert [line.replace("|", " ").split() for line in shown.splitlines()] == layers
    packages = {name for layer in layers for name in layer}
    assert packages <= code_spans("docs/architecture.md")
    assert [layer[0] for layer in layers] == [*architecture.PURPOSE]
    assert {*architecture.FIT, *architecture.STEP} <= packages


def test_files_that_the_pages_name_exist():
    source = ROOT / "src" / "selfcal"
    for name in ("docs/architecture.md", "CONTRIBUTING.md"):
        for path in re.findall(r"`([\w/]+\.(?:py|toml|md))`", text_of(name)):
            if "NAME" not in path:
                places = [ROOT / path, source / path, *source.glob(f"*/{path}")]
                assert any(place.exists() for place in places), path


def test_the_picture_of_the_architecture_can_be_drawn(tmp_path):
    architecture.draw().savefig(tmp_path / "architecture.png", dpi=50)
    assert architecture.PICTURE.exists()


DIALECT = re.compile(
    r"\b(foretells?|mend(ed|s)?|committees?|teams?|votes?|kept apart|found out|taught by|honest)\b|\d %",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=name_of)
def test_pages_use_standard_words_and_one_spelling_of_percentages(page):
    assert not DIALECT.search(text_of(page))
