"""Reports and classifiers as notebooks display them, in their light and dark themes."""

import numpy as np
import pytest

from selfcal import SelfCalibratedClassifier, recipes
from selfcal.datasets import Blobs
from selfcal.reporting import summarise
from tests.browser.test_report import CONTRAST
from tests.reporting.judged import HOSTILE, predictions

THEMES = {"light": ("#ffffff", "#111111"), "dark": ("#111111", "#e8e8e8")}


@pytest.fixture(scope="module")
def cell():
    X, codes = Blobs(std=1.7).sample(300, seed=0)
    names = np.array([*HOSTILE.values()], dtype=object)[[0, 1, 2, 3, 7]]
    clf = SelfCalibratedClassifier(recipes.crossfit(folds=2), max_epochs=5, random_state=0)
    report = summarise(
        {name: predictions(3.0) for name in HOSTILE.values()}, title=HOSTILE["closes the title"]
    )
    return report._repr_html_() + clf.fit(X, names[codes])._repr_html_()


@pytest.fixture
def notebook(cell, open_page, tmp_path):
    def opened(theme, width=1200):
        page, ink = THEMES[theme]
        style = f"background: {page}; color: {ink}"
        file = tmp_path / f"{theme}.html"
        file.write_text(
            f'<!doctype html><meta charset="utf-8"><body style="{style}">{cell}', encoding="utf-8"
        )
        return open_page(file, width=width)

    return opened


def test_nothing_runs_and_nothing_is_loaded(notebook):
    opened = notebook("light")
    assert opened.noise == []
    assert len(opened.requests) == 1
    assert opened.page.locator(".selfcal-report script, .selfcal-report img").count() == 0
    assert opened.page.locator(".selfcal-report").count() == 2


@pytest.mark.parametrize("theme", THEMES)
def test_text_has_the_contrast_of_wcag_aa(theme, notebook):
    opened = notebook(theme)
    opened.page.evaluate("document.querySelectorAll('.sk-top-container').forEach((part) => part.remove())")
    assert opened.page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("theme", THEMES)
def test_pictures_and_text_have_the_colour_of_the_theme(theme, notebook):
    page = notebook(theme).page
    ink = page.evaluate("getComputedStyle(document.body).color")
    for part in (".selfcal-report .heading", ".selfcal-report td"):
        assert page.locator(part).first.evaluate("(part) => getComputedStyle(part).color") == ink
    assert (
        page.locator(".selfcal-report svg .dot").first.evaluate("(part) => getComputedStyle(part).fill")
        == ink
    )


def test_on_a_narrow_page_the_table_scrolls(notebook):
    page = notebook("light", width=390).page
    for report in page.locator(".selfcal-report").all():
        assert report.evaluate("(part) => part.getBoundingClientRect().right") <= 390
