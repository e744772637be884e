import re
from dataclasses import replace

import pytest

from selfcal import report
from selfcal.reporting import summarise
from selfcal.reporting.card import model_card
from selfcal.reporting.content import Refit
from tests.reporting.judged import HOSTILE, predictions


def card(methods, **options):
    judged = summarise(methods, title="A title", n_resamples=100, **options)
    return model_card(judged), judged


def test_the_card_has_the_verdict_the_scores_and_the_thresholds():
    text, judged = card({"net": predictions(4)}, settings={"seed": 7})
    method = judged.methods[0]
    assert method.verdict.text in text
    assert "over-confident" in text
    assert f"{method.ece.value:.4f} [{method.ece.low:.4f}, {method.ece.high:.4f}]" in text
    assert "- seed: 7" in text
    every = method.reject
    assert f"| net | 100.0% | 0 | {every.errors[0] / 400:.2%} [" in text


def test_a_refit_is_mentioned_before_the_verdict():
    text, judged = card({"net": predictions()})
    again = model_card(replace(judged, refit=Refit(500, 400, "The model was refitted.")))
    assert again.replace("The model was refitted.\n\n", "") == text
    assert again.index("refitted") < again.index("Can the confidence be trusted?")


def test_thresholds_answer_at_least_as_many_rows_as_asked_for():
    text, _ = card({"net": predictions(2, n=1000)})
    answered = [float(share) for share in re.findall(r"^\| net \| ([\d.]+)% \|", text, re.MULTILINE)]
    assert answered[0] == 100
    assert all(share >= wanted for share, wanted in zip(answered, (100, 95, 90, 80, 50), strict=False))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_make_no_markup(name, tmp_path):
    report(
        {name: predictions()}, tmp_path / "report.html", title=name, n_resamples=100, settings={name: name}
    )
    text = (tmp_path / "model_card.md").read_text()
    tables = [line for line in text.splitlines() if line.startswith("|")]
    cells = [len(re.findall(r"(?<!\\)\|", line)) for line in tables]
    assert set(cells) == {7, 5}
    assert "<" not in text
    assert not re.search(r"(?<!\\)\]\(", text)
