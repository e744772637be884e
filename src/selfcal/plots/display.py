"""Reliability diagrams with the interface of scikit-learn's displays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.binning import Bins, Strategy, bin_chunks
from selfcal.metrics._rows import claims
from selfcal.plots._canvas import new_figure, some_methods
from selfcal.plots.reliability import (
    confidence_histogram,
    reliability_diagram,
    reliability_lines,
    share_lines,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend


class ReliabilityDisplay:
    """A reliability diagram with its histogram underneath, for one or several curves.

    Args:
        curves: By name, what `metrics.reliability_curve` returns.
        chance: 1/C shades the confidences below it, if there is one curve.
        level: The level of the intervals.

    Attributes:
        ax_: The axes of the diagram, once drawn.
        histogram_ax_: The axes of the histogram.
        figure_: Their figure.

    Example:
        >>> display = ReliabilityDisplay.from_predictions([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], name="net")
        >>> display.ax_.get_ylabel(), list(display.curves)
        ('accuracy', ['net'])
    """

    ax_: Axes
    histogram_ax_: Axes
    figure_: Figure

    def __init__(
        self, curves: Mapping[str, Bins], *, chance: float | None = None, level: float = 0.95
    ) -> None:
        some_methods(curves)
        self.curves = dict(curves)
        self.chance = chance
        self.level = level

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, name: str | None = None, **options: Any
    ) -> ReliabilityDisplay:
        """Draw the reliability diagram of a fitted classifier on these rows.

        Args:
            estimator: Has `predict_proba` and `classes_`.
            X: The input of the estimator.
            y: The true labels.
            name: Its name; by default that of its class.
            **options: As in `from_predictions`.
        """
        name = type(estimator).__name__ if name is None else name
        probs, classes = estimator.predict_proba(X), estimator.classes_
        return cls.from_predictions(y, probs, classes=classes, name=name, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        probs: ArrayLike,
        *,
        classes: ArrayLike | None = None,
        of_classes: Sequence[Any] | None = None,
        n_bins: int = 15,
        strategy: Strategy = "uniform",
        sample_weight: ArrayLike | None = None,
        level: float = 0.95,
        name: str = "top label",
        ax: Axes | None = None,
    ) -> ReliabilityDisplay:
        """Draw the confidence in the top label, or the probabilities of some classes, one curve each.

        Args:
            y_true: Labels, codes 0..k-1 or names from `classes`.
            probs: Probabilities, one row per sample and one column per class.
            classes: The label of each column, if labels are not codes.
            of_classes: The classes whose probability is evaluated; None for the top label.
            n_bins: Number of bins (at most, for "quantile").
            strategy: "uniform" for bins of equal width, "quantile" for bins of equal weight.
            sample_weight: One non-negative weight per row.
            level: The level of the intervals.
            name: The name of the top-label curve.
            ax: The axes to draw on; by default in a new figure.
        """
        wanted: dict[str, Any] = {name: None} if of_classes is None else {str(c): c for c in of_classes}
        curves = {}
        for label, of_class in wanted.items():
            rows = claims(y_true, probs, classes, sample_weight, of_class=of_class)
            curves[label] = bin_chunks([rows], n_bins=n_bins, strategy=strategy)
        chance = 1 / checks.as_array(probs).shape[1] if of_classes is None else None
        return cls(curves, chance=chance, level=level).plot(ax)

    def plot(self, ax: Axes | None = None) -> ReliabilityDisplay:
        """Draw on `ax`, with the histogram in its lower part, or in a new figure."""
        if ax is None:
            ax = new_figure(3.9, 4.6).subplots()
        below = _room_below(ax)
        if len(self.curves) == 1:
            (curve,) = self.curves.values()
            reliability_diagram(ax, curve, level=self.level)
            confidence_histogram(below, curve, chance=self.chance)
            cast("Legend", below.get_legend()).set_in_layout(True)  # it lies between the two
            ax.set_title(next(iter(self.curves)), fontsize=9)
        else:
            reliability_lines(ax, self.curves, level=self.level)
            share_lines(below, self.curves)
        ax.legend(fontsize=7, frameon=False, loc="upper left")
        ax.set_xlabel("")
        ax.tick_params(labelbottom=False)
        below.set_xlabel("confidence", fontsize=8)
        self.ax_, self.histogram_ax_ = ax, below
        self.figure_ = cast("Figure", ax.get_figure(root=True))
        return self


def _room_below(ax: Axes) -> Axes:
    """Return new axes in the lower quarter of `ax`."""
    place, figure = ax.get_subplotspec(), cast("Figure", ax.get_figure())
    if place is None:
        left, bottom, width, height = ax.get_position().bounds
        ax.set_position((left, bottom + 0.38 * height, width, 0.62 * height))
        return figure.add_axes((left, bottom, width, 0.22 * height), sharex=ax)
    halves = place.subgridspec(2, 1, height_ratios=[3, 1])
    ax.set_subplotspec(halves[0])
    return figure.add_subplot(halves[1], sharex=ax)
