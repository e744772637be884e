"""A real browser, where there is one: Debian's Chromium, Playwright's own, or what CHROMIUM names."""

import os
import shutil
from pathlib import Path

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
COMMANDS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def installed(playwright):
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, COMMANDS)), None)
    return found or (
        playwright.chromium.executable_path if Path(playwright.chromium.executable_path).exists() else None
    )


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        path = installed(playwright)
        if path is None:
            pytest.skip("no Chromium: apt-get install chromium, or name one in CHROMIUM")
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


class Watched:
    """A page opened from a file, and everything it said, asked for or let happen."""

    def __init__(self, context, path):
        self.page = context.new_page()
        self.noise, self.requests = [], []
        self.page.on("console", lambda message: self.noise.append(message.text))
        self.page.on("pageerror", lambda error: self.noise.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.noise.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.resolve().as_uri())

    def text(self, selector):
        return self.page.locator(selector).inner_text().replace("\u00a0", " ")

    def move_to(self, place):
        self.page.locator("#threshold").evaluate(
            "(slider, place) => { slider.value = place; slider.dispatchEvent(new Event('input')); }", place
        )

    @property
    def overflow(self):
        """Pixels by which the page is wider than the window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )


@pytest.fixture
def open_page(browser):
    contexts = []

    def opened(path, width=1200, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, **options))
        return Watched(contexts[-1], path)

    yield opened
    for context in contexts:
        context.close()
