"""Curves with bands: errors by number of bins, training, gammas, risk against coverage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.errors import DataError
from selfcal.plots._canvas import (
    CLASS_COLOURS,
    CLASS_MARKERS,
    DASHES,
    INK,
    finish,
    new_figure,
    shared_legend,
    some_methods,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from selfcal.metrics import RiskCoverageCurve
    from selfcal.training.history import History

Curve = Sequence[ArrayLike]
"""`(x, y)` with y of shape (points,) or (seeds, points), or `(x, y, spread)`."""

MAX_POINTS = 2000
"""A risk-coverage curve has one point per distinct confidence; at most this many are drawn."""


def curve_and_band(curve: Curve, name: str = "curve") -> tuple[Float, Float, Float | None]:
    """Return x, the line and half the width of the band of a curve.

    Args:
        curve: `(x, y)` or `(x, y, spread)`; y and spread have one value per x, or one row per seed.
        name: Its name in errors.

    Returns:
        x, the mean over seeds, and the spread: as given (its mean over seeds), or else the standard deviation of y
        over seeds; None for a single line.

    >>> x, line, spread = curve_and_band(([1, 2], [[0.0, 1.0], [2.0, 1.0]]))
    >>> line, spread.round(3)
    (array([1., 1.]), array([1.414, 0.   ]))
    """
    if len(curve) not in (2, 3):
        raise DataError(f"{name!r} must be (x, y) or (x, y, spread); got {len(curve)} parts.")
    x, y, *given = (checks.numbers(part, name) for part in curve)
    for part in (y, *given):
        if (
            x.ndim != 1
            or part.ndim not in (1, 2)
            or part.shape[-1] != len(x)
            or len(x) == 0
            or part.size == 0
        ):
            raise DataError(
                f"{name!r} must have one value for each of its {x.shape} points, or one row of them per seed; "
                f"got shape {part.shape}."
            )
    rows = np.atleast_2d(y)
    if given:
        return x, rows.mean(axis=0), np.atleast_2d(given[0]).mean(axis=0)
    return x, rows.mean(axis=0), rows.std(axis=0, ddof=1) if len(rows) > 1 else None


def draw_curves(
    ax: Axes, curves: Mapping[str, Curve], *, xlabel: str = "", ylabel: str = "", log_x: bool = False
) -> None:
    """Draw lines that differ in colour and dashes, with a band around those that have a spread.

    Args:
        ax: The axes to draw on.
        curves: By label, `(x, y)` with y of shape (points,) or (seeds, points), or `(x, y, spread)`.
        xlabel: Label of the x axis.
        ylabel: Label of the y axis.
        log_x: Whether x is on a logarithmic scale.
    """
    some_methods(curves)
    for place, (label, curve) in enumerate(curves.items()):
        x, line, spread = curve_and_band(curve, label)
        colour = CLASS_COLOURS[place % len(CLASS_COLOURS)]
        dashes = DASHES[place % len(DASHES)]
        marker = CLASS_MARKERS[place % len(CLASS_MARKERS)]
        ends: dict[str, Any] = {"marker": marker, "markersize": 3} if len(x) <= 30 else {}
        ax.plot(x, line, color=colour, linestyle=dashes, linewidth=1.5, label=label, zorder=3, **ends)
        if spread is not None:
            ax.fill_between(x, line - spread, line + spread, color=colour, alpha=0.18, linewidth=0)
    if log_x:
        ax.set_xscale("log")
    ax.grid(axis="y", color=INK, alpha=0.1, linewidth=0.6)
    ax.margins(x=0.02)
    finish(ax, xlabel, ylabel)


def curves_figure(
    panels: Mapping[str, Mapping[str, Curve]], *, xlabel: str = "", ylabel: str = "", log_x: bool = False
) -> Figure:
    """Draw several panels of curves side by side, with one legend for all.

    Args:
        panels: By title, the curves of `draw_curves`; a label means the same in every panel.
        xlabel: Label of the x axis.
        ylabel: Label of the y axis; if empty, the title of each panel is used.
        log_x: Whether x is on a logarithmic scale.

    Returns:
        The figure.

    >>> figure = curves_figure({"ECE": {"net": ([10, 20], [0.1, 0.2])}, "MCE": {"net": ([10, 20], [0.3, 0.4])}})
    >>> [ax.get_title() for ax in figure.axes]
    ['ECE', 'MCE']
    """
    some_methods(panels)
    labels = dict.fromkeys(label for curves in panels.values() for label in curves)
    figure = new_figure(3.2 * len(panels) + 0.4, 2.9 + 0.12 * len(labels))
    axes = figure.subplots(1, len(panels), squeeze=False, sharex=True)[0]
    for ax, (title, curves) in zip(axes, panels.items(), strict=True):
        draw_curves(ax, curves, xlabel=xlabel, ylabel=ylabel, log_x=log_x)
        ax.set_title(title, fontsize=9)
    fullest = max(zip(axes, panels.values(), strict=True), key=lambda pair: len(pair[1]))[0]
    shared_legend(figure, fullest)
    return figure


def ece_by_bins(ax: Axes, sweeps: Mapping[str, Curve], *, ylabel: str = "ECE") -> None:
    """Draw a calibration error against the number of bins; a line that climbs is mostly noise.

    Args:
        ax: The axes to draw on.
        sweeps: By label, `(n_bins, error)` with errors of shape (points,) or (seeds, points).
        ylabel: The error's name, such as "MCE".
    """
    draw_curves(ax, sweeps, xlabel="number of bins", ylabel=ylabel, log_x=True)
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=7, frameon=False)


def history_curves(history: History, *, points: int = 200) -> dict[str, Curve]:
    """Make curves of a training history; the loss of single steps is averaged over segments of the run.

    Args:
        history: The history of a training run.
        points: Number of segments over which the training loss is averaged.

    Returns:
        By label, steps and losses: training, outer and selection, as far as the run had them.

    >>> from types import SimpleNamespace
    >>> nothing = np.zeros(0)
    >>> run = SimpleNamespace(inner_loss=np.array([4.0, 2.0, 1.0, 1.0]), outer_step=nothing, outer_loss=nothing,
    ...     selection_step=np.array([4]), selection_loss=np.array([1.5]))
    >>> curves = history_curves(run, points=2)
    >>> list(curves), curves["training loss"][1]
    (['training loss', 'log loss on selection rows'], array([3., 1.]))
    """
    checks.positive_int("points", points)
    curves: dict[str, Curve] = {}
    if len(history.inner_loss):
        stretches = np.array_split(history.inner_loss, min(points, len(history.inner_loss)))
        ends = np.cumsum([len(stretch) for stretch in stretches])
        curves["training loss"] = (ends, np.array([stretch.mean() for stretch in stretches]))
    if len(history.outer_loss):
        curves["outer loss"] = (history.outer_step, history.outer_loss)
    if len(history.selection_loss):
        curves["log loss on selection rows"] = (history.selection_step, history.selection_loss)
    return curves


def training_curves(
    ax: Axes, curves: Mapping[str, Curve], *, xlabel: str = "step", ylabel: str = "loss"
) -> None:
    """Draw losses, or anything else, over training.

    Args:
        ax: The axes to draw on.
        curves: By label, `(step, value)`, as from `history_curves`; values of shape (points,) or (seeds, points).
        xlabel: "step" or "epoch".
        ylabel: Label of the y axis.
    """
    draw_curves(ax, curves, xlabel=xlabel, ylabel=ylabel)
    ax.legend(fontsize=7, frameon=False)


def gamma_statistics(ax: Axes, gammas: Mapping[str, Curve], *, xlabel: str = "epoch") -> None:
    """Draw the mean of a learned gamma by epoch, with a band of one standard deviation over the rows.

    Args:
        ax: The axes to draw on.
        gammas: By label, `(epoch, mean, sd)`, each statistic of shape (epochs,) or (seeds, epochs).
        xlabel: Label of the x axis.
    """
    draw_curves(ax, gammas, xlabel=xlabel, ylabel="gamma, mean ± sd")
    ax.legend(fontsize=7, frameon=False)


def risk_coverage(
    ax: Axes,
    curves: Mapping[str, RiskCoverageCurve],
    *,
    thresholds: Mapping[str, float] | None = None,
    level: float = 0.95,
) -> None:
    """Draw the risk against the coverage.

    A single curve has a band, the interval of its risk at each coverage by itself.

    Args:
        ax: The axes to draw on.
        curves: By name, what `metrics.risk_coverage_curve` returns.
        thresholds: By name, the threshold chosen, which is marked.
        level: The level of the band.
    """
    some_methods(curves)
    for place, (name, curve) in enumerate(curves.items()):
        thin = np.unique(np.linspace(0, len(curve.risk) - 1, MAX_POINTS).astype(int))
        colour = CLASS_COLOURS[place % len(CLASS_COLOURS)]
        style: dict[str, Any] = {"color": colour, "linestyle": DASHES[place % len(DASHES)], "linewidth": 1.5}
        ax.plot(curve.coverage[thin], curve.risk[thin], label=name, **style)
        if len(curves) == 1:
            low, high = (end[thin] for end in curve.risk_interval(level))
            ax.fill_between(curve.coverage[thin], low, high, color=colour, alpha=0.15, linewidth=0)
        if thresholds and name in thresholds:
            at = int(np.searchsorted(-curve.thresholds, -thresholds[name], side="right")) - 1
            if at < 0:
                continue  # nothing is accepted
            label = f"{name}: threshold {thresholds[name]:.3g}"
            ax.plot(
                curve.coverage[at],
                curve.risk[at],
                CLASS_MARKERS[place % len(CLASS_MARKERS)],
                color=colour,
                markersize=8,
                markeredgecolor=INK,
                zorder=4,
                label=label,
            )
    ax.set_xlim(0, 1)
    steady = [curve.risk[curve.coverage >= 0.05].max(initial=0.0) for curve in curves.values()]
    ax.set_ylim(0, max(0.01, 1.15 * max(steady)))  # the risk of very few rows is unstable
    ax.grid(axis="y", color=INK, alpha=0.1, linewidth=0.6)
    finish(ax, "coverage: fraction of rows accepted", "risk: fraction of accepted rows that are wrong")
    ax.legend(fontsize=7, frameon=False, loc="upper left")
