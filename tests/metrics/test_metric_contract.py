"""What every metric of (y_true, probs) keeps; a new one is under test once it is in `metrics.__all__`."""

import dataclasses
import inspect

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from selfcal import metrics
from selfcal._support import binning
from selfcal.errors import DataError

from .strategies import predictions, weights_for


def takes_labels_and_probabilities(function):
    return inspect.isfunction(function) and [*inspect.signature(function).parameters][:2] == [
        "y_true",
        "probs",
    ]


EVERY_FUNCTION = {name: getattr(metrics, name) for name in metrics.__all__}
FUNCTIONS = {name: call for name, call in EVERY_FUNCTION.items() if takes_labels_and_probabilities(call)}
"""All that look at labels and probabilities: metrics, and also tests, intervals and reports."""


def result_of(function):
    """The name of the annotated result, with or without postponed evaluation of annotations."""
    annotation = inspect.signature(function).return_annotation
    return getattr(annotation, "__name__", annotation)


RESULTS_OF_A_METRIC = {"float", "Decomposition", "BinSweep", "RiskCoverageCurve"}
UNDEFINED_FOR_ONE_CLASS = {"roc_auc"}  # its properties are tested in test_discrimination.py
METRICS = {
    name: function
    for name, function in FUNCTIONS.items()
    if result_of(function) in RESULTS_OF_A_METRIC and name not in UNDEFINED_FOR_ONE_CLASS
}

every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())


def every_metric_but(**reasons):
    """All metrics except those without the property, for the reasons given."""
    assert reasons.keys() <= METRICS.keys()
    names = [name for name in METRICS if name not in reasons]
    return pytest.mark.parametrize("metric", [METRICS[name] for name in names], ids=names)


every_metric = every_metric_but()


def property_of(*strategies):
    """A property on few examples each, as there are many metrics."""
    return lambda test: settings(max_examples=30)(given(*strategies)(test))


def numbers(value):
    """All numbers of a result, in one list."""
    if dataclasses.is_dataclass(value):
        return [x for field in dataclasses.astuple(value) for x in numbers(field)]
    return np.ravel(value).tolist()


def score(value):
    """The one number by which two results of a metric compare."""
    if isinstance(value, metrics.Decomposition):
        return value.total
    if isinstance(value, metrics.RiskCoverageCurve):
        return value.aurc
    return float(np.max(value.error)) if isinstance(value, metrics.BinSweep) else value


def same(a, b):
    return numbers(a) == pytest.approx(numbers(b), rel=1e-12, abs=1e-12)


def test_public_names_are_sorted_and_include_the_metrics():
    assert sorted(metrics.__all__) == metrics.__all__
    assert {"accuracy", "log_loss", "brier_score", "expected_calibration_error", "sece"} <= set(METRICS)


@every_function
def test_signature(function):
    parameters = inspect.signature(function).parameters
    assert {"classes", "sample_weight"} <= set(parameters)
    assert all(p.kind is p.KEYWORD_ONLY for p in [*parameters.values()][2:])
    assert {"Args:", "Returns:", ">>>"} <= set(function.__doc__.split())


NOT_BOUNDED_BY_ONE = {"log_loss", "brier_score", "log_loss_decomposition", "brier_decomposition"}


@every_metric
@property_of(predictions())
def test_returns_finite_numbers_in_range(metric, data):
    value = metric(*data)
    assert type(value).__name__ == result_of(metric)
    assert np.all(np.isfinite(numbers(value)))
    assert score(value) >= 0
    assert score(value) <= 1 + 1e-12 or metric.__name__ in NOT_BOUNDED_BY_ONE


@every_metric
@property_of(predictions(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(metric, data, random):
    y, p = data
    w = weights_for(len(y))
    order = random.sample(range(len(y)), len(y))
    assert same(metric(y[order], p[order], sample_weight=w[order]), metric(y, p, sample_weight=w))


@every_metric_but(binary_calibration_error="it depends on the column")
@property_of(predictions(), st.randoms(use_true_random=False))
def test_names_and_order_of_classes_do_not_matter(metric, data, random):
    y, p = data
    top_two = np.sort(p, axis=1)[:, -2:]
    assume(np.all(top_two[:, 0] < top_two[:, 1]))  # with ties the first of the columns wins
    k = p.shape[1]
    order = np.array(random.sample(range(k), k))
    names = np.array(["cat", "dog", "eel", "fox", "gnu"])[:k]
    value = metric(y, p)
    assert same(metric(np.argsort(order)[y], p[:, order]), value)
    assert same(metric(names[y], p[:, order], classes=names[order]), value)
    assert same(metric(y.astype(float), p, classes=np.arange(k)), value)


@every_metric_but(
    kde_calibration_error="more rows make its kernel narrower",
    risk_coverage_curve="its effective counts tell a heavy row from many; the rest is tested beside it",
)
@property_of(predictions())
def test_weights_act_as_repeated_rows(metric, data):
    y, p = data
    w = weights_for(len(y))
    times = w.astype(int)
    assert same(metric(y, p, sample_weight=w), metric(np.repeat(y, times), np.repeat(p, times, axis=0)))
    assert same(metric(y, p, sample_weight=2 * w), metric(y, p, sample_weight=w))
    assert same(metric(y, p, sample_weight=np.ones(len(y))), metric(y, p))


@every_function
@pytest.mark.parametrize("scale", [1e-320, 1e-300, 1e150, 1e300, 1e307])
def test_the_scale_of_the_weights_does_not_matter(function, scale):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(2), size=40)
    y, w = (rng.random(40) < p[:, 1]).astype(int), rng.integers(1, 9, size=40).astype(float)
    extreme = np.ldexp(w, int(np.frexp(scale)[1]))  # exact, even where the last digits are lost to others
    found, expected = (function(y, p, sample_weight=each) for each in (extreme, w))
    if function is metrics.calibration_report:
        found, expected = found.ece, expected.ece
    assert same(found, expected)


@every_metric
@property_of(predictions(), st.integers(1, 5))
def test_blocks_do_not_matter(metric, data, rows):
    y, p = data
    whole = metric(y, p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binning, "BLOCK_ELEMENTS", rows * p.shape[1])
        assert same(metric(y, p), whole)


Y = np.array([0, 1, 2, 1])
ALWAYS_WRONG = np.eye(3)[(Y + 1) % 3]
BEST = {"accuracy": 1.0, "sharpness": 1.0, "coverage_at_risk": 1.0}
WORST = {
    "underconfidence": 0.1 * np.eye(3)[Y] + 0.3,  # always right, with little confidence
    "sharpness": np.full((4, 3), 1 / 3),
    "excess_aurc": np.vstack(
        [ALWAYS_WRONG[:2], 0.1 * np.eye(3)[Y[2:]] + 0.3]
    ),  # most confident where it is wrong
}


@every_metric
def test_perfect_beats_worst(metric):
    name = metric.__name__
    best, worst = score(metric(Y, np.eye(3)[Y])), score(metric(Y, WORST.get(name, ALWAYS_WRONG)))
    assert best == BEST.get(name, 0.0)
    assert worst < best if name in BEST else worst > best


@every_metric
def test_one_class_present(metric):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=50)
    value = metric(np.ones(50, dtype=int), p)
    assert np.all(np.isfinite(numbers(value)))
    assert same(metric(np.full(50, "b"), p, classes=["a", "b", "c"]), value)


@every_metric
def test_a_thousand_classes(metric):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(1000, 0.01), size=200)
    y = p.argmax(axis=1)
    value = metric(y, p)
    assert np.all(np.isfinite(numbers(value)))
    assert same(metric(y[::-1], p[::-1]), value)


@every_metric
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_computes_in_float64_whatever_comes_in(metric, dtype):
    rng = np.random.default_rng(0)
    p = rng.multinomial(64, rng.dirichlet(np.ones(4)), size=500) / 64  # the same numbers in every precision
    y = rng.integers(0, 4, 500)
    assert same(metric(y.astype(np.int8), p.astype(dtype)), metric(y, p.astype(np.longdouble)))


@every_metric
def test_the_rounding_of_float16_rows_is_no_error(metric):
    p = np.random.default_rng(0).dirichlet(np.ones(10), size=2000)
    y = p.argmax(axis=1)
    assert score(metric(y, p.astype(np.float16))) == pytest.approx(score(metric(y, p)), rel=0.01, abs=0.001)


@every_metric
def test_reads_lists_read_only_and_strided_arrays_and_leaves_them_alone(metric):
    rng = np.random.default_rng(0)
    y, p = rng.integers(0, 3, 40), rng.dirichlet(np.ones(3), size=40)
    p[0] = [1 + 1e-7, -1e-7, 0]
    value, before = metric(y, p), p.copy()
    p.flags.writeable = y.flags.writeable = False
    assert same(metric(y, p), value)
    assert same(metric(y.tolist(), p.tolist()), value)
    assert same(metric(y, np.asfortranarray(p)), value)
    assert same(metric(y[::-1], p[::-1]), value)
    np.testing.assert_array_equal(p, before)


@every_metric
def test_one_row_and_integer_probabilities(metric):
    assert np.all(np.isfinite(numbers(metric([1], [[0.25, 0.75]]))))
    assert same(metric([1, 0], [[0, 1], [0, 1]]), metric([1, 0], [[0.0, 1.0], [0.0, 1.0]]))


GOOD = [[0.5, 0.5], [0.2, 0.8]]


@every_function
@pytest.mark.parametrize(
    ("y", "probs", "options", "message"),
    [
        ([0, 1], [[0.5, 0.5], [0.2, 0.9]], {}, r"sum to one in each row; row 1 is \[0.2 0.9\]"),
        ([0, 1], [[0.5, 0.5], [np.nan, 1.0]], {}, "row 1 is .*nan"),
        ([0, 1], [[0.5, 0.5], [np.inf, -np.inf]], {}, "row 1 is .*inf"),
        ([0, 1], [[1.5, -0.5], [0.5, 0.5]], {}, "row 0 is"),
        ([0, 1], [[2.0, -3.0], [0.3, 4.0]], {}, "If these are logits, apply scipy.special.softmax"),
        ([0, 1], [["a", "b"], ["c", "d"]], {}, "probs must hold numbers"),
        ([0, 1], [[0.5, 0.5], [1.0]], {}, "probs must hold numbers in rows of equal length"),
        ([0, 1], [0.5, 0.8], {}, r"shape \(rows, classes\)"),
        ([0, 1], [[1.0], [1.0]], {}, "at least two classes"),
        ([], np.empty((0, 2)), {}, "no rows"),
        ([0], GOOD, {}, "y_true has 1, probs has 2"),
        ([0, 2], GOOD, {}, "row 1 is 2 "),
        ([0, -1], GOOD, {}, "row 1 is -1 "),
        ([0, 0.5], GOOD, {}, "row 1 is 0.5 "),
        ([0, np.nan], GOOD, {}, "row 1 is nan "),
        (["a", "b"], GOOD, {}, "Pass classes="),
        ([[0], [1]], GOOD, {}, "y_true.ravel"),
        (["a", "c"], GOOD, {"classes": ["a", "b"]}, "row 1 is 'c' "),
        (["a", "b"], GOOD, {"classes": ["a", "b", "c"]}, "got 3 names"),
        (["a", "a"], GOOD, {"classes": ["a", "a"]}, "name each column once"),
        ([0, 1], GOOD, {"sample_weight": [1, -1]}, "not negative; row 1"),
        ([0, 1], GOOD, {"sample_weight": [1, np.nan]}, "finite"),
        ([0, 1], GOOD, {"sample_weight": [0, 0]}, "zero in every row"),
        ([0, 1], GOOD, {"sample_weight": [1, 1, 1]}, "one weight for each of the 2 rows"),
        ([0, 1], GOOD, {"sample_weight": ["x", "y"]}, "sample_weight must hold numbers"),
    ],
)
def test_bad_input_gives_one_clear_error(function, y, probs, options, message):
    with pytest.raises(DataError, match=message):
        function(y, probs, **options)


@every_function
def test_the_first_bad_row_is_named_by_its_place_in_the_whole_table(function):
    probs = np.full((300_000, 2), 0.5, dtype=np.float32)
    probs[250_000] = 0.9
    with pytest.raises(DataError, match="row 250000 is"):
        function(np.zeros(300_000, dtype=int), probs)
