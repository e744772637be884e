"""The site as a reader has it: in Chromium, from its files, without a network."""

import inspect
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
import typer

import selfcal
from selfcal.commands import app

SITE = Path(__file__).parents[2] / "docs" / "_build" / "html"
WIDTHS = (390, 1400)
pytestmark = pytest.mark.skipif(
    not (SITE / "objects.inv").exists(), reason="the site is not built: make docs"
)


def built(folder=""):
    return sorted(page for page in (SITE / folder).rglob("*.html") if "_static" not in page.parts)


def public_names():
    packages = [
        import_module(f"selfcal.{found.name}") for found in iter_modules(selfcal.__path__) if found.ispkg
    ]
    for package in [selfcal, *packages]:
        for name in getattr(package, "__all__", ()):
            if not inspect.ismodule(getattr(package, name)):
                yield f"{package.__name__}.{name}"


@pytest.fixture(scope="module")
def inventory():
    objects = pytest.importorskip("sphinx.util.inventory", reason="Sphinx is not installed").InventoryFile
    return objects.loads((SITE / "objects.inv").read_bytes(), uri="").data


def test_every_public_name_has_an_entry_in_the_reference(inventory):
    described = {name for kind, entries in inventory.items() if kind.startswith("py:") for name in entries}
    modules = {
        value.__name__ for name in selfcal.__all__ if inspect.ismodule(value := getattr(selfcal, name))
    }
    assert len([*public_names()]) > 300
    assert not {*public_names(), *modules} - described


def test_every_command_and_option_has_an_entry_in_the_reference(inventory):
    described = {*inventory["std:cmdoption"]}
    for name, command in typer.main.get_command(app.app).commands.items():
        for param in getattr(command, "params", ()):
            if param.param_type_name == "option" and param.name != "help":
                assert f"selfcal-{name}.{param.opts[0]}" in described, (name, param.name)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_front_page_leads_to_every_section(open_page, width):
    opened = open_page(SITE / "index.html", width)
    assert opened.page.title() == "selfcal"
    links = opened.page.locator("article table a")
    targets = links.evaluate_all("links => links.map(link => link.href)")
    assert len(targets) >= 6
    for section in ("quickstart", "tutorials", "guides", "understanding", "results", "reference"):
        assert any(section in target for target in targets), section
    assert not opened.noise
    assert opened.overflow <= 0


@pytest.mark.parametrize("width", WIDTHS)
def test_the_search_finds_a_name_and_leads_to_its_entry(open_page, width):
    opened = open_page(SITE / "index.html", width)
    if (menu := opened.page.locator(".mobile-header label[for=__navigation]")).is_visible():
        menu.click()
    opened.page.locator("input[name=q]").fill("SelectiveClassifier")
    opened.page.locator("input[name=q]").press("Enter")
    found = opened.page.locator("#search-results a", has_text="selfcal.SelectiveClassifier").first
    found.click()
    opened.page.wait_for_url("**/selfcal.html#selfcal.SelectiveClassifier")
    opened.page.locator("[id='selfcal.SelectiveClassifier']").wait_for()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_tutorial_shows_its_code_and_what_it_printed(open_page, width):
    tutorials = [page for page in built("tutorials") if page.stem != "index"]
    if not tutorials:
        pytest.skip("there is no tutorial")
    opened = open_page(tutorials[0], width)
    assert opened.page.locator(".cell_input").count() > 0
    assert opened.page.locator(".cell_output").count() > 0
    assert opened.overflow <= 0


@pytest.mark.parametrize("width", WIDTHS)
def test_the_reference_says_which_page_explains_a_name(open_page, width):
    opened = open_page(SITE / "reference/api/selfcal.html", width)
    entry = opened.page.locator("dl", has=opened.page.locator("[id='selfcal.SelectiveClassifier']"))
    entry.locator("a", has_text="The reject option").first.click()
    opened.page.wait_for_url("**/guides/reject-option.html*")
    assert opened.page.locator("h1").inner_text().startswith("The reject option")
    assert not opened.noise


@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_window_or_asks_for_anything_elsewhere(browser, width):
    context = browser.new_context(viewport={"width": width, "height": 900})
    page, asked, wide = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    for file in built():
        page.goto(file.as_uri())
        over = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        if page.evaluate(over) > 0:
            wide.append(file.relative_to(SITE).as_posix())
    context.close()
    assert wide == []
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
