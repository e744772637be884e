"""The slider's numbers against counting rows one by one, and against the metrics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcal.metrics import confidence_risk_coverage_curve, wilson_interval
from selfcal.reporting._explorer import PAIRS_SHOWN, explore, thresholds
from selfcal.reporting.predictions import Predictions
from tests.reporting.judged import predictions

FEW, MANY = predictions(2, n=500, k=4), predictions(1, n=3000, k=30, alpha=0.2)


def explored(judged, cells=16, n_methods=1):
    return explore(judged, level=0.9, cells=cells, n_methods=n_methods)


@pytest.mark.parametrize(
    "judged",
    [FEW, MANY, predictions(n=1), predictions(n=2000, k=2)],
    ids=["four", "thirty", "one row", "two"],
)
def test_counts_are_those_of_the_rows_at_or_above_each_threshold(judged):
    found = explored(judged)
    for at, threshold in enumerate(found.thresholds):
        accepted = judged.confidence >= threshold
        wrong = accepted & ~judged.correct
        assert (found.accepted[at], found.errors[at]) == (accepted.sum(), wrong.sum())
        low, high = wilson_interval(wrong.sum() / max(1, accepted.sum()), accepted.sum(), level=0.9)
        assert (found.risk_low[at], found.risk_high[at]) == (low, high)


@pytest.mark.parametrize("judged", [FEW, MANY], ids=["few classes", "many classes"])
def test_coverage_and_risk_are_those_of_the_metrics(judged):
    found, curve = explored(judged), confidence_risk_coverage_curve(judged.correct, judged.confidence)
    for threshold, accepted, errors in zip(found.thresholds, found.accepted, found.errors, strict=True):
        at = np.searchsorted(-curve.thresholds, -threshold, side="right") - 1
        if accepted:
            assert accepted / len(judged.y) == pytest.approx(curve.coverage[at], abs=1e-15)
            assert errors / accepted == pytest.approx(curve.risk[at], abs=1e-15)
        else:
            assert at == -1
    assert (found.aurc, found.excess_aurc) == (curve.aurc, curve.excess_aurc)


def counts_at(found, at):
    return {(true, answered): sum(lost[at:]) for true, answered, lost in found.cells}


def test_every_cell_of_a_small_matrix():
    found = explored(FEW)
    for at, threshold in enumerate(found.thresholds):
        counts = counts_at(found, at)
        accepted = FEW.confidence >= threshold
        for true in range(4):
            for answered in range(4):
                expected = (accepted & (FEW.y == true) & (FEW.chosen == answered)).sum()
                assert counts.get((true, answered), 0) == expected


def test_of_many_classes_the_leading_mistakes_at_every_threshold():
    found = explored(MANY, cells=200)
    for at, threshold in enumerate(found.thresholds):
        wrong = (MANY.confidence >= threshold) & ~MANY.correct
        pairs, count = np.unique(np.stack([MANY.y[wrong], MANY.chosen[wrong]]), axis=1, return_counts=True)
        order = np.argsort(-count, kind="stable")[:PAIRS_SHOWN]
        expected = [
            (*pair, n) for pair, n in zip(pairs.T[order].tolist(), count[order].tolist(), strict=True)
        ]
        ranked = sorted(counts_at(found, at).items(), key=lambda item: -item[1])
        shown = [([*pair], n) for pair, n in ranked if n][:PAIRS_SHOWN]
        assert shown == [([a, b], n) for a, b, n in expected]


def test_no_mistakes_at_all():
    right = Predictions.from_probabilities(np.arange(40) % 20, np.eye(20)[np.arange(40) % 20])
    found = explored(right)
    assert (found.cells, found.errors[0]) == ((), 0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.sampled_from([40, 120, 200]))
def test_thresholds_rise_from_zero_and_are_not_more_than_asked_for(confidence, steps):
    grid = thresholds(np.array(confidence), steps)
    assert grid[0] == 0
    assert (np.diff(grid) > 0).all()
    assert grid[-1] <= 1
    assert len(grid) <= steps + 1


def test_the_grid_is_fine_where_the_confidences_are():
    confidence = 1 - np.logspace(-7, -3, 1000)
    coverage = [(confidence >= t).mean() for t in thresholds(confidence, 200)]
    assert np.abs(np.diff(coverage)).max() < 0.03


def test_many_methods_share_the_room_of_one_page():
    alone, crowded = explored(FEW), explored(FEW, cells=100, n_methods=50)
    assert len(crowded.thresholds) <= 51 < len(alone.thresholds)
    assert 0.9 in crowded.thresholds


@pytest.mark.parametrize(("sharpness", "threshold"), [(6, 0.9), (0.3, None)], ids=["sure", "shy"])
def test_the_slider_starts_where_there_is_something_to_see(sharpness, threshold):
    judged = predictions(sharpness, n=1000)
    found = explored(judged)
    start = found.start
    if threshold is None:
        assert found.accepted[start] >= 800 > found.accepted[start + 1]
    else:
        assert found.thresholds[start] == threshold
