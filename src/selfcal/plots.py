"""Pictures of calibration: what is computed and what is drawn are separate functions.

Functions that take `ax` draw on it; functions that end in `_figure` build a `Figure` and return it. Nothing
here loads pyplot or changes its state or the rcParams, and matplotlib itself is loaded only when drawing.
Colours are Okabe and Ito's, which colour-blind readers can tell apart; hatches, markers and line widths carry
the same meaning in grey.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal import _checks
from selfcal._binning import Bins, Closed, Strategy
from selfcal._checks import Float
from selfcal._files import write_atomically
from selfcal.errors import ConfigError, DataError
from selfcal.metrics import reliability_curve, wilson_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

ConfidenceOf = Callable[[Float], ArrayLike]
Bounds = tuple[float, float, float, float]

BLUE, ORANGE, VERMILION, SKY, GREEN, PURPLE, YELLOW = (
    "#0072B2",
    "#E69F00",
    "#D55E00",
    "#56B4E9",
    "#009E73",
    "#CC79A7",
    "#F0E442",
)
INK, GREY, PALE, RED = "#222222", "#A8A8A8", "#EEEEEE", "#D7261E"
CLASS_COLOURS = (BLUE, ORANGE, PURPLE, SKY, VERMILION, GREEN, YELLOW)
CLASS_MARKERS = "os^Dv<>h"
CONFIDENCE_MAP, WEIGHT_MAP = "bone", "viridis"


@dataclass(frozen=True, eq=False)
class ConfidenceGrid:
    """Confidence on a grid over the plane.

    Attributes:
        x: The first coordinate of the columns.
        y: The second coordinate of the rows.
        confidence: One confidence per row and column.
    """

    x: Float
    y: Float
    confidence: Float


def plane_bounds(X: ArrayLike, margin: float = 0.06) -> Bounds:
    """Return (left, right, bottom, top) around the points, with a margin as a share of the range.

    >>> plane_bounds([[0.0, 0.0], [10.0, 5.0]], margin=0.1)
    (-1.0, 11.0, -0.5, 5.5)
    """
    points = _plane(X)
    low, high = points.min(axis=0), points.max(axis=0)
    pad = margin * np.where(high > low, high - low, 1.0)
    (left, bottom), (right, top) = (low - pad).tolist(), (high + pad).tolist()
    return left, right, bottom, top


def confidence_grid(confidence_of: ConfidenceOf, bounds: Bounds, resolution: int = 200) -> ConfidenceGrid:
    """Evaluate a confidence function on a grid over the plane.

    Args:
        confidence_of: Maps points (n, 2) to n confidences in [0, 1].
        bounds: (left, right, bottom, top).
        resolution: Number of grid points in each direction.

    Returns:
        The grid and its confidences.

    >>> confidence_grid(lambda points: points[:, 0], (0.0, 1.0, 0.0, 1.0), resolution=3).confidence[0]
    array([0. , 0.5, 1. ])
    """
    _checks.positive_int("resolution", resolution, low=2)
    left, right, bottom, top = bounds
    x, y = np.linspace(left, right, resolution), np.linspace(bottom, top, resolution)
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    values = _checks.unit_interval(confidence_of(points), "the result of confidence_of")
    if len(values) != len(points):
        raise DataError(
            f"confidence_of must return one value per point; got {len(values)} for {len(points)}."
        )
    return ConfidenceGrid(x, y, values.reshape(resolution, resolution))


def confidence_plane(
    ax: Axes,
    confidence_of: ConfidenceOf,
    X: ArrayLike,
    y: ArrayLike,
    *,
    bounds: Bounds | None = None,
    resolution: int = 200,
) -> ScalarMappable:
    """Draw confidence over the plane as bands of colour, and the data on top.

    The scale runs from 1/C to 1, or from 0 if the confidence goes below 1/C somewhere.

    Args:
        ax: Where to draw.
        confidence_of: Maps points (n, 2) to n confidences in [0, 1].
        X: Points in the plane, shape (n, 2).
        y: The class of each point.
        bounds: (left, right, bottom, top); by default around the points.
        resolution: Number of grid points in each direction.

    Returns:
        What a colour bar needs.
    """
    grid = confidence_grid(confidence_of, bounds or plane_bounds(X), resolution)
    return draw_confidence_plane(ax, grid, X, y, low=confidence_floor([grid], y))


def confidence_floor(grids: list[ConfidenceGrid], y: ArrayLike) -> float:
    """Return the foot of a scale that serves all the grids: 1/C, or 0 if some confidence is below that."""
    chance = 1 / max(2, len(np.unique(np.asarray(y))))
    return chance if all(grid.confidence.min() >= chance - 1e-6 for grid in grids) else 0.0


def draw_confidence_plane(
    ax: Axes, grid: ConfidenceGrid, X: ArrayLike, y: ArrayLike, *, low: float = 0.0
) -> ScalarMappable:
    """Draw a computed grid as bands of a tenth from `low` to 1, and the data by class on top of it."""
    points, labels = _plane(X), np.asarray(y)
    _checks.same_length(X=points, y=labels)
    tenths = np.arange(11) / 10
    levels = np.concatenate([[low], tenths[tenths > low + 0.01]])
    shown = grid.confidence.clip(low, 1.0)
    bands = ax.contourf(grid.x, grid.y, shown, levels=levels, cmap=CONFIDENCE_MAP, vmin=low, vmax=1.0)
    for place, name in enumerate(np.unique(labels)):
        ax.scatter(
            points[labels == name, 0],
            points[labels == name, 1],
            s=_marker_size(len(points)),
            marker=CLASS_MARKERS[place % len(CLASS_MARKERS)],
            color=CLASS_COLOURS[place % len(CLASS_COLOURS)],
            edgecolors="white",
            linewidths=0.4,
            label=str(name),
        )
    ax.set_xlim(grid.x[0], grid.x[-1])
    ax.set_ylim(grid.y[0], grid.y[-1])
    _finish(ax, "$x_1$", "$x_2$")
    return bands


def reliability_diagram(ax: Axes, bins: Bins, *, level: float = 0.95) -> None:
    """Draw accuracy against confidence, bin by bin.

    Bars reach up to the accuracy. The hatched part is the gap between accuracy and mean confidence: orange
    where the model claims too much, purple where it claims too little. Whiskers are Wilson intervals of the
    accuracy, at the mean confidence of the bin; a bin is in order when they touch the diagonal.

    Args:
        ax: Where to draw.
        bins: What `metrics.reliability_curve` returns.
        level: The level of the intervals.
    """
    filled = bins.count > 0
    left, width = bins.edges[:-1][filled], np.diff(bins.edges)[filled]
    accuracy, confidence = bins.accuracy[filled], bins.confidence[filled]
    agreed = np.minimum(accuracy, confidence)
    low, high = wilson_interval(accuracy, bins.effective_count[filled], level=level)
    bars: dict[str, Any] = {"width": width, "align": "edge", "edgecolor": "white", "linewidth": 0.6}
    over: dict[str, Any] = {"color": ORANGE, "hatch": "////", "label": "over-confident gap", **bars}
    under: dict[str, Any] = {"color": PURPLE, "hatch": "....", "label": "under-confident gap", **bars}
    ax.bar(left, agreed, color=BLUE, label="accuracy", **bars)
    ax.bar(left, confidence - agreed, bottom=agreed, **over)
    ax.bar(left, accuracy - agreed, bottom=agreed, **under)
    ax.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=3)
    ax.errorbar(
        confidence,
        accuracy,
        yerr=np.maximum([accuracy - low, high - accuracy], 0),
        fmt="o",
        color=INK,
        markersize=2.2,
        elinewidth=0.9,
        capsize=1.8,
        clip_on=False,
        label=f"{level:.0%} interval",
        zorder=4,
    )
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    _finish(ax, "confidence", "accuracy")


def confidence_histogram(ax: Axes, bins: Bins, *, chance: float | None = None) -> None:
    """Draw the share of samples in each bin, with dashed lines at mean accuracy and mean confidence.

    Calibrated on average means that the two lines meet; confidence to the right means over-confident.

    Args:
        ax: Where to draw.
        bins: What `metrics.reliability_curve` returns.
        chance: 1/C shades the confidences below it, which no top label can have.
    """
    width = np.diff(bins.edges)
    even = np.allclose(width, width[0])
    height = bins.share if even else bins.share / width
    ax.bar(bins.edges[:-1], height, width, align="edge", color=SKY, edgecolor="white", linewidth=0.6)
    if chance is not None:
        ax.axvspan(0, chance, color=PALE, zorder=0)
        style: dict[str, Any] = {
            "ha": "center",
            "va": "center",
            "fontsize": 7,
            "rotation": 90 * (chance < 0.3),
        }
        ax.text(chance / 2, 0.5, "below chance", transform=ax.get_xaxis_transform(), **style)
    means = (("accuracy", bins.mean_accuracy, INK, 0), ("confidence", bins.mean_confidence, GREY, 4))
    for name, value, colour, offset in means:  # the dashes alternate, so that both show where they meet
        dashes = (offset, (4, 4))
        ax.axvline(value, color=colour, linewidth=1.6, linestyle=dashes, label=f"mean {name} {value:.3f}")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.08 * float(height.max()))
    _finish(ax, ylabel="share of samples" if even else "density of samples")
    legend = ax.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 0.97),
        ncols=2,
        fontsize=7,
        frameon=False,
        handlelength=1.6,
        handletextpad=0.4,
        columnspacing=0.9,
    )
    legend.set_in_layout(False)


def weight_paths(ax: Axes, iterations: ArrayLike, weights: ArrayLike, misclassified: ArrayLike) -> None:
    """Draw how the weight of every sample moved; misclassified samples in red, the medians in bold.

    Args:
        ax: Where to draw.
        iterations: The outer iterations, one per row of `weights`.
        weights: Weights, one row per iteration and one column per sample.
        misclassified: Which samples the final model gets wrong.
    """
    steps, paths = _checks.numbers(iterations, "iterations"), _checks.numbers(weights, "weights")
    wrong = np.asarray(misclassified, dtype=bool)
    if paths.shape != (len(steps), len(wrong)):
        raise DataError(
            f"weights must have one row per iteration and one column per sample, {(len(steps), len(wrong))}; "
            f"got shape {paths.shape}."
        )
    groups = ((~wrong, INK, "classified right", 0.12), (wrong, RED, "misclassified", 0.35))
    for group, colour, _, alpha in groups:
        if group.any():
            ax.plot(steps, paths[:, group], color=colour, alpha=alpha, linewidth=0.5)
    for group, colour, name, _ in groups:
        if group.any():
            median = np.median(paths[:, group], axis=1)
            ax.plot(steps, median, color="white", linewidth=4)
            ax.plot(steps, median, color=colour, linewidth=2, label=f"{name} ({group.sum()}), median in bold")
    ax.margins(x=0)
    ax.set_ylim(-0.02, max(1.02, float(paths.max())))
    _finish(ax, "outer iteration", "sample weight")
    ax.legend(loc="lower left", fontsize=7, framealpha=0.9, edgecolor="none")


def weight_map(ax: Axes, X: ArrayLike, weights: ArrayLike, misclassified: ArrayLike) -> ScalarMappable:
    """Draw final weights over the plane, with a colour bar; misclassified samples have a red contour.

    Args:
        ax: Where to draw.
        X: Points in the plane, shape (n, 2).
        weights: The weight of each point, in [0, 1].
        misclassified: Which points the final model gets wrong.

    Returns:
        What the colour bar shows.
    """
    points, values = _plane(X), _checks.numbers(weights, "weights")
    wrong = np.asarray(misclassified, dtype=bool)
    _checks.same_length(X=points, weights=values, misclassified=wrong)
    styles = ((~wrong, "white", 0.3, None), (wrong, RED, 1.1, "misclassified"))
    for group, edge, linewidth, label in styles:
        shown = ax.scatter(
            points[group, 0],
            points[group, 1],
            c=values[group],
            s=1.8 * _marker_size(len(points)),
            cmap=WEIGHT_MAP,
            vmin=0,
            vmax=1,
            edgecolors=edge,
            linewidths=linewidth,
            label=label,
        )
    bar = ax.figure.colorbar(shown, ax=ax, shrink=0.9)
    _style_colourbar(bar, "sample weight")
    _finish(ax, "$x_1$", "$x_2$")
    if wrong.any():
        ax.legend(loc="best", fontsize=7, framealpha=0.9, edgecolor="none")
    return shown


def confidence_figure(
    methods: Mapping[str, ConfidenceOf],
    X: ArrayLike,
    y: ArrayLike,
    *,
    bounds: Bounds | None = None,
    resolution: int = 200,
) -> Figure:
    """Draw confidence over the plane for several methods side by side, on one scale.

    Args:
        methods: For each name, a function from points (n, 2) to n confidences.
        X: Points in the plane, shape (n, 2).
        y: The class of each point.
        bounds: (left, right, bottom, top); by default around the points.
        resolution: Number of grid points in each direction.

    Returns:
        The figure.
    """
    _some_methods(methods)
    where = bounds or plane_bounds(X)
    grids = {
        name: confidence_grid(confidence_of, where, resolution) for name, confidence_of in methods.items()
    }
    low = confidence_floor(list(grids.values()), y)
    figure = _new_figure(3.1 * len(grids) + 0.8, 3.2)
    axes = figure.subplots(1, len(grids), squeeze=False, sharex=True, sharey=True)[0]
    for ax, (name, grid) in zip(axes, grids.items(), strict=True):
        shown = draw_confidence_plane(ax, grid, X, y, low=low)
        ax.set_title(name, fontsize=9)
    for ax in axes[1:]:
        ax.set_ylabel("")
    _style_colourbar(figure.colorbar(shown, ax=axes, shrink=0.95, pad=0.015), "confidence")
    _shared_legend(figure, axes[0], "class ")
    return figure


def reliability_figure(
    methods: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    chance: float | None = None,
    n_bins: int = 15,
    strategy: Strategy = "uniform",
    closed: Closed = "right",
) -> Figure:
    """Draw, for each method, the confidence histogram above the reliability diagram.

    Args:
        methods: For each name, correctness and confidence of the same rows.
        chance: 1/C shades the confidences below it.
        n_bins: Number of bins.
        strategy: "uniform" or "quantile".
        closed: The side on which a bin holds its edge.

    Returns:
        The figure.
    """
    _some_methods(methods)
    curves = {
        name: reliability_curve(correct, confidence, n_bins=n_bins, strategy=strategy, closed=closed)
        for name, (correct, confidence) in methods.items()
    }
    figure = _new_figure(3.0 * len(curves) + 0.3, 4.9)
    axes = figure.subplots(2, len(curves), squeeze=False, sharex=True, sharey="row", height_ratios=[1, 1.9])
    heights = []
    for place, (name, curve) in enumerate(curves.items()):
        upper, lower = axes[0, place], axes[1, place]
        confidence_histogram(upper, curve, chance=chance)
        heights.append(upper.get_ylim())
        reliability_diagram(lower, curve)
        error = float(curve.share @ np.abs(curve.gap))
        upper.set_title(f"{name}\nECE {error:.3f} ({len(curve.count)} bins)", fontsize=9, pad=16)
    axes[0, 0].set_ylim(0, max(top for _, top in heights))
    for ax in axes[:, 1:].ravel():
        ax.set_ylabel("")
    _shared_legend(figure, axes[1, 0])
    return figure


def weights_figure(
    iterations: ArrayLike, weights: ArrayLike, X: ArrayLike, misclassified: ArrayLike
) -> Figure:
    """Draw the paths of the sample weights (left) and the final weights over the plane (right).

    Args:
        iterations: The outer iterations, one per row of `weights`.
        weights: Weights, one row per iteration and one column per sample.
        X: Points in the plane, shape (n, 2).
        misclassified: Which samples the final model gets wrong.

    Returns:
        The figure.
    """
    figure = _new_figure(8.6, 3.6)
    left, right = figure.subplots(1, 2)
    weight_paths(left, iterations, weights, misclassified)
    weight_map(right, X, np.asarray(weights)[-1], misclassified)
    left.set_title("Weight of each training sample", fontsize=9)
    right.set_title("Final weights", fontsize=9)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 150) -> tuple[Path, Path]:
    """Write `path.svg` and `path.png`; each file appears whole or not at all, and the same every time.

    Args:
        figure: What to write.
        path: The path without a suffix; folders are made.
        dpi: Dots per inch of the PNG.

    Returns:
        The two paths.
    """
    from matplotlib import rc_context

    drawn: dict[str, bytes] = {}
    with rc_context({"svg.hashsalt": "selfcal"}):
        for suffix, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, dpi=dpi, metadata=metadata)
            drawn[f"{os.fspath(path)}.{suffix}"] = buffer.getvalue()
    svg, png = (write_atomically(target, content) for target, content in drawn.items())
    return svg, png


def _new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _plane(X: ArrayLike) -> Float:
    points = _checks.numbers(X, "X")
    if points.ndim != 2 or points.shape[1] != 2 or len(points) == 0:
        raise DataError(f"X must be points in the plane, shape (n, 2); got shape {points.shape}.")
    return points


def _some_methods(methods: Mapping[str, object]) -> None:
    if not methods:
        raise ConfigError("methods must name at least one method to draw; got none.")


def _marker_size(n_points: int) -> float:
    return float(np.clip(9000 / n_points, 5, 26))


def _shared_legend(figure: Figure, ax: Axes, prefix: str = "") -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(
        handles,
        [prefix + label for label in labels],
        loc="outside lower center",
        ncols=max(2, round(figure.get_figwidth() / 1.5)),
        fontsize=8,
        markerscale=1.6 if prefix else 1.0,
        frameon=False,
    )


def _style_colourbar(bar: Any, label: str) -> None:
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)


def _finish(ax: Axes, xlabel: str = "", ylabel: str = "") -> None:
    ax.set_xlabel(xlabel, fontsize=8)
    ax.set_ylabel(ylabel, fontsize=8)
    ax.tick_params(labelsize=7, length=2.5)
    ax.spines[["top", "right"]].set_visible(False)
