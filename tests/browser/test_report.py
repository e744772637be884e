"""The report as a reader has it: in Chromium, from a file, with the policy in force."""

import json
from pathlib import Path

import numpy as np
import pytest

from selfcal import metrics, report
from selfcal.label_noise.audit import audit_labels
from selfcal.reporting import Provenance, permutation_importance
from selfcal.reporting.page import percent, slider_place
from tests.reporting.judged import HOSTILE, predictions

METHODS = {
    "boastful": predictions(3, n=2000, k=5, alpha=0.4),
    "honest": predictions(1, n=2000, k=5, alpha=0.4),
}
CLASSES = ["cat", "dog", "horse", "ship", "aeroplane"]
MANY = predictions(1.5, n=4000, k=50, alpha=0.1)
WIDTHS = (390, 768, 1400)


def important(**options):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 3))
    y = (X[:, 0] > 0.5).astype(int)
    return permutation_importance(
        lambda X: np.where(X[:, :1] > 0.5, [[0.1, 0.9]], [[0.9, 0.1]]), X, y, **options
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    suspect = np.where(np.arange(600) % 8 == 0, (np.arange(600) + 1) % 5, np.arange(600) % 5)
    honest = np.full((600, 5), 1 / 32) + np.eye(5)[np.arange(600) % 5] * 27 / 32
    folder = tmp_path_factory.mktemp("pages")
    names = list(HOSTILE.values())
    importance = important(columns={name: [place % 3] for place, name in enumerate(names)})
    made = Provenance("2026-01-02", names[2], tuple(names))
    hostile = {
        "importance": importance,
        "provenance": made,
        "notes": names,
        "title": names[0],
        "subtitle": names[4],
        "settings": {name: name for name in names},
    }
    many = {"row_names": names * 400, "classes": [*names, *(f"class {i}" for i in range(40))]}
    judged = predictions(2, n=1000, k=len(names))
    return {
        "usual": report(
            METHODS,
            folder / "usual.html",
            classes=CLASSES,
            row_names=range(2000),
            labels=audit_labels(honest, suspect),
            groups={
                "age": np.arange(2000) % 71,
                "site": np.array(["north", "south", None])[np.arange(2000) % 3],
            },
            importance=important(),
            notes=["A column was dropped."],
            provenance=Provenance("2026-01-02", "selfcal fit a.csv --target y", ("a.csv",), of_model=True),
        ),
        "single": report({"net": METHODS["boastful"]}, folder / "single.html"),
        "many classes": report({"net": MANY}, folder / "many.html"),
        "hostile": report(
            dict.fromkeys(names, judged),
            folder / "hostile.html",
            classes=names,
            row_names=names * 100,
            groups={name: np.array(names, dtype=object)[np.arange(1000) % len(names)] for name in names[:3]},
            **hostile,
        ),
        "hostile, many classes": report(
            dict.fromkeys(names[:2], MANY), folder / "both.html", **hostile, **many
        ),
    }


KINDS = ["usual", "single", "many classes", "hostile", "hostile, many classes"]


@pytest.mark.parametrize("kind", KINDS)
def test_opens_without_a_request_or_a_word(kind, pages, open_page):
    opened = open_page(pages[kind])
    opened.page.keyboard.press("End")
    opened.move_to(3)
    own = [url for url in opened.requests if url != pages[kind].resolve().as_uri()]
    assert [url for url in own if not url.startswith("data:")] == []
    assert opened.noise == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wider_than_the_window(kind, width, scheme, pages, open_page):
    opened = open_page(pages[kind], width, color_scheme=scheme)
    opened.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert opened.overflow == 0


def expected_at(judged, threshold):
    """Coverage and risk of the Python API, and the confusion counted row by row."""
    curve = metrics.confidence_risk_coverage_curve(judged.correct, judged.confidence)
    at = np.searchsorted(-curve.thresholds, -threshold, side="right") - 1
    accepted = judged.confidence >= threshold
    confusion = np.zeros((judged.probs.shape[1],) * 2, dtype=int)
    np.add.at(confusion, (judged.y[accepted], judged.chosen[accepted]), 1)
    return curve.coverage[at], curve.risk[at], confusion


def shown(share, digits):
    return percent(share, digits)


def numbers_of(path):
    return json.loads(path.with_suffix(".json").read_text())


@pytest.mark.parametrize("method", [0, 1])
def test_the_slider_shows_what_python_says(method, pages, open_page):
    opened = open_page(pages["usual"])
    opened.page.select_option("#reject-method", str(method))
    judged = list(METHODS.values())[method]
    grid = numbers_of(pages["usual"])["methods"][method]["reject"]["thresholds"]
    seen = set()
    for place in np.linspace(0, len(grid) - 2, 9).astype(int).tolist():
        opened.move_to(slider_place(grid[place]))
        coverage, risk, confusion = expected_at(judged, grid[place])
        assert float(opened.text("#threshold-value")) == grid[place]
        assert opened.text("#coverage") == shown(coverage, 1)
        assert opened.text("#risk") == shown(risk, 2)
        wrong = confusion.sum() - np.trace(confusion)
        assert opened.text("#risk-rows").startswith(f"{wrong:,} wrong; interval ")
        cells = opened.page.locator("#confusion td[data-true]").all_inner_texts()
        assert [int(cell.replace(",", "")) for cell in cells] == confusion.ravel().tolist()
        seen.add(opened.text("#coverage"))
    assert len(seen) > 5
    assert opened.noise == []


def test_the_leading_mistakes_follow_the_slider(pages, open_page):
    opened = open_page(pages["many classes"])
    grid = numbers_of(pages["many classes"])["methods"][0]["reject"]["thresholds"]
    for place in (0, len(grid) // 2, len(grid) - 10):
        opened.move_to(slider_place(grid[place]))
        _, _, confusion = expected_at(MANY, grid[place])
        np.fill_diagonal(confusion, 0)
        order = np.argsort(-confusion.ravel(), kind="stable")[:10]
        expected = [[*divmod(int(pair), 50), int(confusion.ravel()[pair])] for pair in order]
        rows = opened.page.locator("#pairs tbody tr").all()
        shown = [[int(cell) for cell in row.locator("td").all_inner_texts()] for row in rows]
        assert shown == [pair for pair in expected if pair[2]]


def test_the_page_without_script_shows_what_it_shows_with(pages, open_page):
    """What Python wrote into the page is what the script writes over it."""
    with_script, without = (open_page(pages["usual"], java_script_enabled=on) for on in (True, False))
    for selector in (
        "#coverage",
        "#coverage-rows",
        "#risk",
        "#risk-rows",
        "#avoided",
        "#avoided-rows",
        "#confusion",
    ):
        assert with_script.text(selector) == without.text(selector)
    assert "needs JavaScript" in without.text("noscript")


def test_script_and_python_round_alike(pages, open_page):
    """Halves most of all: 245 of 2,000 rows are 12.25%."""
    page = open_page(pages["single"]).page
    shares = [count / 2000 for count in range(0, 2001, 7)]
    by_script = page.evaluate("(shares) => shares.map((share) => (100 * share).toFixed(1))", shares)
    assert by_script == [percent(share).removesuffix("%") for share in shares]


def test_the_keyboard_is_enough(pages, open_page):
    opened = open_page(pages["usual"])
    reached = []
    for _ in range(80):
        opened.page.keyboard.press("Tab")
        reached.append(opened.page.evaluate("document.activeElement.id || document.activeElement.tagName"))
        if reached[-1] == "threshold":
            break
    assert reached[0] == "A"  # the link that skips to the verdict
    assert reached[-2:] == ["reject-method", "threshold"]
    grid = numbers_of(pages["usual"])["methods"][0]["reject"]["thresholds"]
    before = grid.index(float(opened.text("#threshold-value")))
    for key, expected in (
        ("ArrowRight", before + 1),
        ("ArrowLeft", before),
        ("PageUp", before + 10),
        ("Home", 0),
    ):
        opened.page.keyboard.press(key)
        assert float(opened.text("#threshold-value")) == grid[expected]
    assert opened.text("#coverage") == "100.0%"
    assert opened.page.locator("#threshold").get_attribute("aria-valuetext") == "threshold 0"
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


@pytest.mark.parametrize("kind", ["usual", "single", "many classes"])
def test_the_scale_of_the_slider_is_the_same_on_every_page(kind, pages, open_page):
    opened = open_page(pages[kind])
    assert opened.page.locator(".ticks text").all_text_contents() == ["0", "0.5", "0.9", "0.99", "0.999", "1"]
    for place, threshold in ((200, 0.5), (500, 0.9), (1000, 1.0)):
        opened.move_to(place)
        grid = numbers_of(pages[kind])["methods"][0]["reject"]["thresholds"]
        assert threshold in grid or threshold < grid[1]
        assert float(opened.text("#threshold-value")) == (threshold if threshold in grid else 0)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_drawings_in_tables_can_be_seen_at_every_width(width, pages, open_page):
    opened = open_page(pages["usual"], width)
    boxes = opened.page.locator("details[open] .spark, #columns .spark").evaluate_all(
        "(every) => every.map((one) => one.getBoundingClientRect().width)"
    )
    assert len(boxes) > 20
    assert min(boxes) >= 96


def test_the_whole_confusion_matrix_is_on_the_page(pages, open_page):
    opened = open_page(pages["usual"])
    judged = METHODS["boastful"]
    expected = np.zeros((5, 5), dtype=int)
    np.add.at(expected, (judged.y, judged.chosen), 1)
    cells = opened.page.locator(".whole-matrix").first.locator("tbody td").all_inner_texts()
    assert [int(cell.replace(",", "")) for cell in cells] == expected.ravel().tolist()


def test_the_page_of_a_command_names_commands_and_that_of_python_names_classes(pages, open_page):
    usual, single = open_page(pages["usual"]), open_page(pages["single"])
    assert "--max-risk" in usual.text("#reject")
    assert "SelectiveClassifier" not in usual.text("#reject")
    assert "SelectiveClassifier" in single.text("#reject")
    assert "selfcal fit a.csv --target y" in usual.text("#data")
    assert "a.csv · 2026-01-02" in usual.text("header")


def test_a_change_of_method_keeps_the_threshold(pages, open_page):
    opened = open_page(pages["usual"])
    opened.page.select_option("#reject-method", "1")
    assert opened.text("#threshold-value") == "0.9"
    assert opened.page.locator("polyline.chosen").get_attribute("data-method") == "1"


@pytest.mark.parametrize("kind", ["hostile", "hostile, many classes"])
def test_hostile_names_are_inert(kind, pages, open_page):
    opened = open_page(pages[kind])
    opened.move_to(2)
    page = opened.page
    assert page.locator("script").count() == 2
    assert page.locator("img, iframe, object, [onmouseover], [onerror]").count() == 0
    assert "{{7*7}}" in page.locator("body").inner_text()
    assert opened.noise == []
    page.locator("#scores tbody th").last.hover()
    assert opened.noise == []


def test_the_policy_stops_what_is_smuggled_in(pages, tmp_path, open_page):
    """If a name got through after all, it could still do nothing."""
    page = pages["single"].read_text()
    smuggled = "<script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"
    assert "</h1>" in page
    bad = tmp_path / "bad.html"
    bad.write_text(page.replace("</h1>", f"</h1>{smuggled}"))
    opened = open_page(bad)
    assert opened.page.title() != "owned"
    assert any("Content Security Policy" in word for word in opened.noise)


CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_the_contrast_of_wcag_aa(scheme, pages, open_page):
    opened = open_page(pages["usual"], color_scheme=scheme)
    opened.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert opened.page.evaluate(CONTRAST) == []


def test_light_and_dark_differ_and_print_is_light(pages, open_page):
    backgrounds = {}
    for scheme in ("light", "dark"):
        page = open_page(pages["usual"], color_scheme=scheme).page
        backgrounds[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.emulate_media(media="print", color_scheme=scheme)
        backgrounds["print", scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert backgrounds["light"] != backgrounds["dark"]
    assert backgrounds["print", "light"] == backgrounds["print", "dark"] == "rgb(255, 255, 255)"


def test_nothing_moves_for_those_who_asked_for_that(pages, open_page):
    page = open_page(pages["usual"], reduced_motion="reduce").page
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
