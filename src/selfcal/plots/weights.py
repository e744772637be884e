"""Learned sample weights: their paths and final values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal.errors import DataError
from selfcal.plots._canvas import (
    INK,
    RED,
    finish,
    marker_size,
    new_figure,
    plane_points,
    style_colourbar,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure


WEIGHT_MAP = "viridis"


def weight_paths(ax: Axes, iterations: ArrayLike, weights: ArrayLike, misclassified: ArrayLike) -> None:
    """Draw the path of the weight of every sample; misclassified samples in red, the medians in bold.

    Args:
        ax: The axes to draw on.
        iterations: The outer iterations, one per row of `weights`.
        weights: Weights, one row per iteration and one column per sample.
        misclassified: Whether the final model misclassifies each sample.
    """
    steps, paths = checks.numbers(iterations, "iterations"), checks.numbers(weights, "weights")
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
    finish(ax, "outer iteration", "sample weight")
    ax.legend(loc="lower left", fontsize=7, framealpha=0.9, edgecolor="none")


def weight_map(ax: Axes, X: ArrayLike, weights: ArrayLike, misclassified: ArrayLike) -> ScalarMappable:
    """Draw final weights over the plane, with a colour bar; misclassified samples have a red contour.

    Args:
        ax: The axes to draw on.
        X: Points in the plane, shape (n, 2).
        weights: The weight of each point, in [0, 1].
        misclassified: Whether the final model misclassifies each point.

    Returns:
        What the colour bar shows.
    """
    points, values = plane_points(X), checks.numbers(weights, "weights")
    wrong = np.asarray(misclassified, dtype=bool)
    checks.same_length(X=points, weights=values, misclassified=wrong)
    styles = ((~wrong, "white", 0.3, None), (wrong, RED, 1.1, "misclassified"))
    for group, edge, linewidth, label in styles:
        shown = ax.scatter(
            points[group, 0],
            points[group, 1],
            c=values[group],
            s=1.8 * marker_size(len(points)),
            cmap=WEIGHT_MAP,
            vmin=0,
            vmax=1,
            edgecolors=edge,
            linewidths=linewidth,
            label=label,
        )
    bar = ax.figure.colorbar(shown, ax=ax, shrink=0.9)
    style_colourbar(bar, "sample weight")
    finish(ax, "$x_1$", "$x_2$")
    if wrong.any():
        ax.legend(loc="best", fontsize=7, framealpha=0.9, edgecolor="none")
    return shown


def weights_figure(
    iterations: ArrayLike, weights: ArrayLike, X: ArrayLike, misclassified: ArrayLike
) -> Figure:
    """Draw the paths of the sample weights (left) and the final weights over the plane (right).

    Args:
        iterations: The outer iterations, one per row of `weights`.
        weights: Weights, one row per iteration and one column per sample.
        X: Points in the plane, shape (n, 2).
        misclassified: Whether the final model misclassifies each sample.

    Returns:
        The figure.

    >>> figure = weights_figure([0, 1], [[0.5, 0.5], [1.0, 0.2]], [[0.0, 0.0], [1.0, 1.0]], [False, True])
    >>> [ax.get_title() for ax in figure.axes[:2]]
    ['Weight of each training sample', 'Final weights']
    """
    figure = new_figure(8.6, 3.6)
    left, right = figure.subplots(1, 2)
    weight_paths(left, iterations, weights, misclassified)
    weight_map(right, X, np.asarray(weights)[-1], misclassified)
    left.set_title("Weight of each training sample", fontsize=9)
    right.set_title("Final weights", fontsize=9)
    return figure
