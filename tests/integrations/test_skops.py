"""The calibration report in a card of skops."""

from skops.card import Card

from selfcal.integrations.skops import add_calibration
from selfcal.reporting import summarise
from tests.reporting.judged import HOSTILE, predictions


def test_the_sections_of_the_report_are_in_one_of_the_card(tmp_path):
    report = summarise({"mine": predictions(), "other": predictions(2.0)}, n_resamples=50)
    card = add_calibration(Card(None, template=None), report)
    assert report.methods[0].verdict.text in card.select("Calibration/Can the confidence be trusted?").content
    assert f"{report.methods[1].ece.value:.4f}" in card.select("Calibration/Scores").content
    assert {"Scores", "Limits"} <= {*card.select("Calibration").subsections}
    card.save(tmp_path / "README.md")
    assert "## Scores" in (tmp_path / "README.md").read_text()


def test_the_section_may_have_another_name():
    report = summarise({"mine": predictions(n=60)}, n_resamples=50)
    card = add_calibration(Card(None, template=None), report, section="Evaluation/Confidence")
    assert "| mine |" in card.select("Evaluation/Confidence/Scores").content


def test_names_are_inert():
    report = summarise({name: predictions(n=60) for name in HOSTILE.values()}, n_resamples=50)
    assert "<script>" not in add_calibration(Card(None, template=None), report).render()
