"""Figures of calibration, with separate functions for computing and drawing.

Functions that take `ax` draw on it; functions that end in `_figure` build a `Figure` and return it. Nothing
here loads pyplot or changes its state or the rcParams, and matplotlib itself is loaded only when drawing.
Colours are Okabe and Ito's, which colour-blind readers can distinguish; hatches, markers and line widths carry
the same meaning in grey.
"""

from selfcal.plots._canvas import save_figure
from selfcal.plots.curves import (
    curve_and_band,
    curves_figure,
    draw_curves,
    ece_by_bins,
    gamma_statistics,
    history_curves,
    risk_coverage,
    training_curves,
)
from selfcal.plots.display import ReliabilityDisplay
from selfcal.plots.plane import (
    ConfidenceGrid,
    confidence_figure,
    confidence_floor,
    confidence_grid,
    confidence_plane,
    draw_confidence_plane,
    plane_bounds,
)
from selfcal.plots.reliability import (
    confidence_histogram,
    reliability_diagram,
    reliability_figure,
    reliability_lines,
    share_lines,
)
from selfcal.plots.weights import weight_map, weight_paths, weights_figure

__all__ = [
    "ConfidenceGrid",
    "ReliabilityDisplay",
    "confidence_figure",
    "confidence_floor",
    "confidence_grid",
    "confidence_histogram",
    "confidence_plane",
    "curve_and_band",
    "curves_figure",
    "draw_confidence_plane",
    "draw_curves",
    "ece_by_bins",
    "gamma_statistics",
    "history_curves",
    "plane_bounds",
    "reliability_diagram",
    "reliability_figure",
    "reliability_lines",
    "risk_coverage",
    "save_figure",
    "share_lines",
    "training_curves",
    "weight_map",
    "weight_paths",
    "weights_figure",
]
