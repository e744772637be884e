"""Intervals of the areas: the influence of a row is what a little more of it does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcal import metrics
from selfcal.errors import ConfigError
from selfcal.metrics import area_interval, area_intervals, bootstrap_interval

from .strategies import predictions, weights_for
from .truth import drawn

AREAS = ["aurc", "excess_aurc", "augrc"]
each_area = pytest.mark.parametrize("area", AREAS)


@each_area
@given(predictions(), st.data())
def test_influence_is_the_derivative_in_the_weight_of_a_row(area, data, draw):
    y, p = data
    metric, row, step = getattr(metrics, area), draw.draw(st.integers(0, len(y) - 1)), 1e-6
    curve = metrics.risk_coverage_curve(y, p)
    if_wrong, always = area_intervals._influence(curve, area)
    group = np.searchsorted(-curve.thresholds, -p[row].max())
    value = if_wrong[group] * (p[row].argmax() != y[row]) + always[group]
    more = np.ones(len(y))
    more[row] += step * len(y)
    if (
        curve.risk[-1] < 1 or area != "excess_aurc"
    ):  # at an error rate of 1 the best order has an infinite slope
        assert (metric(y, p, sample_weight=more) - metric(y, p)) / step == pytest.approx(
            value - metric(y, p), abs=1e-3
        )


@each_area
@given(predictions())
def test_the_value_is_the_metric_and_the_mean_of_the_influences(area, data):
    y, p = data
    w = weights_for(len(y))
    interval = area_interval(y, p, area=area, sample_weight=w)
    assert interval.value == getattr(metrics, area)(y, p, sample_weight=w)
    assert interval.low - 1e-9 <= interval.value <= interval.high + 1e-9
    curve = metrics.risk_coverage_curve(y, p, sample_weight=w)
    if_wrong, always = area_intervals._influence(curve, area)
    weight = np.diff(curve.coverage, prepend=0)
    assert weight @ (if_wrong * curve.rate + always) == pytest.approx(interval.value, abs=1e-9)


@each_area
@pytest.mark.parametrize("ties", [False, True])
def test_as_wide_as_the_bootstrap(area, ties):
    y, p, _ = drawn(1500)
    if ties:
        p = np.round(p * 16) + 1e-9
        p /= p.sum(axis=1, keepdims=True)
    w = np.random.default_rng(0).random(1500)
    quick = area_interval(y, p, area=area, sample_weight=w)
    slow = bootstrap_interval(getattr(metrics, area), y, p, n_resamples=400, sample_weight=w)
    assert quick.high - quick.low == pytest.approx(slow.high - slow.low, rel=0.15)


@each_area
def test_covers_the_area_of_infinite_data_with_the_stated_probability(area):
    truth = getattr(metrics, area)(*drawn(300_000, seed=999)[:2])
    held = [truth in area_interval(*drawn(500, seed=seed)[:2], area=area, level=0.9) for seed in range(300)]
    assert 0.85 <= np.mean(held) <= 0.95


def test_all_right_and_all_wrong_have_no_width():
    for area, worst in zip(AREAS, [1.0, 0.0, 0.5], strict=True):
        right = area_interval([0, 0, 0], [[0.9, 0.1], [0.8, 0.2], [0.8, 0.2]], area=area)
        wrong = area_interval([1, 1, 1], [[0.9, 0.1], [0.8, 0.2], [0.8, 0.2]], area=area)
        assert (right.low, right.high) == (0, 0)
        assert [wrong.low, wrong.value, wrong.high] == pytest.approx([worst] * 3, abs=1e-9)


def test_unknown_area():
    with pytest.raises(ConfigError, match="Did you mean 'aurc'"):
        area_interval([0], [[0.5, 0.5]], area="auc")
