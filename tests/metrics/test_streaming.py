import json
import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcal import metrics
from selfcal.errors import ConfigError, DataError
from selfcal.metrics import CalibrationAccumulator

from .strategies import predictions, weights_for
from .truth import drawn

BATCH = {
    "accuracy": metrics.accuracy,
    "log_loss": metrics.log_loss,
    "brier_score": metrics.brier_score,
    "ece": metrics.expected_calibration_error,
    "ece_l2": lambda y, p, **options: metrics.expected_calibration_error(y, p, norm="l2", **options),
    "max_error": metrics.maximum_calibration_error,
    "classwise_ece": metrics.classwise_calibration_error,
}


def agree(a, b):
    left, right = a.compute(), b.compute()
    assert left.n == right.n
    for name in BATCH:
        assert getattr(left, name) == pytest.approx(getattr(right, name), abs=1e-12)


@given(
    predictions(),
    st.lists(st.integers(0, 30), max_size=4),
    st.integers(1, 20),
    st.sampled_from(["right", "left"]),
    st.booleans(),
)
def test_any_chunking_gives_the_batch_values(data, cuts, n_bins, closed, weighted):
    y, p = data
    w = weights_for(len(y)) if weighted else np.ones(len(y))
    seen = CalibrationAccumulator(p.shape[1], n_bins=n_bins, closed=closed, classwise=True)
    for rows in np.split(np.arange(len(y)), sorted(cuts)):
        if len(rows) and w[rows].any():
            seen.update(y[rows], p[rows], w[rows] if weighted else None)
    found = seen.compute()
    binned = {"n_bins": n_bins, "closed": closed}
    for name, metric in BATCH.items():
        options = binned if name in ("ece", "ece_l2", "max_error", "classwise_ece") else {}
        expected = metric(y, p, sample_weight=w, **options)
        assert getattr(found, name) == pytest.approx(expected, abs=1e-12), name
    curve = metrics.reliability_curve(p.argmax(axis=1) == y, p.max(axis=1), sample_weight=w, **binned)
    for field in ("weight", "count", "effective_count", "confidence", "accuracy"):
        np.testing.assert_allclose(getattr(found.bins, field), getattr(curve, field), atol=1e-12)


def pieces(**options):
    y, p, _ = drawn(90)
    made = [CalibrationAccumulator(4, classwise=True, **options) for _ in range(3)]
    for i, one in enumerate(made):
        one.update(y[i::3], p[i::3])
    return made, CalibrationAccumulator(4, classwise=True, **options).update(y, p)


def test_merging_is_seeing_all_rows_in_any_order():
    (a, b, c), whole = pieces()
    agree(a + b + c, whole)
    agree(c + (b + a), whole)
    assert a.compute().n == 30  # `+` leaves its parts alone
    agree(a.merge(b).merge(c), whole)


def test_other_processes_send_pickles_or_json():
    (a, b, c), whole = pieces()
    sent = [
        pickle.loads(pickle.dumps(a)),
        CalibrationAccumulator.from_dict(json.loads(json.dumps(b.to_dict()))),
    ]
    agree(sent[0] + sent[1] + c, whole)
    assert sent[1].to_dict() == b.to_dict()


def test_class_names_and_what_is_not_kept():
    y, p, _ = drawn(40, k=3)
    names = np.array(["a", "b", "c"])
    seen = CalibrationAccumulator(3, classes=names, scores=False).update(names[y], p)
    found = CalibrationAccumulator.from_dict(json.loads(json.dumps(seen.to_dict()))).compute()
    assert found.ece == pytest.approx(metrics.expected_calibration_error(y, p), abs=1e-12)
    assert (found.log_loss, found.brier_score, found.classwise_ece) == (None, None, None)


@pytest.mark.parametrize(
    "options", [{"n_bins": 10}, {"closed": "left"}, {"classes": list("wxyz")}, {"scores": False}], ids=str
)
def test_other_settings_cannot_be_merged(options):
    with pytest.raises(ConfigError, match=f"the same {next(iter(options))} "):
        CalibrationAccumulator(4).merge(CalibrationAccumulator(4, **options))


def test_bad_rows_leave_no_trace():
    y, p, _ = drawn(40_000)
    seen = CalibrationAccumulator(4).update(y, p)
    before = seen.to_dict()
    bad = p.copy()
    bad[39_999] = 0.9
    with pytest.raises(DataError, match="row 39999 is"):
        seen.update(y, bad)
    with pytest.raises(DataError, match="probs must have 4 columns; got 2"):
        seen.update([0], [[0.5, 0.5]])
    assert seen.to_dict() == before


def test_no_rows_yet():
    with pytest.raises(DataError, match="Call update first"):
        CalibrationAccumulator(2).compute()


@pytest.mark.parametrize("options", [{"n_bins": 0}, {"closed": "both"}, {"scores": "no"}], ids=str)
def test_bad_settings(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        CalibrationAccumulator(3, **options)


def test_names_must_match_the_number_of_classes():
    with pytest.raises(DataError, match="3 columns"):
        CalibrationAccumulator(3, classes=["a", "b"])


def test_memory_does_not_grow():
    y, p, _ = drawn(5000)
    seen = CalibrationAccumulator(4, classwise=True).update(y, p)
    size = len(pickle.dumps(seen))
    tracemalloc.start()
    start = tracemalloc.get_traced_memory()[0]
    for _ in range(20):
        seen.update(y, p)
    grown = tracemalloc.get_traced_memory()[0] - start
    tracemalloc.stop()
    assert len(pickle.dumps(seen)) == size
    assert grown < 100_000
    assert seen.compute().n == 105_000


def detailed(k=4, **options):
    return CalibrationAccumulator(k, details=True, **options)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("of_class", [None, 1])
def test_intervals_are_those_of_all_rows(weighted, of_class):
    y, p, _ = drawn(3000)
    w = weights_for(len(y)) if weighted else None
    seen = detailed(of_class=of_class)
    for rows in np.array_split(np.arange(len(y)), 7):
        seen.update(y[rows], p[rows], None if w is None else w[rows])
    found = seen.compute(level=0.9, seed=3).intervals
    expected = {
        score: metrics.score_interval(y, p, score=score, level=0.9, sample_weight=w)
        for score in ("log_loss", "brier_score")
    } | {
        "ece": metrics.calibration_error_interval(y, p, of_class=of_class, level=0.9, seed=3, sample_weight=w)
    }
    if of_class is None:
        expected["accuracy"] = metrics.score_interval(y, p, score="accuracy", level=0.9, sample_weight=w)
    for name, interval in expected.items():
        assert found[name].value == pytest.approx(interval.value, rel=1e-12), name
        # the ends of the ECE are found by bisection, to 1e-5
        tolerance = {"abs": 2e-5} if name == "ece" else {"rel": 1e-9}
        assert (found[name].low, found[name].high) == pytest.approx(
            (interval.low, interval.high), **tolerance
        )


def test_noise_floor_test_and_curve_are_close_to_those_of_all_rows():
    y, p, _ = drawn(20_000)
    found = detailed().update(y, p).compute()
    floor = metrics.ece_noise_floor(p.max(axis=1))
    assert found.noise_floor.mean == pytest.approx(floor.mean, rel=0.05)
    assert found.noise_floor.high == pytest.approx(floor.high, rel=0.1)
    test = metrics.kuiper_test(y, p)
    assert found.kuiper.statistic == pytest.approx(test.statistic, rel=0.1)
    assert found.kuiper.statistic <= test.statistic + 1e-9
    curve = metrics.risk_coverage_curve(y, p)
    assert found.risk_coverage.aurc == pytest.approx(curve.aurc, rel=1e-3)
    for threshold, coverage, risk in zip(
        found.risk_coverage.thresholds, found.risk_coverage.coverage, found.risk_coverage.risk, strict=True
    ):
        accepted = p.max(axis=1) >= threshold
        assert coverage == pytest.approx(accepted.mean())
        assert risk == pytest.approx((p.argmax(axis=1) != y)[accepted].mean(), abs=1e-12)


def test_the_noise_floor_covers_what_calibrated_models_show():
    rng = np.random.default_rng(0)
    below = 0
    for _ in range(200):
        p = rng.dirichlet(np.ones(3), size=400)
        y = (p.cumsum(axis=1) > rng.random((400, 1))).argmax(axis=1)
        found = detailed(3).update(y, p).compute()
        below += found.ece <= found.noise_floor.high
    assert 0.88 <= below / 200 <= 0.99


def test_sums_of_the_same_batches_merged_in_order_are_the_same_bits():
    y, p, _ = drawn(5000)
    parts = np.array_split(np.arange(len(y)), 5)
    one = detailed()
    for rows in parts:
        one.merge(detailed().update(y[rows], p[rows]))
    states = [json.loads(json.dumps(detailed().update(y[rows], p[rows]).to_dict())) for rows in parts[::-1]]
    other = detailed()
    for state in states[::-1]:
        other.merge(CalibrationAccumulator.from_dict(state))
    assert one.to_dict() == other.to_dict()


def test_weights_of_any_scale_and_sums_stored_before_there_were_details():
    y, p, _ = drawn(300)
    w = weights_for(300)
    small, large = (detailed().update(y, p, w * scale).compute() for scale in (1e-200, 1e200))
    for name, interval in small.intervals.items():
        assert interval.high == pytest.approx(large.intervals[name].high)
    state = CalibrationAccumulator(4).update(y, p).to_dict()
    state["sums"] = {name: state["sums"][name] for name in ("top_label", "scores", "classwise")}
    del state["details"], state["of_class"]
    restored = CalibrationAccumulator.from_dict(state)
    again = restored + restored
    assert again.compute().n == 600
    assert again.compute().ece == pytest.approx(metrics.expected_calibration_error(y, p))
