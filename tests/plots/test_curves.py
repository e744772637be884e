import numpy as np
import pytest
from matplotlib.figure import Figure

from selfcal import metrics, plots
from selfcal.errors import ConfigError, DataError

BINS = np.array([10, 20, 50])
SEEDS = np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.5]])


def new_ax():
    return Figure().subplots()


def test_a_single_line_has_no_band_and_is_what_was_given():
    ax = new_ax()
    plots.draw_curves(ax, {"net": (BINS, SEEDS[0])}, xlabel="x", ylabel="y")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.column_stack([BINS, SEEDS[0]]))
    assert not ax.collections


def test_seeds_become_their_mean_and_standard_deviation():
    ax = new_ax()
    plots.draw_curves(ax, {"net": (BINS, SEEDS)})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), SEEDS.mean(axis=0))
    edge = ax.collections[0].get_paths()[0].vertices
    top = SEEDS.mean(axis=0) + SEEDS.std(axis=0, ddof=1)
    assert {(x, round(y, 9)) for x, y in zip(BINS, top, strict=True)} <= {(x, round(y, 9)) for x, y in edge}


def test_a_given_spread_is_averaged_over_seeds():
    _, line, spread = plots.curve_and_band((BINS, SEEDS, 2 * SEEDS))
    np.testing.assert_allclose(spread, 2 * line)


def test_lines_differ_in_more_than_colour():
    ax = new_ax()
    plots.draw_curves(ax, {str(i): (BINS, SEEDS[0] + i) for i in range(5)})
    assert len({line._unscaled_dash_pattern for line in ax.lines}) == 5


@pytest.mark.parametrize(
    ("draw", "curve", "labels"),
    [
        (plots.ece_by_bins, (BINS, SEEDS), ("number of bins", "ECE")),
        (plots.training_curves, (BINS, SEEDS[0]), ("step", "loss")),
        (plots.gamma_statistics, (BINS, SEEDS[0], SEEDS[1]), ("epoch", "gamma, mean ± sd")),
    ],
)
def test_named_curves(draw, curve, labels):
    ax = new_ax()
    draw(ax, {"net": curve})
    assert (ax.get_xlabel(), ax.get_ylabel()) == labels
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["net"]
    assert (ax.get_xscale() == "log") == (draw is plots.ece_by_bins)


def test_a_sweep_over_bins_can_be_drawn_as_it_comes():
    generator = np.random.default_rng(0)
    sweep = metrics.calibration_error_by_bins(generator.integers(0, 2, 50), np.tile([0.7, 0.3], (50, 1)))
    ax = new_ax()
    plots.ece_by_bins(ax, {"net": (sweep.n_bins, sweep.error)})
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), sweep.error)


def test_history_curves_leave_out_what_the_run_did_not_have():
    pytest.importorskip("torch")
    from selfcal.training.history import Recorder

    recorder = Recorder()
    recorder.inner_loss.extend([3.0, 1.0, 2.0])
    assert list(plots.history_curves(recorder.history())) == ["training loss"]
    recorder.outer.append((2, 0.5))
    recorder.selection.append((3, 0.7))
    curves = plots.history_curves(recorder.history(), points=2)
    assert list(curves) == ["training loss", "outer loss", "log loss on selection rows"]
    np.testing.assert_array_equal(curves["training loss"], [[2, 3], [2.0, 2.0]])
    np.testing.assert_array_equal(curves["outer loss"], [[2], [0.5]])


def test_panels_share_one_legend_even_if_one_has_fewer_curves():
    one, two = {"a": (BINS, SEEDS[0])}, {"a": (BINS, SEEDS[0]), "b": (BINS, SEEDS[1])}
    figure = plots.curves_figure({"ECE": one, "MCE": two}, xlabel="bins", log_x=True)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]


@pytest.mark.parametrize(
    ("curves", "error", "message"),
    [
        ({}, ConfigError, "at least one"),
        ({"a": (BINS,)}, DataError, "'a' must be .x, y."),
        ({"a": (BINS, SEEDS.T)}, DataError, r"got shape \(3, 2\)"),
        ({"a": ([], [])}, DataError, "one value for each"),
        ({"a": (BINS, ["x", "y", "z"])}, DataError, "must hold numbers"),
    ],
)
def test_bad_curves(curves, error, message):
    with pytest.raises(error, match=message):
        plots.draw_curves(new_ax(), curves)
