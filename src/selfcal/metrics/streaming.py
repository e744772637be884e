"""Calibration metrics of predictions in batches, in constant memory and over several processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.binning import (
    Bins,
    Chunk,
    Closed,
    bins_from_sums,
    check_binning,
    chunk_sums,
    gap_norm,
    indexed_sums,
    uniform_edges,
)
from selfcal._support.checks import Float
from selfcal.errors import ConfigError, DataError
from selfcal.metrics import _streamed
from selfcal.metrics._claims import DEGREES, ClaimMoments, no_totals, partition_sums
from selfcal.metrics._rows import Block, blocks
from selfcal.metrics.calibration import NoiseFloor
from selfcal.metrics.classwise import column_bins, column_sums
from selfcal.metrics.intervals import ROW_SCORES, Interval, known_level
from selfcal.metrics.selective import RiskCoverageCurve
from selfcal.metrics.significance import CalibrationTest

_DEGREES = {
    "top_label": (1, 0, 2, 1, 1),
    "scores": (1, 1),
    "classwise": (1, 0, 2, 1, 1),
    "claims": DEGREES,
    "score_squares": (2, 2),
    "chosen": (1, 0, 2, 1, 1),
    "true": (1,),
    "confusion": (1,),
}
"""The sums, and the power of the weights in each row of them."""


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
        intervals: The intervals of accuracy, ECE, log loss and Brier score, by name.
        noise_floor: The ECE that a perfectly calibrated model shows by chance.
        kuiper: The test by the largest surplus or deficit of hits in any range of confidences.
        risk_coverage: The risk-coverage curve, with thresholds at steps of less than 1% of the doubt, 1 - confidence.
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
    intervals: Mapping[str, Interval] | None = None
    noise_floor: NoiseFloor | None = None
    kuiper: CalibrationTest | None = None
    risk_coverage: RiskCoverageCurve | None = None


class CalibrationAccumulator:
    """Accumulates sums over batches, from which accuracy, scores and calibration errors of all rows are computed.

    The memory does not grow with the rows: five sums per bin (and per class and bin with `classwise`), two for the
    scores, and with `details` a fine histogram. Bins are of equal width; bins of equal weight would need every row.
    Accumulators of other processes are added with `merge` or `+`, in the same order to the same bits; they can be
    pickled, and written as JSON with `to_dict`.

    Args:
        n_classes: Number of classes.
        n_bins: Number of bins.
        closed: "right" for bins (a, b], "left" for [a, b).
        classes: The label of each column, if labels are not codes.
        scores: Whether to keep log loss and Brier score.
        classwise: Whether to keep the bins of every class.
        details: Whether to keep what intervals, noise floor and risk-coverage curve need, in 20,000 more sums.
        of_class: The class whose probability is evaluated as the confidence; the top label's if None.

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
        details: bool = False,
        of_class: Any = None,
    ) -> None:
        check_binning(n_bins, "uniform", closed)
        self.n_classes = checks.positive_int("n_classes", n_classes, low=2)
        self.n_bins = n_bins
        self.closed = closed
        self.classes = None if classes is None else checks.as_array(classes).tolist()
        checks.label_codes([], n_classes, self.classes)
        self.scores = checks.boolean("scores", scores)
        self.classwise = checks.boolean("classwise", classwise)
        self.details = checks.boolean("details", details)
        self.of_class = checks.plain(of_class)
        self._code = (
            None
            if of_class is None
            else int(checks.label_codes([of_class], n_classes, self.classes, name="of_class")[0])
        )
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
        moments = None
        if self.details:
            moments = ClaimMoments(self.n_bins, self.closed, weighted=sample_weight is not None)
        for block in blocks(y_true, probs, self.classes, sample_weight):
            if len(block.columns) != self.n_classes:
                raise DataError(f"probs must have {self.n_classes} columns; got {len(block.columns)}.")
            self._add_block(added, block, moments)
        if moments is not None:
            added |= {"claims": moments.totals()} | self._of_classes(added)
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

    def compute(self, *, level: float = 0.95, seed: int = 0) -> RunningCalibration:
        """Return the metrics of all rows so far.

        Args:
            level: The level of the intervals, if there are `details`.
            seed: Seed of the draws for the interval of the ECE and the noise floor, which are per bin.
        """
        known_level(level)
        edges = uniform_edges(self.n_bins)
        sums = self.sums()
        weight = float(sums["top_label"][0].sum())
        if not weight:
            raise DataError("The accumulator must have rows; it has none. Call update first.")
        bins = bins_from_sums(sums["top_label"], edges, self.closed)
        means = dict(zip(("log_loss", "brier_score"), (sums["scores"] / weight).tolist(), strict=False))
        details: dict[str, Any] = {}
        if self.details:
            details = {
                "intervals": _streamed.intervals(sums, bins, means, level, seed),
                "noise_floor": _streamed.noise_floor(sums, bins, seed),
                "kuiper": _streamed.kuiper(sums),
                "risk_coverage": _streamed.curve(sums),
            }
        return RunningCalibration(
            n=int(bins.count.sum()),
            bins=bins,
            accuracy=float(sums["top_label"][4].sum() / weight),
            ece=float(gap_norm(bins.share, bins.gap, "l1")),
            ece_l2=float(gap_norm(bins.share, bins.gap, "l2")),
            max_error=float(gap_norm(bins.share, bins.gap, "max")),
            log_loss=means.get("log_loss"),
            brier_score=means.get("brier_score"),
            classwise_ece=self._classwise_error(edges) if self.classwise else None,
            **details,
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
            made._add(made._zeros() | sums, exponent)
        return made

    def sums(self) -> dict[str, Float]:
        """Return a copy of the sums, for what `compute` leaves out; large or small weights are scaled."""
        sums = {name: values.copy() for name, values in self._sums.items()}
        return sums | partition_sums(sums["claims"], self.n_bins, self.closed) if self.details else sums

    def _settings(self) -> dict[str, Any]:
        names = ("n_classes", "n_bins", "closed", "classes", "scores", "classwise", "details", "of_class")
        return {name: getattr(self, name) for name in names}

    def _zeros(self) -> dict[str, Float]:
        k, details = self.n_classes, self.details
        confused = k**2 * _streamed.N_STEPS if details and k <= _streamed.MOST_CONFUSED else 0
        shapes = {
            "top_label": (5, 0 if details else self.n_bins),  # else from the claims
            "scores": (2 * self.scores,),
            "classwise": (5, k, self.classwise * self.n_bins),
            "score_squares": (2 * self.scores, 2 * details),
            "chosen": (5, details * k),
            "true": (1, details * k),
            "confusion": (1, confused),
        }
        claims = no_totals(self.n_bins, self.closed) if details else np.zeros((len(DEGREES), 0))
        return {"claims": claims, **{name: np.zeros(shape) for name, shape in shapes.items()}}

    def _add_block(self, sums: dict[str, Float], block: Block, moments: ClaimMoments | None) -> None:
        """Add the rows of a block to sums, but to moments where these have the sums over claims."""
        edges, values = uniform_edges(self.n_bins), []
        if self.scores:
            values = [ROW_SCORES[name](block) for name in ("log_loss", "brier_score")]
            sums["scores"] += [_total(v, block.weight) for v in values]
        if self.classwise:
            sums["classwise"] += column_sums(block, edges, self.closed)
        claim = block.top_label() if self._code is None else block.of_class(self._code)
        if moments is None:
            sums["top_label"] += chunk_sums(claim, edges, self.closed)
            return
        if values:
            sums["score_squares"] += [_streamed.score_squares(v, block.weight) for v in values]
        self._add_details(sums, block, claim, moments)

    def _add_details(self, sums: dict[str, Float], block: Block, claim: Chunk, moments: ClaimMoments) -> None:
        """Add the claims to the moments; the sums of each predicted and each true class, and the confusions."""
        k, codes, weight = self.n_classes, block.codes, block.weight
        claim = claim._replace(confidence=claim.confidence.astype(np.float64, copy=False))
        chosen = block.choice if self._code is None else np.full(len(codes), self._code)
        cell = moments.add(claim)
        if sums["confusion"].size:
            place = codes * k
            place += chosen
            place *= _streamed.N_STEPS
            place += cell // _streamed.STEP
            np.add.at(sums["confusion"][0], place, 1.0 if weight is None else weight)
        if sums["confusion"].size and weight is None and self._code is None:
            np.add.at(sums["chosen"][3], chosen, claim.confidence)  # the others are in the confusions
        else:
            sums["chosen"] += indexed_sums(chosen, claim, k)
            sums["true"] += np.bincount(codes, weight, minlength=k)

    def _of_classes(self, sums: Mapping[str, Float]) -> dict[str, Float]:
        """The sums of each predicted and each true class, if only those of confidence were added."""
        k = self.n_classes
        if not sums["confusion"].size or sums["true"].any():
            return {}
        pairs = sums["confusion"].reshape(k, k, -1).sum(axis=2)
        rows = pairs.sum(axis=0)
        chosen = np.stack([rows, rows, rows, sums["chosen"][3], pairs.diagonal()])
        return {"chosen": chosen, "true": pairs.sum(axis=1)[None]}

    def _add(self, sums: dict[str, Float], exponent: int) -> None:
        """Add sums of weights that were divided by 2 to `exponent`; the larger of both exponents stays."""
        mine = exponent if self._exponent is None else self._exponent
        self._exponent = max(mine, exponent)
        first, second = _shifted(self._sums, mine - self._exponent), _shifted(sums, exponent - self._exponent)
        self._sums = {name: values + second[name] for name, values in first.items()}

    def _classwise_error(self, edges: Float) -> float:
        curves = column_bins(self._sums["classwise"], edges, self.closed)
        return float(np.mean([gap_norm(curve.share, curve.gap, "l1") for curve in curves]))


def _total(values: Float, weight: Float | None) -> float:
    return float(values.sum()) if weight is None else _streamed.dot(weight, values)


def _exponent(sample_weight: ArrayLike) -> int:
    return checks.weight_exponent(checks.numbers(sample_weight, "sample_weight"))


def _shifted(sums: dict[str, Float], by: int) -> dict[str, Float]:
    """The same sums for weights times 2 to `by`: those of weights, of counts and of squares."""
    if not by:
        return sums
    powers = {name: np.array(_DEGREES[name][: len(values)]) for name, values in sums.items()}
    return {
        name: np.ldexp(values, by * powers[name].reshape(-1, *[1] * (values.ndim - 1)))
        for name, values in sums.items()
    }
