"""Risk-coverage curves and their areas, against the definitions written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from selfcal.errors import ConfigError, DataError
from selfcal.metrics import (
    augrc,
    aurc,
    bootstrap_interval,
    confidence_risk_coverage_curve,
    coverage_at_risk,
    excess_aurc,
    risk_at_coverage,
    risk_coverage_curve,
    wilson_interval,
)

from .strategies import predictions, weights_for
from .truth import drawn

AREAS = [aurc, excess_aurc, augrc]
METRICS = [*AREAS, coverage_at_risk, risk_at_coverage]
each_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)


def binary(correct, confidence):
    """Labels and probabilities of two classes with this confidence in the first, right or not."""
    c = np.asarray(confidence, dtype=float)
    return 1 - np.asarray(correct, dtype=int), np.column_stack([c, 1 - c])


def mean_risks(y, p, *, copies, orders=1, seed=0):
    """Mean of risk and of coverage times risk over the rows, each repeated, with ties in random order."""
    rng = np.random.default_rng(seed)
    c, wrong = np.repeat(p.max(axis=1), copies), np.repeat(p.argmax(axis=1) != y, copies)
    n, sums = len(c), np.zeros(2)
    for _ in range(orders):
        errors = np.cumsum(wrong[np.lexsort([rng.random(n), -c])])
        sums += [np.mean(errors / np.arange(1, n + 1)), np.mean(errors / n)]
    return sums / orders


@given(predictions())
def test_every_point_is_what_its_threshold_accepts(data):
    y, p = data
    w = weights_for(len(y))
    curve = risk_coverage_curve(y, p, sample_weight=w)
    confidence, wrong = p.max(axis=1), p.argmax(axis=1) != y
    np.testing.assert_array_equal(curve.thresholds, np.unique(confidence[w > 0])[::-1])
    for threshold, coverage, risk in zip(curve.thresholds, curve.coverage, curve.risk, strict=True):
        accepted = confidence >= threshold
        assert coverage == pytest.approx(w[accepted].sum() / w.sum())
        assert risk == pytest.approx(np.average(wrong[accepted], weights=w[accepted]))


@given(predictions())
def test_the_curve_is_a_curve(data):
    y, p = data
    curve = risk_coverage_curve(y, p)
    assert np.all(np.diff(curve.thresholds) < 0)
    assert np.all(np.diff(curve.coverage) > 0)
    assert np.all((curve.risk >= 0) & (curve.risk <= 1))
    assert curve.coverage[-1] == 1
    assert curve.risk[-1] == pytest.approx(np.mean(p.argmax(axis=1) != y))
    assert np.all(np.diff(curve.coverage * curve.risk) > -1e-12)
    assert curve.effective_count[-1] == len(y)


@given(predictions(max_rows=8))
def test_areas_are_means_over_ever_finer_rows_in_random_order_of_ties(data):
    """The definition: the limit of the mean over rows when each row becomes many; 1/2000 of a row is left here."""
    y, p = data
    by_rows = mean_risks(y, p, copies=2000)
    assert aurc(y, p) == pytest.approx(by_rows[0], abs=0.02)
    assert augrc(y, p) == pytest.approx(by_rows[1], abs=0.01)


def test_with_many_rows_and_many_ties_it_is_the_mean_over_rows():
    y, p, _ = drawn(20_000)
    p = np.round(p * 8) / 8
    p[:, 0] += 1 - p.sum(axis=1)
    p = np.abs(p) / np.abs(p).sum(axis=1, keepdims=True)
    assert [aurc(y, p), augrc(y, p)] == pytest.approx(mean_risks(y, p, copies=1, orders=20), abs=2e-3)


@given(predictions())
def test_areas_by_quadrature_of_the_risk_at_every_coverage(data):
    """Within a group of ties errors come at an even rate, so that the mean over their orders is a straight line."""
    y, p = data
    curve = risk_coverage_curve(y, p)
    u = (np.arange(200_000) + 0.5) / 200_000
    errors = np.interp(u, np.append(0, curve.coverage), np.append(0, curve.coverage * curve.risk))
    assert curve.aurc == pytest.approx(np.mean(errors / u), abs=1e-6)
    assert curve.augrc == pytest.approx(np.mean(errors), abs=1e-6)


@given(predictions())
def test_generalized_area_is_auroc_and_error_rate(data):
    y, p = data
    wrong = p.argmax(axis=1) != y
    e = wrong.mean()
    lost = 1 - roc_auc_score(~wrong, p.max(axis=1)) if 0 < e < 1 else 0.0
    assert augrc(y, p) == pytest.approx(e**2 / 2 + e * (1 - e) * lost)


@given(st.integers(0, 20), st.integers(0, 20))
def test_no_order_is_better_than_right_before_wrong(n_right, n_wrong):
    n = n_right + n_wrong + 1
    correct = np.append(np.ones(n_right + 1), np.zeros(n_wrong))
    best, worst = np.linspace(0.9, 0.6, n), np.linspace(0.6, 0.9, n)
    assert excess_aurc(*binary(correct, best)) == pytest.approx(0, abs=1e-12)
    assert excess_aurc(*binary(correct, worst)) >= excess_aurc(*binary(correct, np.full(n, 0.7)))
    e = n_wrong / n
    assert aurc(*binary(correct, best)) == pytest.approx(e + (1 - e) * np.log(1 - e))


@pytest.mark.parametrize(
    "confidence", [[0.9], [0.9, 0.9, 0.9], [0.9, 0.8, 0.7, 0.7]], ids=["one", "tied", "some"]
)
@pytest.mark.parametrize(
    ("right", "values"), [(1, [0, 0, 0, 1, 0]), (0, [1, 0, 0.5, 0, 1])], ids=["all right", "all wrong"]
)
def test_all_right_and_all_wrong_and_one_row(confidence, right, values):
    data = binary(np.full(len(confidence), right), confidence)
    assert [metric(*data) for metric in METRICS] == pytest.approx(values, abs=1e-12)


def test_a_confidence_that_tells_nothing_has_the_error_rate_as_area():
    data = binary([1, 1, 0, 1], [0.8] * 4)
    assert aurc(*data) == pytest.approx(0.25)
    assert augrc(*data) == pytest.approx(0.125)


def test_by_hand():
    """Right at .9, wrong at .8: no error up to half, then (u - 1/2) / u."""
    data = binary([1, 0], [0.9, 0.8])
    assert aurc(*data) == pytest.approx(0.5 - 0.5 * np.log(2))
    assert augrc(*data) == pytest.approx(0.125)
    assert excess_aurc(*binary([0, 1], [0.9, 0.8])) == pytest.approx(np.log(2))


@given(predictions())
def test_weights_are_repeated_rows_in_the_curve(data):
    y, p = data
    w = weights_for(len(y))
    times = w.astype(int)
    weighted = risk_coverage_curve(y, p, sample_weight=w)
    repeated = risk_coverage_curve(np.repeat(y, times), np.repeat(p, times, axis=0))
    for name in ("thresholds", "coverage", "risk"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), rtol=1e-12)
    assert np.all(weighted.effective_count <= repeated.effective_count + 1e-9)


@given(predictions())
def test_confidences_alone_give_the_same_curve(data):
    y, p = data
    w = weights_for(len(y))
    expected = risk_coverage_curve(y, p, sample_weight=w)
    found = confidence_risk_coverage_curve(p.argmax(axis=1) == y, p.max(axis=1), sample_weight=w)
    for name in ("thresholds", "coverage", "risk", "effective_count"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_correctness_may_be_a_probability():
    _, p, posterior = drawn(50_000, sharper=2.0)
    right = posterior[np.arange(len(p)), p.argmax(axis=1)]
    expected = confidence_risk_coverage_curve(right, p.max(axis=1))
    y, p, _ = drawn(50_000, sharper=2.0)
    assert aurc(y, p) == pytest.approx(expected.aurc, abs=3e-3)


@given(predictions(), st.floats(0, 1))
def test_coverage_at_risk_is_the_largest_that_is_safe_enough(data, max_risk):
    y, p = data
    curve = risk_coverage_curve(y, p)
    safe = curve.coverage[curve.risk <= max_risk]
    assert coverage_at_risk(y, p, max_risk=max_risk) == (safe.max() if len(safe) else 0)


@given(predictions(), st.floats(0, 1, exclude_min=True))
def test_risk_at_coverage_is_that_of_the_strictest_threshold(data, min_coverage):
    y, p = data
    curve = risk_coverage_curve(y, p)
    enough = np.flatnonzero(curve.coverage >= min_coverage - 1e-12)[0]
    assert risk_at_coverage(y, p, min_coverage=min_coverage) == curve.risk[enough]


def test_targets_are_met_up_to_rounding():
    data = binary([1, 1, 1, 0, 0, 0, 0, 0, 0, 0], np.linspace(0.95, 0.55, 10))
    assert risk_at_coverage(*data, min_coverage=0.1 + 0.2) == 0
    assert coverage_at_risk(*binary([1] * 7 + [0] * 3, [0.9] * 10), max_risk=1 - 0.7) == 1


@each_metric
def test_bootstrap_interval_holds_the_value_and_takes_weights(metric):
    y, p, _ = drawn(400)
    interval = bootstrap_interval(metric, y, p, n_resamples=100, sample_weight=weights_for(400))
    assert interval.value == metric(y, p, sample_weight=weights_for(400))
    assert interval.low < interval.value < interval.high


@pytest.mark.parametrize("metric", [aurc, risk_at_coverage], ids=lambda metric: metric.__name__)
def test_bootstrap_interval_covers_the_value_of_endless_data(metric):
    truth = metric(*drawn(400_000, seed=999)[:2])
    held = [
        truth in bootstrap_interval(metric, *drawn(200, seed=seed)[:2], level=0.9, n_resamples=100)
        for seed in range(60)
    ]
    assert 0.8 <= np.mean(held) <= 0.99


def test_interval_of_the_risk_at_each_threshold():
    curve = risk_coverage_curve(*drawn(500)[:2])
    low, high = curve.risk_interval(0.9)
    expected = wilson_interval(curve.risk, np.arange(1, 501), level=0.9)
    np.testing.assert_allclose([low, high], expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: coverage_at_risk([0], [[0.5, 0.5]], max_risk=-0.1), "max_risk must be a number in"),
        (lambda: risk_at_coverage([0], [[0.5, 0.5]], min_coverage=0), "min_coverage must be a number in"),
        (lambda: risk_at_coverage([0], [[0.5, 0.5]], min_coverage=1.1), "min_coverage must be a number in"),
    ],
)
def test_bad_targets(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


@pytest.mark.parametrize(
    ("correct", "confidence", "message"),
    [
        ([1, 0], [0.5], "correct has 2, confidence has 1"),
        ([1, 2], [0.5, 0.5], "correct must lie in"),
        ([1, 0], [0.5, np.nan], "confidence must lie in"),
        ([], [], "at least one value"),
    ],
)
def test_bad_confidences(correct, confidence, message):
    with pytest.raises(DataError, match=message):
        confidence_risk_coverage_curve(correct, confidence)
