import numpy as np
import pytest

from selfcal.metrics import reliability_curve, wilson_interval
from selfcal.reporting._verdict import (
    CLASSES_LISTED,
    by_class,
    by_range,
    claim_tests,
    judge,
    percent_range,
    verdict,
)
from selfcal.reporting.predictions import Predictions
from tests.reporting.judged import predictions


def judgement(judged):
    bins = reliability_curve(judged.correct, judged.confidence)
    return judge(bins, claim_tests(judged, n_bins=15, n_resamples=400, seed=0), 0.95)


@pytest.mark.parametrize(("sharpness", "expected"), [(4, "over"), (1, "honest"), (0.2, "under")])
def test_judgement(sharpness, expected):
    assert judgement(predictions(sharpness, n=5000)) == expected


def test_too_sure_here_and_too_shy_there_is_mixed():
    confidence = np.repeat([0.6, 0.9], 2000)
    right = np.tile(np.arange(10) < 7.5, 400)  # right 80% of the time, whatever it says
    judged = Predictions(
        np.where(right, 0, 1), np.zeros(4000, int), confidence, np.tile([0.6, 0.4], (4000, 1))
    )
    assert judgement(judged) == "mixed"


def test_a_few_lucky_rows_do_not_make_a_boaster_mixed():
    """Pairs of rows that were right by luck make a third of all gaps, and prove nothing."""
    confidence = np.r_[np.full(600, 0.9), np.repeat([0.3, 0.36, 0.43, 0.5, 0.56, 0.63, 0.7], 2)]
    right = np.r_[np.arange(600) % 100 < 87, np.ones(14, dtype=bool)]
    bins = reliability_curve(right, confidence)
    over, under = bins.share @ np.maximum(-bins.gap, 0), bins.share @ np.maximum(bins.gap, 0)
    assert over < 3 * under
    assert judge(bins, {"consistency": 0.001}, 0.95) == "over"


def test_small_gaps_everywhere_still_have_a_direction():
    confidence = np.linspace(0.5, 1, 300)
    bins = reliability_curve(confidence - 0.01, confidence)
    assert judge(bins, {"consistency": 0.0}, 0.95) == "over"


def test_an_honest_model_is_rarely_called_anything_else():
    found = [judgement(predictions(n=300, seed=seed)) for seed in range(60)]
    assert found.count("honest") >= 52  # 57 expected; 0.95 binomial, fewer than 1 in 100 would fail


def test_verdict_speaks_of_90_percent_where_it_is_said_often_enough():
    judged = predictions(n=3000, alpha=0.3)
    found = verdict(judged, level=0.9)
    chosen = (judged.confidence >= 0.85) & (judged.confidence < 0.95)
    low, high = wilson_interval(judged.correct[chosen].mean(), chosen.sum(), level=0.9)
    assert (found.rows, found.low, found.high) == (chosen.sum(), low, high)
    assert (
        found.text == f"When its confidence is about 90%, it is right {percent_range(low, high)} of the time."
    )


@pytest.mark.parametrize(
    ("says", "begins"),
    [
        (0.99, "When its confidence is 95% or more, it is right"),
        (0.55, "Over all rows, with a mean confidence of 55%, it is right 44-56% of the time."),
    ],
)
def test_verdict_speaks_of_what_the_model_does_say(says, begins):
    judged = Predictions.from_probabilities(np.arange(300) % 2, np.tile([says, 1 - says], (300, 1)))
    assert verdict(judged).text.startswith(begins)


@pytest.mark.parametrize("n", [1, 5])
def test_few_rows_are_taken_together(n):
    assert verdict(predictions(n=n)).rows == n


def test_ranges_add_up_and_findings_are_beyond_noise():
    judged = predictions(3, n=4000)
    groups = by_range(judged, 0.95)
    assert sum(group.rows for group in groups) == 4000
    for group in groups:
        chosen = (judged.confidence > group.start) & (judged.confidence <= group.end)
        assert group.rows == chosen.sum()
        assert group.right == pytest.approx(judged.correct[chosen].mean())
        assert group.claimed == pytest.approx(judged.confidence[chosen].mean())
        assert (group.finding == "over") == (group.claimed > group.high)
    assert any(group.finding == "over" for group in groups)


def test_noise_is_not_shown_as_a_finding():
    """With 0.95 a table of an honest model has a finding in at most one of twenty data sets."""
    findings = sum(
        any(group.finding for group in by_class(predictions(n=1000, k=20, seed=seed), 0.95).groups)
        for seed in range(60)
    )
    assert findings <= 7


def test_of_many_classes_the_furthest_off_are_listed_first():
    judged = predictions(3, n=20_000, k=60, alpha=0.1)
    found = by_class(judged, 0.95)
    assert (found.predicted, len(found.groups)) == (60, CLASSES_LISTED)
    excess = [group.claimed - group.high for group in found.groups]
    assert excess == sorted(excess, reverse=True)
    one = found.groups[0]
    chosen = judged.chosen == one.code
    assert one.rows == chosen.sum()
    assert one.right == pytest.approx(judged.correct[chosen].mean())
    assert found.over >= sum(group.finding == "over" for group in found.groups)


@pytest.mark.parametrize(
    ("ends", "text"), [((0.5, 0.9), "50-90%"), ((0.991, 0.995), "99.1-99.5%"), ((1.0, 1.0), "100.0%")]
)
def test_percent_range(ends, text):
    assert percent_range(*ends) == text
