"""The display of a report in a notebook."""

import re
from html.parser import HTMLParser

import pytest

from selfcal.reporting import Report, summarise
from selfcal.reporting.notebook import PICTURES
from tests.reporting.judged import HOSTILE, predictions


class Parts(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words, self.open = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("line", "rect", "circle", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def shown(methods, **options):
    report = summarise(methods, n_resamples=50, **options)
    return report, Parts(report._repr_html_())


def test_verdict_picture_and_scores():
    report, parts = shown({"sharp": predictions(3.0), "calibrated": predictions()})
    text = " ".join(" ".join(parts.words).split())
    for method in report.methods:
        assert method.verdict.text in text
        assert f"{method.ece.value:.4f}" in text
    assert "over-confident" in text
    assert parts.tags.count("svg") == 2
    assert parts.open == []


def test_many_methods_have_scores_but_not_all_a_picture():
    _, parts = shown(
        {f"method {n}": predictions(seed=0, n=60, sharpness=1 + n / 5) for n in range(PICTURES + 2)}
    )
    assert parts.tags.count("svg") == PICTURES
    assert parts.tags.count("tr") == PICTURES + 3


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_names_are_inert(name):
    report, parts = shown({name: predictions(n=60)}, title=name, subtitle=name, classes=[name, 1, 2])
    assert not {"script", "img", "iframe", "link", "object"} & {*parts.tags}
    assert not [attribute for attribute, _ in parts.attributes if attribute.startswith("on")]
    assert not [value for _, value in parts.attributes if value and re.search("javascript:|https?:", value)]
    assert "49" not in report.title


def test_it_needs_nothing_from_elsewhere():
    html = summarise({"mine": predictions(n=60)}, n_resamples=50)._repr_html_()
    assert not re.search(r"url\(|@import|src=|href=|<script", html)


def test_a_report_that_was_read_is_displayed_alike():
    report, _ = shown({"mine": predictions(n=60)})
    assert Report.from_dict(report.to_dict())._repr_html_() == report._repr_html_()


def test_two_reports_on_a_page_have_different_ids():
    first, second = (shown({"mine": predictions(n=60, seed=seed)})[1] for seed in (0, 1))
    ids = [{value for name, value in parts.attributes if name == "id"} for parts in (first, second)]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_its_style_is_confined():
    html = summarise({"mine": predictions(n=60)}, n_resamples=50)._repr_html_()
    style = html.partition("<style>")[2].partition("</style>")[0]
    selectors = [one for rule in re.findall(r"([^{}]+)\{[^}]*\}", style) for one in rule.split(",")]
    assert all(selector.strip().startswith(".selfcal-report") for selector in selectors)
