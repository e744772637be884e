import subprocess
import sys

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from selfcal import plots
from selfcal.errors import ConfigError, DataError, OutputError
from selfcal.metrics import reliability_curve, wilson_interval
from selfcal.plots._canvas import CLASS_COLOURS, CLASS_MARKERS, RED

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.arange(60) % 3
CONFIDENCE = 0.5 + RNG.random(500) / 2
CORRECT = RNG.random(500) < CONFIDENCE - 0.1
ITERATIONS = np.arange(8) * 10
WEIGHTS = RNG.random((8, 60))
WRONG = np.arange(60) % 4 == 0


def confidence_of(points):
    return 1 / (1 + np.exp(-np.abs(points[:, 0])))


def new_ax():
    return Figure().subplots()


def legend_labels(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_importing_plots_loads_no_matplotlib_and_drawing_loads_no_pyplot():
    code = """if True:
        import sys
        from selfcal import plots
        assert "matplotlib" not in sys.modules
        plots.reliability_figure({"a": ([1, 0], [0.9, 0.6])}).savefig(sys.stdout.buffer, format="svg")
        assert "matplotlib.pyplot" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_plane_bounds():
    assert plots.plane_bounds([[0, 10], [2, 20]], margin=0.5) == (-1, 3, 5, 25)
    assert plots.plane_bounds([[1, 1]], margin=0.5) == (0.5, 1.5, 0.5, 1.5)


def test_confidence_grid_evaluates_at_the_right_places():
    grid = plots.confidence_grid(
        lambda p: 0.5 + p[:, 0] / 4 + p[:, 1] / 100, (0.0, 1.0, 0.0, 10.0), resolution=5
    )
    assert grid.confidence.shape == (5, 5)
    np.testing.assert_allclose(grid.confidence, 0.5 + grid.x[None, :] / 4 + grid.y[:, None] / 100)


def test_scale_starts_at_chance_unless_some_method_goes_below():
    bounds = (0.0, 1.0, 0.0, 1.0)
    above = plots.confidence_grid(lambda p: np.full(len(p), 1 / 3), bounds, 4)
    below = plots.confidence_grid(lambda p: np.full(len(p), 0.2), bounds, 4)
    assert plots.confidence_floor([above], Y) == pytest.approx(1 / 3)
    assert plots.confidence_floor([above, below], Y) == 0.0


def test_confidence_plane_draws_every_class():
    ax = new_ax()
    shown = plots.confidence_plane(ax, confidence_of, X, np.array(["a", "b", "c"])[Y], resolution=20)
    points = [c for c in ax.collections if type(c) is PathCollection]
    assert [len(c.get_offsets()) for c in points] == [20, 20, 20]
    assert len({to_hex(c.get_facecolor()[0]) for c in points}) == 3
    assert ax.get_legend_handles_labels()[1] == ["a", "b", "c"]
    assert shown.get_clim() == pytest.approx((1 / 3, 1))
    assert (*ax.get_xlim(), *ax.get_ylim()) == plots.plane_bounds(X)


def test_many_classes_have_their_own_look():
    looks = {
        (CLASS_COLOURS[k % len(CLASS_COLOURS)], CLASS_MARKERS[k % len(CLASS_MARKERS)]) for k in range(50)
    }
    assert len(looks) == 50


def test_reliability_diagram_draws_what_was_computed():
    ax, bins = new_ax(), reliability_curve(CORRECT, CONFIDENCE, n_bins=10)
    plots.reliability_diagram(ax, bins, level=0.9)
    agreed, over, under = ([bar.get_height() for bar in bars] for bars in ax.containers[:3])
    filled = bins.count > 0
    assert len(agreed) == len(over) == len(under) == filled.sum() == 5
    np.testing.assert_allclose(np.add(agreed, over), bins.confidence[filled])
    np.testing.assert_allclose(np.add(agreed, under), bins.accuracy[filled])
    np.testing.assert_allclose(np.subtract(under, over), bins.gap[filled])
    colours = [to_hex(bars[0].get_facecolor()) for bars in ax.containers[:3]]
    assert len(set(colours)) == 3
    assert ax.containers[1][0].get_hatch() != ax.containers[2][0].get_hatch()
    assert ax.get_legend_handles_labels()[1] == [
        "accuracy",
        "over-confident gap",
        "under-confident gap",
        "90% interval",
    ]
    low, high = wilson_interval(bins.accuracy[filled], bins.count[filled], level=0.9)
    whiskers = np.array([line[:, 1] for line in ax.containers[3].lines[2][0].get_segments()])
    np.testing.assert_allclose(whiskers, np.column_stack([low, high]))


def test_confidence_histogram():
    ax, bins = new_ax(), reliability_curve(CORRECT, CONFIDENCE)
    plots.confidence_histogram(ax, bins, chance=0.5)
    np.testing.assert_allclose([bar.get_height() for bar in ax.containers[0]], bins.share)
    accuracy, confidence = ax.lines
    assert accuracy.get_xdata()[0] == pytest.approx(CORRECT.mean())
    assert confidence.get_xdata()[0] == pytest.approx(CONFIDENCE.mean())
    assert accuracy.get_color() < confidence.get_color()  # the darker one is the accuracy
    assert legend_labels(ax.get_legend()) == [
        f"mean accuracy {CORRECT.mean():.3f}",
        f"mean confidence {CONFIDENCE.mean():.3f}",
    ]
    assert [text.get_text() for text in ax.texts] == ["below chance"]


def test_histogram_of_uneven_bins_shows_density():
    ax, bins = new_ax(), reliability_curve(CORRECT, CONFIDENCE, strategy="quantile", n_bins=5)
    plots.confidence_histogram(ax, bins)
    area = sum(bar.get_height() * bar.get_width() for bar in ax.containers[0])
    assert area == pytest.approx(1)
    assert ax.get_ylabel() == "density of samples"


def test_weight_paths():
    ax = new_ax()
    plots.weight_paths(ax, ITERATIONS, WEIGHTS, WRONG)
    red = [line for line in ax.lines if line.get_color() == RED]
    assert len(red) == WRONG.sum() + 1  # and the median
    np.testing.assert_allclose(red[-1].get_ydata(), np.median(WEIGHTS[:, WRONG], axis=1))
    assert legend_labels(ax.get_legend()) == [
        "classified right (45), median in bold",
        "misclassified (15), median in bold",
    ]


@pytest.mark.parametrize("wrong", [WRONG, np.zeros(60, bool), np.ones(60, bool)], ids=["some", "none", "all"])
def test_weight_map(wrong):
    ax = new_ax()
    plots.weight_map(ax, X, WEIGHTS[-1], wrong)
    right, marked = ax.collections
    assert len(right.get_offsets()) == (~wrong).sum()
    assert len(marked.get_offsets()) == wrong.sum()
    if wrong.any():
        assert to_hex(marked.get_edgecolor()[0]) == RED.lower()
        assert legend_labels(ax.get_legend()) == ["misclassified"]
    assert marked.get_clim() == (0, 1)
    assert len(ax.figure.axes) == 2  # the colour bar


def test_confidence_figure_shares_one_scale():
    figure = plots.confidence_figure(
        {"Standard": confidence_of, "Low": lambda p: np.full(len(p), 0.1)}, X, Y, resolution=10
    )
    *panels, bar = figure.axes
    assert [ax.get_title() for ax in panels] == ["Standard", "Low"]
    assert bar.get_ylim() == (0, 1)
    assert legend_labels(figure.legends[0]) == ["class 0", "class 1", "class 2"]


def test_reliability_figure_has_a_histogram_over_each_diagram():
    methods = {"a": (CORRECT, CONFIDENCE), "b": (CORRECT, np.clip(CONFIDENCE + 0.2, 0, 1)), "c": ([1], [1.0])}
    figure = plots.reliability_figure(methods, chance=0.5, n_bins=12)
    assert len(figure.axes) == 6
    titles = [ax.get_title().split("\n") for ax in figure.axes[:3]]
    assert [name for name, _ in titles] == ["a", "b", "c"]
    assert titles[2][1] == "ECE 0.000 (12 bins)"
    assert len(figure.legends) == 1


def test_weights_figure():
    figure = plots.weights_figure(ITERATIONS, WEIGHTS, X, WRONG)
    assert len(figure.axes) == 3
    assert isinstance(figure, Figure)


def test_save_figure_writes_the_same_files_every_time(tmp_path):
    written = []
    for folder in ("one", "two"):
        figure = plots.reliability_figure({"a": (CORRECT, CONFIDENCE)})
        paths = plots.save_figure(figure, tmp_path / folder / "blobs_1.7")
        assert [path.name for path in paths] == ["blobs_1.7.svg", "blobs_1.7.png"]
        written.append([path.read_bytes() for path in paths])
    assert written[0] == written[1]
    assert written[0][0].startswith(b"<?xml")
    assert written[0][1].startswith(b"\x89PNG")
    assert b"<dc:date>" not in written[0][0]
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["blobs_1.7.png", "blobs_1.7.svg"]


def test_save_figure_keeps_the_old_files_when_drawing_fails(tmp_path):
    figure = Figure()
    plots.save_figure(figure, tmp_path / "a")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    figure.text(0.5, 0.5, "$\\no_such_symbol$")
    with pytest.raises(ValueError, match="no_such_symbol"):
        plots.save_figure(figure, tmp_path / "a")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_save_figure_names_the_path_it_could_not_write(tmp_path):
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(OutputError, match=r"taken\.svg"):
        plots.save_figure(Figure(), tmp_path / "taken")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plots.plane_bounds([[1.0, 2.0, 3.0]]), DataError, "points in the plane"),
        (lambda: plots.confidence_figure({}, X, Y), ConfigError, "at least one method"),
        (lambda: plots.reliability_figure({}), ConfigError, "at least one method"),
        (lambda: plots.confidence_plane(new_ax(), lambda p: p[:, 0], X, Y), DataError, "confidence_of"),
        (lambda: plots.confidence_plane(new_ax(), lambda p: [0.5], X, Y), DataError, "one value per point"),
        (lambda: plots.confidence_plane(new_ax(), confidence_of, X, Y[:5]), DataError, "X has 60, y has 5"),
        (
            lambda: plots.confidence_plane(new_ax(), confidence_of, X, Y, resolution=1),
            ConfigError,
            "resolution must be",
        ),
        (
            lambda: plots.weight_paths(new_ax(), ITERATIONS, WEIGHTS.T, WRONG),
            DataError,
            r"\(8, 60\); got shape \(60, 8\)",
        ),
        (lambda: plots.weight_map(new_ax(), X, WEIGHTS[0, :5], WRONG), DataError, "weights has 5"),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
