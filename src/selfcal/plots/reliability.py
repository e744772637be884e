"""Accuracy against confidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support.binning import Bins, Closed, Strategy
from selfcal.metrics import reliability_curve, wilson_interval
from selfcal.plots._canvas import (
    BLUE,
    CLASS_COLOURS,
    CLASS_MARKERS,
    DASHES,
    GREY,
    INK,
    ORANGE,
    PALE,
    PURPLE,
    SKY,
    finish,
    new_figure,
    shared_legend,
    some_methods,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def reliability_diagram(ax: Axes, bins: Bins, *, level: float = 0.95) -> None:
    """Draw accuracy against confidence, bin by bin.

    Bars reach up to the accuracy. The hatched part is the gap between accuracy and mean confidence: orange
    where the model claims too much, purple where it claims too little. Whiskers are Wilson intervals of the
    accuracy, at the mean confidence of the bin; a bin is in order when they touch the diagonal.

    Args:
        ax: The axes to draw on.
        bins: The bins, as `metrics.reliability_curve` returns them.
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
    finish(ax, "confidence", "accuracy")


def confidence_histogram(ax: Axes, bins: Bins, *, chance: float | None = None) -> None:
    """Draw the fraction of samples in each bin, with dashed lines at mean accuracy and mean confidence.

    Calibrated on average means that the two lines meet; confidence to the right means over-confident.

    Args:
        ax: The axes to draw on.
        bins: The bins, as `metrics.reliability_curve` returns them.
        chance: 1/C shades the confidences below it, which a top label cannot have.
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
    for name, value, colour, offset in means:
        dashes = (offset, (4, 4))  # they alternate, so that both lines are visible where they coincide
        ax.axvline(value, color=colour, linewidth=1.6, linestyle=dashes, label=f"mean {name} {value:.3f}")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.08 * float(height.max()))
    finish(ax, ylabel="fraction of samples" if even else "density of samples")
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


def reliability_lines(ax: Axes, curves: Mapping[str, Bins], *, level: float = 0.95) -> None:
    """Draw several reliability curves over one another: accuracy at the mean confidence of each bin.

    Args:
        ax: The axes to draw on.
        curves: By name, what `metrics.reliability_curve` returns.
        level: The level of the intervals.
    """
    ax.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=(0, (4, 3)))
    for place, (name, bins) in enumerate(curves.items()):
        filled = bins.count > 0
        accuracy = bins.accuracy[filled]
        low, high = wilson_interval(accuracy, bins.effective_count[filled], level=level)
        ax.errorbar(
            bins.confidence[filled],
            accuracy,
            yerr=np.maximum([accuracy - low, high - accuracy], 0),
            marker=CLASS_MARKERS[place % len(CLASS_MARKERS)],
            linestyle=DASHES[place % len(DASHES)],
            color=CLASS_COLOURS[place % len(CLASS_COLOURS)],
            markersize=4,
            linewidth=1.3,
            elinewidth=0.8,
            capsize=1.8,
            label=name,
        )
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    finish(ax, "confidence", "accuracy")


def share_lines(ax: Axes, curves: Mapping[str, Bins]) -> None:
    """Draw the confidence histograms of several curves as outlines.

    Args:
        ax: The axes to draw on.
        curves: By name, what `metrics.reliability_curve` returns.
    """
    for place, bins in enumerate(curves.values()):
        density = bins.share / np.diff(bins.edges)
        dashes = DASHES[place % len(DASHES)]
        colour = CLASS_COLOURS[place % len(CLASS_COLOURS)]
        ax.stairs(density, bins.edges, color=colour, linestyle=dashes, linewidth=1.3)
    ax.set_xlim(0, 1)
    finish(ax, "confidence", "density of samples")


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

    >>> figure = reliability_figure({"net": ([1, 0, 1], [0.9, 0.6, 0.7])}, chance=0.5)
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['fraction of samples', 'accuracy']

    Reference: Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017.
    """
    some_methods(methods)
    curves = {
        name: reliability_curve(correct, confidence, n_bins=n_bins, strategy=strategy, closed=closed)
        for name, (correct, confidence) in methods.items()
    }
    figure = new_figure(3.0 * len(curves) + 0.3, 4.9)
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
    shared_legend(figure, axes[1, 0])
    return figure
