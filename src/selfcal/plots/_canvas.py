"""Common colours, markers, axes and file output of the figures."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal._support.files import write_atomically
from selfcal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (9, 3)))


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 150) -> tuple[Path, Path]:
    """Write `path.svg` and `path.png`, atomically and reproducibly.

    Args:
        figure: The figure.
        path: The path without a suffix; folders are created.
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


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plane_points(X: ArrayLike) -> Float:
    points = checks.numbers(X, "X")
    if points.ndim != 2 or points.shape[1] != 2 or len(points) == 0:
        raise DataError(f"X must be points in the plane, shape (n, 2); got shape {points.shape}.")
    return points


def some_methods(methods: Mapping[str, object]) -> None:
    if not methods:
        raise ConfigError("methods must name at least one method to draw; got none.")


def marker_size(n_points: int) -> float:
    return float(np.clip(9000 / n_points, 5, 26))


def shared_legend(figure: Figure, ax: Axes, prefix: str = "") -> None:
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


def style_colourbar(bar: Any, label: str) -> None:
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)


def finish(ax: Axes, xlabel: str = "", ylabel: str = "") -> None:
    ax.set_xlabel(xlabel, fontsize=8)
    ax.set_ylabel(ylabel, fontsize=8)
    ax.tick_params(labelsize=7, length=2.5)
    ax.spines[["top", "right"]].set_visible(False)
