"""Calibration metrics of predictions in batches, in constant memory and over several processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.binning import (
    Bins,
    Closed,
    bins_from_sums,
    check_binning,
    chunk_sums,
    gap_norm,
    uniform_edges,
)
from selfcal._support.checks import Float
from selfcal.errors import ConfigError, DataError
from selfcal.metrics._rows import blocks
from selfcal.metrics.classwise import column_bins, column_sums
from selfcal.metrics.intervals import ROW_SCORES


@dataclass(frozen=True)
class RunningCalibration:
    """The metrics of an accumulator so far; None for those it does not keep.

    Attributes:
        n: Number of rows with positive weight.
        bins: Confidence and accuracy of the top label, per bin.
        accuracy: Fraction of rows whose most probable class is the true one.
        ece: Top-label calibration error over the bins.
        ece_l2: Its root mean square form.
        max_error: The gap of the worst bin.
        log_loss: Mean negative log probability of the true class.
        brier_score: Mean squared distance to the one-hot label.
        classwise_ece: Mean over the classes of the calibration error of their probability.
    """

    n: int
    bins: Bins
    accuracy: float
    ece: float
    ece_l2: float
    max_error: float
    log_loss: float | None
    brier_score: float | None
    classwise_ece: float | None


class CalibrationAccumulator:
    """Accumulates sums over batches, from which accuracy, scores and calibration errors of all rows are computed.

    The memory does not grow with the rows: five sums per bin (and per class and bin with `classwise`), two for the
    scores. Bins are of equal width; bins of equal weight would need every row. Accumulators of other processes are
    added with `merge` or `+`; they can be pickled, and written as JSON with `to_dict`.

    Args:
        n_classes: Number of classes.
        n_bins: Number of bins.
        closed: "right" for bins (a, b], "left" for [a, b).
        classes: The label of each column, if labels are not codes.
        scores: Whether to keep log loss and Brier score.
        classwise: Whether to keep the bins of every class.

    >>> seen = CalibrationAccumulator(2)
    >>> seen.update([0, 1], [[0.9, 0.1], [0.2, 0.8]]).update([1], [[0.6, 0.4]]).compute().n
    3
    """

    def __init__(
        self,
        n_classes: int,
        *,
        n_bins: int = 15,
        closed: Closed = "right",
        classes: ArrayLike | None = None,
        scores: bool = True,
        classwise: bool = False,
    ) -> None:
        check_binning(n_bins, "uniform", closed)
        self.n_classes = checks.positive_int("n_classes", n_classes, low=2)
        self.n_bins = n_bins
        self.closed = closed
        self.classes = None if classes is None else checks.as_array(classes).tolist()
        checks.label_codes([], n_classes, self.classes)
        self.scores = checks.boolean("scores", scores)
        self.classwise = checks.boolean("classwise", classwise)
        self._sums = self._zeros()
        self._exponent: int | None = None  # the sums are of weights divided by 2 to this power

    def update(
        self, y_true: ArrayLike, probs: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> CalibrationAccumulator:
        """Add rows; nothing is added if any of them is invalid.

        Args:
            y_true: Labels, codes 0..k-1 or names from `classes`.
            probs: Probabilities, one row per sample and one column per class.
            sample_weight: One non-negative weight per row.

        Returns:
            The accumulator itself.
        """
        added = self._zeros()
        edges = uniform_edges(self.n_bins)
        for block in blocks(y_true, probs, self.classes, sample_weight):
            if len(block.columns) != self.n_classes:
                raise DataError(f"probs must have {self.n_classes} columns; got {len(block.columns)}.")
            added["top_label"] += chunk_sums(block.top_label(), edges, self.closed)
            if self.scores:
                for i, name in enumerate(("log_loss", "brier_score")):
                    values = ROW_SCORES[name](block)
                    added["scores"][i] += values.sum() if block.weight is None else block.weight @ values
            if self.classwise:
                added["classwise"] += column_sums(block, edges, self.closed)
        self._add(added, 0 if sample_weight is None else _exponent(sample_weight))
        return self

    def merge(self, other: CalibrationAccumulator) -> CalibrationAccumulator:
        """Add the sums of another accumulator with the same settings, and return this one."""
        theirs = other._settings()
        for name, mine in self._settings().items():
            if mine != theirs[name]:
                raise ConfigError(
                    f"Accumulators must have the same {name} to be merged; got {mine!r} and {theirs[name]!r}."
                )
        if other._exponent is not None:
            self._add(other._sums, other._exponent)
        return self

    def __add__(self, other: CalibrationAccumulator) -> CalibrationAccumulator:
        """Return a new accumulator with the rows of both."""
        return CalibrationAccumulator(**self._settings()).merge(self).merge(other)

    def compute(self) -> RunningCalibration:
        """Return the metrics of all rows so far."""
        edges = uniform_edges(self.n_bins)
        top_label = self._sums["top_label"]
        weight = float(top_label[0].sum())
        if not weight:
            raise DataError("The accumulator must have rows; it has none. Call update first.")
        bins = bins_from_sums(top_label, edges, self.closed)
        log_loss, brier_score = (self._sums["scores"] / weight).tolist() if self.scores else (None, None)
        return RunningCalibration(
            n=int(bins.count.sum()),
            bins=bins,
            accuracy=float(top_label[4].sum() / weight),
            ece=float(gap_norm(bins.share, bins.gap, "l1")),
            ece_l2=float(gap_norm(bins.share, bins.gap, "l2")),
            max_error=float(gap_norm(bins.share, bins.gap, "max")),
            log_loss=log_loss,
            brier_score=brier_score,
            classwise_ece=self._classwise_error(edges) if self.classwise else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return settings and sums in plain Python, ready for JSON."""
        sums = {name: values.tolist() for name, values in self._sums.items()}
        return {**self._settings(), "sums": sums, "exponent": self._exponent}

    @classmethod
    def from_dict(cls, state: dict[str, Any]) -> CalibrationAccumulator:
        """Return the accumulator from the result of `to_dict`."""
        made = cls(**{name: value for name, value in state.items() if name not in ("sums", "exponent")})
        exponent = state.get("exponent", 0)
        if exponent is not None:
            sums = {name: np.array(values, dtype=np.float64) for name, values in state["sums"].items()}
            made._add(sums, exponent)
        return made

    def _settings(self) -> dict[str, Any]:
        names = ("n_classes", "n_bins", "closed", "classes", "scores", "classwise")
        return {name: getattr(self, name) for name in names}

    def _zeros(self) -> dict[str, Float]:
        shapes = {
            "top_label": (5, self.n_bins),
            "scores": (2 * self.scores,),
            "classwise": (5, self.n_classes, self.classwise * self.n_bins),
        }
        return {name: np.zeros(shape) for name, shape in shapes.items()}

    def _add(self, sums: dict[str, Float], exponent: int) -> None:
        """Add sums of weights that were divided by 2 to `exponent`; the larger of both exponents stays."""
        mine = exponent if self._exponent is None else self._exponent
        self._exponent = max(mine, exponent)
        first, second = _shifted(self._sums, mine - self._exponent), _shifted(sums, exponent - self._exponent)
        self._sums = {name: values + second[name] for name, values in first.items()}

    def _classwise_error(self, edges: Float) -> float:
        curves = column_bins(self._sums["classwise"], edges, self.closed)
        return float(np.mean([gap_norm(curve.share, curve.gap, "l1") for curve in curves]))


def _exponent(sample_weight: ArrayLike) -> int:
    return checks.weight_exponent(checks.numbers(sample_weight, "sample_weight"))


def _shifted(sums: dict[str, Float], by: int) -> dict[str, Float]:
    """The same sums for weights times 2 to `by`; of the sums of a bin, one is a count and one of squares."""
    if not by:
        return sums
    degrees = np.array([1, 0, 2, 1, 1])
    return {
        name: np.ldexp(values, by if name == "scores" else by * degrees.reshape(-1, *[1] * (values.ndim - 1)))
        for name, values in sums.items()
    }
