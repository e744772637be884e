"""Confidence over the plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.errors import DataError
from selfcal.plots._canvas import (
    CLASS_COLOURS,
    CLASS_MARKERS,
    finish,
    marker_size,
    new_figure,
    plane_points,
    shared_legend,
    some_methods,
    style_colourbar,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure


ConfidenceOf = Callable[[Float], ArrayLike]
Bounds = tuple[float, float, float, float]
CONFIDENCE_MAP = "bone"


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
    """Return (left, right, bottom, top) around the points, with a margin as a fraction of the range.

    >>> plane_bounds([[0.0, 0.0], [10.0, 5.0]], margin=0.1)
    (-1.0, 11.0, -0.5, 5.5)
    """
    points = plane_points(X)
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
    checks.positive_int("resolution", resolution, low=2)
    left, right, bottom, top = bounds
    x, y = np.linspace(left, right, resolution), np.linspace(bottom, top, resolution)
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    values = checks.unit_interval(confidence_of(points), "the result of confidence_of")
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
        ax: The axes to draw on.
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
    """Return the lower end of a common scale: 1/C, or 0 if some confidence is below that."""
    chance = 1 / max(2, len(np.unique(np.asarray(y))))
    return chance if all(grid.confidence.min() >= chance - 1e-6 for grid in grids) else 0.0


def draw_confidence_plane(
    ax: Axes, grid: ConfidenceGrid, X: ArrayLike, y: ArrayLike, *, low: float = 0.0
) -> ScalarMappable:
    """Draw a computed grid as bands of a tenth from `low` to 1, and the data by class on top of it."""
    points, labels = plane_points(X), np.asarray(y)
    checks.same_length(X=points, y=labels)
    tenths = np.arange(11) / 10
    levels = np.concatenate([[low], tenths[tenths > low + 0.01]])
    shown = grid.confidence.clip(low, 1.0)
    bands = ax.contourf(grid.x, grid.y, shown, levels=levels, cmap=CONFIDENCE_MAP, vmin=low, vmax=1.0)
    for place, name in enumerate(np.unique(labels)):
        ax.scatter(
            points[labels == name, 0],
            points[labels == name, 1],
            s=marker_size(len(points)),
            marker=CLASS_MARKERS[place % len(CLASS_MARKERS)],
            color=CLASS_COLOURS[place % len(CLASS_COLOURS)],
            edgecolors="white",
            linewidths=0.4,
            label=str(name),
        )
    ax.set_xlim(grid.x[0], grid.x[-1])
    ax.set_ylim(grid.y[0], grid.y[-1])
    finish(ax, "$x_1$", "$x_2$")
    return bands


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

    >>> X, y = [[0.0, 0.0], [1.0, 1.0]], [0, 1]
    >>> figure = confidence_figure({"half": lambda points: np.full(len(points), 0.5)}, X, y)
    >>> [ax.get_title() for ax in figure.axes]
    ['half', '']
    """
    some_methods(methods)
    where = bounds or plane_bounds(X)
    grids = {
        name: confidence_grid(confidence_of, where, resolution) for name, confidence_of in methods.items()
    }
    low = confidence_floor(list(grids.values()), y)
    figure = new_figure(3.1 * len(grids) + 0.8, 3.2)
    axes = figure.subplots(1, len(grids), squeeze=False, sharex=True, sharey=True)[0]
    for ax, (name, grid) in zip(axes, grids.items(), strict=True):
        shown = draw_confidence_plane(ax, grid, X, y, low=low)
        ax.set_title(name, fontsize=9)
    for ax in axes[1:]:
        ax.set_ylabel("")
    style_colourbar(figure.colorbar(shown, ax=axes, shrink=0.95, pad=0.015), "confidence")
    shared_legend(figure, axes[0], "class ")
    return figure
