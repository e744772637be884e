"""Strange rows and prediction sets in a report."""

from dataclasses import replace

import numpy as np
import pytest

from selfcal._support.splits import stratified_split
from selfcal.conformal import ConformalClassifier, evaluate_sets
from selfcal.reporting import summarise
from selfcal.reporting._sets import COVERAGES, prediction_sets
from selfcal.reporting.card import model_card
from selfcal.reporting.content import Refit, Report
from selfcal.reporting.novelty import novelty_report, strange_columns
from selfcal.reporting.page import write_page
from tests.reporting.judged import predictions
from tests.reporting.test_page import QUICK, Page

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3))
X[:, 2] = X[:, 1] + 0.1 * RNG.normal(size=300)


def unlike(rows):
    """Far away in the first column, or not on the line of the others."""
    return (np.abs(rows[:, 0]) > 2) | (np.abs(rows[:, 2] - rows[:, 1]) > 1)


def test_the_columns_are_those_whose_value_removes_the_mark():
    strange = X.copy()
    strange[:60, 0] = 9.0
    strange[60:80, 2] += 5.0
    marked = unlike(strange)
    looked_at, found = strange_columns(unlike, strange, marked, columns=["size", "a", "b"])
    assert looked_at == marked.sum()
    rows = {one.column: one.rows for one in found}
    by_size = ((np.abs(strange[:, 0]) > 2) & ~(np.abs(strange[:, 2] - strange[:, 1]) > 1)).sum()
    assert rows["size"] == by_size  # always curable by another size, and never else
    off_line = marked.sum() - by_size
    assert 0 < rows["a"] <= off_line
    assert 0 < rows["b"] <= off_line
    assert found[0].column == "size"
    together = strange_columns(unlike, strange, marked, columns={"size": [0], "line": [1, 2]})[1]
    assert {one.column: one.rows for one in together}["line"] >= rows["b"]


def test_no_marks_no_columns():
    assert strange_columns(unlike, X, np.zeros(300, dtype=bool)) == (0, ())
    assert strange_columns(unlike, X, np.ones(300, dtype=bool)) == (0, ())


def test_the_work_is_bounded(monkeypatch):
    monkeypatch.setattr("selfcal.reporting.novelty.MAX_MARKED", 7)
    asked = []

    def counting(rows):
        asked.append(len(rows))
        return unlike(rows)

    looked_at, _ = strange_columns(counting, X, np.arange(300) < 100)
    assert (looked_at, asked) == (7, [7 * 20] * 3)


def test_the_rate_has_an_exact_interval():
    found = novelty_report(np.arange(100) < 8, score="Mahalanobis", false_alarms=0.05, chosen_on=99)
    assert (found.marked, found.rows, found.rate.value) == (8, 100, 0.08)
    # Clopper-Pearson's interval of 8 in 100, from a table
    assert (found.rate.low, found.rate.high) == pytest.approx((0.0352, 0.1516), abs=1e-4)


def test_sets_are_those_of_the_conformal_classifier_on_the_halves():
    judged = predictions()
    found = prediction_sets(judged, level=0.95, seed=3)
    assert [one.promised for one in found] == list(COVERAGES)
    one = found[2]
    assert one.chosen_on + one.rows == len(judged.y)
    first, other = stratified_split(judged.y, (0.5, 0.5), 3)
    conformal = ConformalClassifier(coverage=0.95).fit(judged.probs[first], judged.y[first])
    sizes = evaluate_sets(judged.y[other], conformal.predict_set(judged.probs[other]))
    assert (one.coverage.value, one.size.value) == (sizes.coverage.value, sizes.size.value)
    assert (one.single, one.empty) == (sizes.single, sizes.empty)


def test_the_page_and_the_card_show_both(tmp_path):
    marked = unlike(X)
    columns = strange_columns(unlike, X, marked, columns=["<b>", "a", "b"])
    novelty = novelty_report(
        marked[:150], score="Mahalanobis", false_alarms=0.05, chosen_on=150, columns=columns
    )
    told = summarise({"net": predictions()}, novelty=novelty, **QUICK)
    shown = Page(write_page(told, tmp_path / "r.html"))
    assert novelty.text in shown.text["section"]
    assert "<b>" in shown.text["th"]
    assert "should be at most 5%" in " ".join(shown.text["aside"].split())
    assert {"sets", "novelty"} <= {one.get("id") for one in shown.attributes("section")}
    card = model_card(told)
    assert novelty.text in card
    assert "| net | 95% | " in card
    assert Report.from_dict(told.to_dict()) == told
    refitted = replace(told, refit=Refit(500, 400, "It was refitted."))
    both = Page(write_page(refitted, tmp_path / "s.html")).text["section"]
    assert "marks none: no rows are left" in both
    assert "has none: no rows are left" in both


def test_reports_without_them_have_no_such_sections(tmp_path):
    judged = summarise({"net": predictions()}, of_classes=False, classes=["wrong", "x", "right"], **QUICK)
    shown = Page(write_page(judged, tmp_path / "r.html"))
    assert not {"sets", "novelty"} & {one.get("id") for one in shown.attributes("section")}
    old = judged.to_dict()
    del old["novelty"]
    for method in old["methods"]:
        del method["sets"]
    assert Report.from_dict(old) == judged
