"""The critical-difference picture: methods on a line by mean rank, bars over those that may be alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks._quality_board import Ranking
from selfcal.plots._canvas import BLUE, GREY, INK, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOM = 0.28
"""Inches for a line of text."""


def rank_figure(ranked: Ranking, labels: Mapping[str, str], highlight: str = "") -> Figure:
    """Draw mean ranks, best on the left, with Nemenyi's critical difference as a ruler.

    Args:
        ranked: What to draw; at least two methods.
        labels: The name of each method.
        highlight: A method to draw in colour.

    Reference: Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006).
    """
    names, n = list(ranked.ranks), len(ranked.ranks)
    groups, half = ranked.groups(), (n + 1) // 2
    depth = half + 0.5 * len(groups) + 1
    figure = new_figure(9.0, ROOM * (depth + 3))
    ax = figure.subplots()
    ax.set(xlim=(1 - 0.45 * n, n + 0.45 * n), ylim=(-depth, 2.6))
    ax.axis("off")
    ax.plot([1, n], [0, 0], color=INK, lw=1)
    for tick in range(1, n + 1):
        ax.plot([tick, tick], [0, 0.2], color=INK, lw=1)
        ax.text(tick, 0.35, str(tick), ha="center", va="bottom", fontsize=7, color=INK)
    end = min(1 + ranked.critical, n)
    ax.plot([1, end], [1.6, 1.6], color=INK, lw=1.5, marker="|", markersize=6)
    ax.text(
        1, 1.75, f"critical difference {ranked.critical:.2f}", ha="left", va="bottom", fontsize=7, color=INK
    )
    for i, group in enumerate(groups):
        places = [ranked.ranks[name] for name in group]
        y = -0.35 - 0.5 * i
        ax.plot([min(places) - 0.05, max(places) + 0.05], [y, y], color=GREY, lw=4, solid_capstyle="round")
    for i, name in enumerate(names):
        left = i < half
        step = i if left else n - 1 - i
        y, edge = -(0.5 * len(groups) + 0.8 + step), 0.9 if left else n + 0.1
        colour = BLUE if name == highlight else INK
        place = ranked.ranks[name]
        ax.plot([place, place, edge], [0, y, y], color=colour, lw=0.9)
        text = f"{labels[name]}  {place:.2f}"
        ax.text(
            edge - 0.08 if left else edge + 0.08, y, text, ha="right" if left else "left", va="center",
            fontsize=8, color=colour, weight="bold" if name == highlight else "normal",
        )  # fmt: skip
    return figure
