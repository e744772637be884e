import numpy as np
import pytest
from scipy.stats import ttest_rel

from selfcal.errors import ConfigError, DataError
from selfcal.metrics import accuracy, brier_score, compare, expected_calibration_error, log_loss

from .truth import distance_to_uniform, drawn

METRICS = ["accuracy", "log_loss", "brier_score", expected_calibration_error, log_loss]


def name(metric):
    return metric if isinstance(metric, str) else f"function {metric.__name__}"


every_metric = pytest.mark.parametrize("metric", METRICS, ids=name)


def pair(n=300, seed=0):
    y, sharp, calibrated = drawn(n, sharper=2.0, seed=seed)
    return y, sharp, calibrated


def test_a_mean_over_rows_is_compared_by_the_paired_student_test():
    y, a, b = pair()
    rows = np.arange(len(y))
    expected = ttest_rel(-np.log(a[rows, y]), -np.log(b[rows, y]))
    found = compare(y, a, b)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.difference.low, found.difference.high) == pytest.approx(
        tuple(expected.confidence_interval())
    )
    assert (found.a, found.b) == pytest.approx((log_loss(y, a), log_loss(y, b)))


@every_metric
def test_swapping_the_models_turns_the_sign(metric):
    y, a, b = pair()
    one, two = (compare(y, *models, metric=metric, n_resamples=99) for models in ((a, b), (b, a)))
    assert two.difference.value == pytest.approx(-one.difference.value)
    assert (two.difference.low, two.difference.high) == pytest.approx(
        (-one.difference.high, -one.difference.low)
    )
    assert one.p_value == pytest.approx(two.p_value)
    assert (one.a, one.b) == (two.b, two.a)


@every_metric
def test_a_model_does_not_differ_from_itself(metric):
    y, a, _ = pair(50)
    found = compare(y, a, a, metric=metric, n_resamples=50)
    assert (found.difference.value, found.p_value) == (0.0, 1.0)
    assert "no significant difference" in str(found)


@pytest.mark.parametrize("metric", ["log_loss", "brier_score", expected_calibration_error], ids=name)
def test_the_calibrated_model_wins(metric):
    y, sharp, calibrated = pair(1000)
    found = compare(y, sharp, calibrated, metric=metric, n_resamples=200)
    assert found.difference.low > 0
    assert found.p_value < 0.02
    assert "the first is higher" in str(found)


def test_resampling_agrees_with_the_student_test():
    y, a, b = pair(500)
    student, resampled = compare(y, a, b, metric="brier_score"), compare(y, a, b, metric=brier_score)
    assert resampled.metric == student.metric
    assert resampled.difference.low == pytest.approx(student.difference.low, abs=0.01)
    assert resampled.difference.high == pytest.approx(student.difference.high, abs=0.01)


@pytest.mark.parametrize("metric", ["log_loss", log_loss], ids=["student", "resampled"])
def test_p_values_of_equal_models_are_uniform(metric):
    """Two models that err by the same noise in turn."""

    def p_value(seed):
        y, p, _ = drawn(60, k=3, seed=seed)
        noise = np.random.default_rng(seed).exponential(size=(2, *p.shape))
        a, b = (q / q.sum(axis=1, keepdims=True) for q in p * noise)
        return compare(y, a, b, metric=metric, n_resamples=99).p_value

    assert distance_to_uniform([p_value(seed) for seed in range(150)]) < 0.133


def test_weights_names_and_accuracy_of_one_row():
    y, a, b = pair(40)
    names = np.array(list("wxyz"))
    w = np.r_[np.ones(20), np.zeros(20)]
    half = compare(names[y], a, b, classes=names, sample_weight=w)
    assert half.difference.value == pytest.approx(compare(y[:20], a[:20], b[:20]).difference.value)
    assert half.p_value == pytest.approx(compare(y[:20], a[:20], b[:20]).p_value)
    assert compare(y[:1], a[:1], b[:1]).p_value == 1.0
    assert compare(y, a, b, metric="accuracy").a == accuracy(y, a)


def test_bad_input():
    y, a, b = pair(10)
    with pytest.raises(ConfigError, match="metric must be one of"):
        compare(y, a, b, metric="loss")
    with pytest.raises(DataError, match="probs_b has 9"):
        compare(y, a, b[:9])
    with pytest.raises(DataError, match="probs_b must hold probabilities"):
        compare(y, a, 2 * b)
    with pytest.raises(DataError, match="same classes"):
        compare(y, a, np.column_stack([b, np.zeros(10)]))
