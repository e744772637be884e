import re
from html.parser import HTMLParser

import numpy as np
import pytest

from selfcal.errors import DataError
from selfcal.predictions import Predictions
from selfcal.reporting import report, verdict


def predictions(sharpness=1.0, n=400):
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.ones(3), n)
    y = np.array([generator.choice(3, p=p) for p in probs])
    sharp = probs**sharpness
    return Predictions.from_probabilities(y, sharp / sharp.sum(axis=1, keepdims=True))


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def test_page_is_whole_and_needs_nothing_from_outside(tmp_path):
    page = report({"honest": predictions(), "boastful": predictions(4)}, tmp_path / "r.html").read_text()
    tags = Tags()
    tags.feed(page)
    names = [tag for tag, _ in tags.seen]
    assert names.count("img") == 1
    assert not {"script", "link", "iframe"} & set(names)
    assert all(attrs["src"].startswith("data:") and attrs["alt"] for tag, attrs in tags.seen if tag == "img")
    assert not re.search(r"https?://", page)
    assert "default-src 'none'" in page
    assert page.count("<tr>") == 3


def test_hostile_names_are_text(tmp_path):
    name = "</title><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}"
    page = report({name: predictions()}, tmp_path / "r.html", title=name, subtitle=name).read_text()
    tags = Tags()
    tags.feed(page)
    assert "script" not in [tag for tag, _ in tags.seen]
    assert all(attrs.get("src", "data:").startswith("data:") for _, attrs in tags.seen)
    assert "{{7*7}}" in page


@pytest.mark.parametrize(
    ("sharpness", "judgement"), [(4, "over-confident"), (1, "honest"), (0.2, "under-confident")]
)
def test_verdict(sharpness, judgement):
    assert verdict("Net", predictions(sharpness, n=5000)).endswith(f": {judgement}.")


def test_confidence_below_chance_is_pointed_out(tmp_path):
    honest = predictions()
    shy = Predictions(honest.y, honest.chosen, np.full(len(honest.y), 0.2), honest.probs)
    page = report({"shy": shy}, tmp_path / "r.html").read_text()
    assert "shy gives 100.0% of the rows a confidence below chance (0.33)" in page


def test_nothing_to_report(tmp_path):
    with pytest.raises(DataError, match="at least one method"):
        report({}, tmp_path / "r.html")


def test_methods_must_be_judged_on_the_same_rows(tmp_path):
    with pytest.raises(DataError, match="'b' has 300 rows"):
        report({"a": predictions(), "b": predictions(n=300)}, tmp_path / "r.html")


def test_verdict_without_confident_rows_speaks_of_all_rows():
    shy = Predictions.from_probabilities(np.arange(300) % 2, np.tile([0.55, 0.45], (300, 1)))
    assert verdict("Net", shy).startswith("Net: over all rows (55 % on average), it is right 44-56 %")
