import base64
import hashlib
import itertools
import json
import re
import time
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure

from selfcal import report
from selfcal.errors import ConfigError, OutputError
from selfcal.label_noise.audit import audit_labels
from selfcal.reporting import Picture, Provenance, summarise
from selfcal.reporting.content import Refit, Report
from selfcal.reporting.page import write_page
from tests.reporting.judged import HOSTILE, predictions

QUICK = {"n_resamples": 100}
LIMIT = 1_500_000


class Page(HTMLParser):
    """Tags in order, and the text inside each kind."""

    def __init__(self, path):
        super().__init__()
        self.html, self.tags, self.text, self._open = path.read_text(), [], {}, []
        self.feed(self.html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        for tag in set(self._open):
            self.text[tag] = self.text.get(tag, "") + data

    def attributes(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    methods = {"honest": predictions(), "boastful": predictions(4)}
    picture = Picture("A picture", "Look at it.", Figure(figsize=(1, 1)))
    options = {"row_names": range(400), "pictures": [picture], "settings": {"seed": 7}}
    return Page(report(methods, folder / "report.html", classes=["cat", "dog", "owl"], **options, **QUICK))


def embedded(page):
    return json.loads(re.search(r'<script type="application/json" id="numbers">(.*?)</script>', page.html)[1])


def test_a_refit_is_mentioned_at_the_top_and_in_the_numbers(page, tmp_path):
    judged = replace(
        summarise({"net": predictions()}, **QUICK), refit=Refit(500, 400, "The model was refitted <b>.")
    )
    assert Report.from_dict(judged.to_dict()) == judged
    shown = Page(write_page(judged, tmp_path / "report.html"))
    assert "The model was refitted <b>." in shown.text["header"]
    assert embedded(shown)["refit"] == {
        "rows": 500,
        "evaluated_rows": 400,
        "text": "The model was refitted <b>.",
    }
    assert embedded(page)["refit"] is None
    assert "refitted" not in page.text["body"]


def test_the_page_needs_nothing_from_outside(page):
    assert not {"link", "iframe", "object", "base", "form"} & {tag for tag, _ in page.tags}
    assert all(attrs["src"].startswith("data:image/png;base64,") for attrs in page.attributes("img"))
    assert not re.search(r"https?:|url\((?!#)|@import", page.html)
    assert all(
        value.startswith(("#", "data:"))
        for _, attrs in page.tags
        for name, value in attrs.items()
        if name in ("href", "src", "srcset")
    )


def test_the_policy_allows_our_style_and_script_and_nothing_else(page):
    policy = next(a["content"] for a in page.attributes("meta") if a.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", page.html, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", page.html, re.DOTALL)
    assert (len(scripts), len(styles)) == (1, 1)
    for source, content in (("script-src", scripts[0]), ("style-src", styles[0])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{source} 'sha256-{digest}'" in policy
    assert not any(name.startswith("on") or name == "style" for _, attrs in page.tags for name in attrs)


def test_page_and_json_hold_the_same_numbers(page, tmp_path):
    path = report({"net": predictions()}, tmp_path / "net.html", **QUICK)
    numbers = json.loads((tmp_path / "net.json").read_text())
    assert embedded(Page(path)) == numbers
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net.html", "net.json", "net_model_card.md"]


def test_numbers_stand_in_the_page_as_they_are_in_the_json(page):
    for method in embedded(page)["methods"]:
        for name in ("ece", "log_loss", "brier_score"):
            for value in method[name].values():
                assert f"{value:.4f}" in page.text["table"]
        assert method["verdict"]["range"] in page.text["section"]


def test_pictures_have_words(page):
    assert all(attrs["alt"] for attrs in page.attributes("img"))
    drawings = [attrs for attrs in page.attributes("svg") if attrs.get("role") == "img"]
    assert len(drawings) > 4
    names = {attrs.get("id") for _, attrs in page.tags}
    for attrs in drawings:
        assert attrs.get("aria-label") or set(attrs["aria-labelledby"].split()) <= names


def test_headings_come_in_order_and_ids_are_unique(page):
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_every_control_has_a_label(page):
    labelled = {attrs["for"] for attrs in page.attributes("label")}
    assert {attrs["id"] for tag in ("input", "select") for attrs in page.attributes(tag)} <= labelled


def test_links_lead_somewhere(page):
    ids = {attrs.get("id") for _, attrs in page.tags}
    assert {attrs["href"][1:] for attrs in page.attributes("a")} <= ids


def test_every_picture_says_how_to_read_it(page):
    assert page.html.count("How to read this") >= 6


def audited(n=400, names=None):
    """Labels of which every eighth is wrong, under predictions that have learned so."""
    y = np.arange(n) % 3
    labels = np.where(np.arange(n) % 8 == 0, (y + 1 + np.arange(n) // 8 % 2) % 3, y)
    noisy = np.full((n, 3), 1 / 16) + np.eye(3)[y] * 13 / 16
    names = np.arange(3) if names is None else np.asarray(names, dtype=object)
    return audit_labels(noisy, names[labels], classes=names)


def test_suspect_labels_have_a_section(tmp_path):
    audit = audited(600, ["cat", "dog", "owl"])
    page = Page(report({"net": predictions()}, tmp_path / "report.html", labels=audit, **QUICK))
    labels = embedded(page)["labels"]
    assert len(audit.flagged) == 75
    assert (labels["flagged"], len(labels["rows"]), labels["summary"]) == (75, 50, str(audit))
    assert [row["row"] for row in labels["rows"]] == audit.flagged[:50].tolist()
    assert "#labels" in {attrs["href"] for attrs in page.attributes("a")}
    assert "50 shown of 75 flagged" in page.text["section"]


def test_no_section_without_an_audit_and_no_table_without_a_flag(page, tmp_path):
    assert embedded(page)["labels"] is None
    assert "Suspect labels" not in page.html
    clean = audit_labels(np.eye(3)[[0, 1, 2]], [0, 1, 2])
    path = report({"net": predictions()}, tmp_path / "report.html", labels=clean, **QUICK)
    assert "none can be named" in path.read_text()
    assert 'aria-label="Suspect labels"' not in path.read_text()


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_labels_are_text(name, tmp_path):
    audit = audited(names=[name, "b", "c"])
    page = Page(report({"net": predictions()}, tmp_path / "report.html", labels=audit, **QUICK))
    assert len(audit.flagged) > 40
    assert len(page.attributes("script")) == 2
    assert not page.attributes("img")
    assert not any(attribute.startswith("on") for _, attrs in page.tags for attribute in attrs)


def test_rows_stay_out_unless_they_are_named(tmp_path):
    path = report({"net": predictions()}, tmp_path / "report.html", **QUICK)
    assert "Worst mistakes" not in path.read_text()


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_text(name, tmp_path):
    others = {"title": name, "subtitle": name, "settings": {name: name}, "row_names": [name] * 400}
    path = report(
        {name: predictions()}, tmp_path / "report.html", classes=[name, "b", "c"], **others, **QUICK
    )
    page = Page(path)
    assert len(page.attributes("script")) == 2
    assert not page.attributes("img")
    assert not any(attribute.startswith("on") for _, attrs in page.tags for attribute in attrs)
    assert "49" not in page.text["h1"]
    assert path.stat().st_size < LIMIT


def test_the_same_numbers_make_the_same_page(tmp_path):
    made = {"provenance": Provenance("2026-01-01"), **QUICK}
    pages = [report({"net": predictions()}, tmp_path / name / "report.html", **made) for name in "ab"]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_a_million_predictions(tmp_path):
    judged = predictions(1.5, n=1_000_000, k=5)
    started = time.process_time()
    path = report({"net": judged}, tmp_path / "report.html")
    assert time.process_time() - started < 5
    assert path.stat().st_size < LIMIT / 5


def test_a_thousand_classes(tmp_path):
    judged = predictions(1.5, n=5000, k=1000, alpha=0.01)
    names = [f"class {i} of a rather long list" for i in range(1000)]
    path = report(dict.fromkeys("abc", judged), tmp_path / "report.html", classes=names, **QUICK)
    page = Page(path)
    assert path.stat().st_size < LIMIT
    assert page.html.count("<tr") < 400  # of a thousand rows nobody reads the last


def test_many_methods_stay_small(tmp_path):
    methods = {f"method {i}": predictions(1 + i / 10, k=10, n=2000) for i in range(20)}
    assert report(methods, tmp_path / "report.html", **QUICK).stat().st_size < LIMIT


def test_one_row(tmp_path):
    rows = {name: predictions(sharpness, n=1) for name, sharpness in (("a", 1), ("b", 2))}
    assert "no significant difference" in report(rows, tmp_path / "report.html", row_names=["x"]).read_text()


def test_a_path_that_is_no_page(tmp_path):
    with pytest.raises(ConfigError, match=r"end in \.html"):
        report({"net": predictions()}, tmp_path / "report.json")


def test_a_page_that_cannot_be_written(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OutputError, match=r"report\.html"):
        report({"net": predictions()}, tmp_path / "report.html", **QUICK)
