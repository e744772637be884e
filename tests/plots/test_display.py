import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

from selfcal import plots
from selfcal.errors import ConfigError, DataError
from selfcal.metrics import confidence_risk_coverage_curve, reliability_curve, wilson_interval
from selfcal.plots import ReliabilityDisplay

RNG = np.random.default_rng(0)
PROBS = RNG.dirichlet(np.ones(3), 600)
Y = (PROBS.cumsum(axis=1) > RNG.random((600, 1))).argmax(axis=1)
NAMES = np.array(["cat", "dog", "owl"])
TOP = reliability_curve(PROBS.argmax(axis=1) == Y, PROBS.max(axis=1))


def test_the_histogram_is_underneath_and_shares_the_axis():
    display = ReliabilityDisplay.from_predictions(Y, PROBS)
    display.figure_.draw_without_rendering()
    upper, lower = display.ax_.get_position(), display.histogram_ax_.get_position()
    assert lower.y1 < upper.y0
    legend = display.histogram_ax_.get_legend().get_window_extent()
    assert legend.y1 < display.ax_.get_window_extent().y0
    assert (upper.x0, upper.x1) == pytest.approx((lower.x0, lower.x1))
    assert display.histogram_ax_.get_xlim() == display.ax_.get_xlim()
    np.testing.assert_allclose([bar.get_height() for bar in display.histogram_ax_.containers[0]], TOP.share)
    assert display.curves["top label"].accuracy.tolist() == TOP.accuracy.tolist()


def test_from_estimator_is_from_predictions():
    X = RNG.normal(size=(600, 2)) + Y[:, None]
    model = LogisticRegression().fit(X, NAMES[Y])
    display = ReliabilityDisplay.from_estimator(model, X, NAMES[Y], n_bins=10, strategy="quantile")
    other = ReliabilityDisplay.from_predictions(
        NAMES[Y], model.predict_proba(X), classes=model.classes_, n_bins=10, strategy="quantile"
    )
    assert list(display.curves) == ["LogisticRegression"]
    for name in ("edges", "weight", "accuracy", "confidence"):
        ours = getattr(display.curves["LogisticRegression"], name)
        np.testing.assert_array_equal(ours, getattr(other.curves["top label"], name))


def test_classes_are_laid_over_one_another_each_by_its_own_probability():
    display = ReliabilityDisplay.from_predictions(
        NAMES[Y], PROBS, classes=NAMES, of_classes=["owl", "cat"], n_bins=5
    )
    assert list(display.curves) == ["owl", "cat"]
    expected = reliability_curve(Y == 2, PROBS[:, 2], n_bins=5)
    assert display.curves["owl"].accuracy.tolist() == expected.accuracy.tolist()
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["owl", "cat"]
    assert len({bars.lines[0].get_marker() for bars in display.ax_.containers}) == 2


def test_models_are_laid_over_one_another_with_their_intervals():
    ax = Figure().subplots()
    plots.reliability_lines(ax, {"a": TOP, "b": TOP}, level=0.9)
    filled = TOP.count > 0
    low, high = wilson_interval(TOP.accuracy[filled], TOP.count[filled], level=0.9)
    whiskers = np.array([line[:, 1] for line in ax.containers[0].lines[2][0].get_segments()])
    np.testing.assert_allclose(whiskers, np.column_stack([low, high]))


def test_weights_count():
    weight = RNG.random(600)
    display = ReliabilityDisplay.from_predictions(Y, PROBS, sample_weight=weight)
    assert display.curves["top label"].weight.sum() == pytest.approx(weight.sum())


@pytest.mark.parametrize("place", ["subplot", "free axes"])
def test_the_given_axes_are_drawn_on_and_share_their_room(place):
    figure = Figure()
    ax = figure.subplots(1, 2)[1] if place == "subplot" else figure.add_axes((0.1, 0.1, 0.8, 0.8))
    before = len(figure.axes)
    display = ReliabilityDisplay.from_predictions(Y, PROBS, ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is figure
    assert len(figure.axes) == before + 1
    figure.draw_without_rendering()
    assert display.histogram_ax_.get_position().y1 < ax.get_position().y0


def test_a_display_can_be_drawn_again():
    display = ReliabilityDisplay.from_predictions(Y, PROBS)
    first = display.ax_
    assert display.plot(Figure().subplots()).ax_ is not first


CORRECT, CONFIDENCE = PROBS.argmax(axis=1) == Y, PROBS.max(axis=1)
CURVE = confidence_risk_coverage_curve(CORRECT, CONFIDENCE)


def test_risk_against_coverage_marks_the_threshold():
    ax = Figure().subplots()
    plots.risk_coverage(ax, {"net": CURVE}, thresholds={"net": 0.7})
    line, mark = ax.lines
    np.testing.assert_array_equal(line.get_xydata(), np.column_stack([CURVE.coverage, CURVE.risk]))
    accepted = CONFIDENCE >= 0.7
    expected = [[accepted.mean(), (~CORRECT[accepted]).mean()]]
    np.testing.assert_allclose(mark.get_xydata(), expected)
    assert mark.get_label() == "net: threshold 0.7"
    assert len(ax.collections) == 1  # the band of a single curve


def test_a_threshold_that_accepts_nothing_is_not_marked():
    ax = Figure().subplots()
    plots.risk_coverage(ax, {"a": CURVE, "b": CURVE}, thresholds={"a": 1.5, "b": 0.0})
    assert [line.get_label() for line in ax.lines] == ["a", "b", "b: threshold 0"]
    assert not ax.collections


def test_a_million_rows_are_drawn_as_a_few_thousand_points():
    confidence = np.linspace(0.5, 1, 100_000)
    ax = Figure().subplots()
    plots.risk_coverage(ax, {"net": confidence_risk_coverage_curve(confidence < 0.6, confidence)})
    assert len(ax.lines[0].get_xdata()) <= 2000
    assert ax.lines[0].get_xdata()[-1] == 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ReliabilityDisplay({}), ConfigError, "at least one"),
        (lambda: plots.risk_coverage(Figure().subplots(), {}), ConfigError, "at least one"),
        (lambda: ReliabilityDisplay.from_predictions(Y, PROBS, of_classes=[7]), DataError, "of_class"),
        (lambda: ReliabilityDisplay.from_predictions(Y, 9 * PROBS), DataError, "logits"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
