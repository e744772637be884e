"""A full calibration report of some predictions."""

from __future__ import annotations

import dataclasses
import html
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal._support import checks
from selfcal._support.binning import Bins, bin_chunks
from selfcal._support.checks import Float
from selfcal.metrics._resampling import resampled_errors
from selfcal.metrics._rows import claims
from selfcal.metrics.bootstrap import calibration_error_interval
from selfcal.metrics.calibration import NoiseFloor, adaptive_calibration_error, maximum_calibration_error
from selfcal.metrics.classwise import classwise_calibration_error
from selfcal.metrics.confidence import overconfidence, underconfidence
from selfcal.metrics.decomposition import Decomposition, brier_decomposition
from selfcal.metrics.intervals import Interval, score_interval, wilson_interval
from selfcal.metrics.kernel import mmce, smooth_calibration_error
from selfcal.metrics.multiclass import kernel_calibration_test
from selfcal.metrics.significance import (
    CalibrationTest,
    kolmogorov_smirnov_test,
    kuiper_test,
    resampling_p_value,
    spiegelhalter_test,
)

KERNEL_PAIRS = 20_000_000
"""Pairs of rows used by the kernel test of a report, which take about a second."""


@dataclass(frozen=True, eq=False)
class CalibrationReport:
    """A calibration report: `print` it, show it in a notebook, or store `to_dict()`.

    Attributes:
        n: Number of rows.
        classes: The label of each column.
        n_bins: Number of bins of equal width, (a, b], of all binned errors.
        level: The level of all intervals.
        accuracy: Fraction of rows whose most probable class is the true one.
        log_loss: Mean negative log probability of the true class.
        brier_score: Mean squared distance to the one-hot label, a sum over the classes: from 0 to 2.
        brier_parts: The Brier score decomposed into calibration and refinement.
        ece: Top-label calibration error, with an interval for its value without noise.
        noise_floor: The calibration error that a perfectly calibrated model would have on this many rows.
        errors: Other calibration errors by name.
        tests: Tests of calibration, by name.
        bins: Confidence and accuracy per bin.
        bin_low: Lower ends of the Wilson intervals of the accuracy in each bin.
        bin_high: Upper ends.
    """

    n: int
    classes: tuple[Any, ...]
    n_bins: int
    level: float
    accuracy: Interval
    log_loss: Interval
    brier_score: Interval
    brier_parts: Decomposition
    ece: Interval
    noise_floor: NoiseFloor
    errors: dict[str, float]
    tests: dict[str, CalibrationTest]
    bins: Bins
    bin_low: Float
    bin_high: Float

    @property
    def verdict(self) -> str:
        """One sentence in plain language.

        A calibrated model is called miscalibrated with probability at most 1 - level: half of that is for the test of
        the ECE, the other half is divided equally between the other tests.
        """
        claimed, right = 100 * self.bins.mean_confidence, 100 * self.bins.mean_accuracy
        summary = f"its mean confidence is {claimed:.1f}% and its accuracy {right:.1f}%"
        noise = f"where noise alone gives {self.noise_floor.mean:.4f} on average"
        found = [name for name, test in self.tests.items() if test.p_value < self._significance_level(name)]
        if not found:
            return f"No sign of miscalibration: {summary}; its ECE is {self.ece.value:.4f} {noise}."
        if "consistency" not in found:
            return f"Miscalibrated, though not in the ECE: {summary}, but the {found[0]} test is significant."
        over, under = self.errors["overconfidence"], self.errors["underconfidence"]
        kind = "Over-confident for some confidences, under-confident for others"
        if max(over, under) > 3 * min(over, under):
            kind = "Over-confident" if over > under else "Under-confident"
        return f"{kind}: {summary}; its ECE is {self.ece.value:.4f} {noise}."

    def to_dict(self) -> dict[str, Any]:
        """Return all of it in plain Python, ready for JSON; infinite numbers become None."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _plain({"verdict": self.verdict, **fields})

    def __str__(self) -> str:
        rows = [f"{name:<36}{value}" for name, value in self._values()]
        table = ["{:>15}{:>9}{:>12}{:>10}  {}".format(*row) for row in self._bin_rows()]
        return "\n".join([self.verdict, "", *rows, "", *table])

    def _repr_html_(self) -> str:
        values = "".join(_html_row(row, "td") for row in self._values())
        head, *bins = self._bin_rows()
        table = _html_row(head, "th") + "".join(_html_row(row, "td") for row in bins)
        return (
            f"<p><b>{html.escape(self.verdict)}</b></p><table>{values}</table>"
            f"<details><summary>Bins</summary><table>{table}</table></details>"
        )

    def _significance_level(self, test: str) -> float:
        return (1 - self.level) / 2 / (1 if test == "consistency" else len(self.tests) - 1)

    def _values(self) -> list[tuple[str, str]]:
        floor, parts = self.noise_floor, self.brier_parts
        scores = {
            "accuracy": self.accuracy,
            "log loss": self.log_loss,
            "Brier score, 0 to 2": self.brier_score,
        }
        return [
            ("rows, classes", f"{self.n:,}, {len(self.classes)}"),
            *((f"{name} [{self.level:.0%} interval]", str(score)) for name, score in scores.items()),
            ("  calibration + refinement", f"{parts.calibration:.4f} + {parts.refinement:.4f}"),
            (f"ECE, {self.n_bins} bins [{self.level:.0%} interval]", str(self.ece)),
            ("  noise floor [5-95%]", f"{floor.mean:.4f} [{floor.low:.4f}, {floor.high:.4f}]"),
            *((name.replace("_", " "), f"{value:.4f}") for name, value in self.errors.items()),
            *((f"p, {name.replace('_', '-')} test", f"{t.p_value:.3g}") for name, t in self.tests.items()),
        ]

    def _bin_rows(self) -> list[tuple[str, ...]]:
        bins = self.bins
        rows: list[tuple[str, ...]] = [
            ("confidence", "rows", "confidence", "accuracy", f"[{self.level:.0%} interval]")
        ]
        for b in np.flatnonzero(bins.weight):
            rows.append(
                (
                    f"{bins.edges[b]:.3f}-{bins.edges[b + 1]:.3f}",
                    f"{bins.count[b]:,}",
                    f"{bins.confidence[b]:.4f}",
                    f"{bins.accuracy[b]:.4f}",
                    f"[{self.bin_low[b]:.4f}, {self.bin_high[b]:.4f}]",
                )
            )
        return rows


def calibration_report(
    y_true: ArrayLike,
    probs: ArrayLike,
    *,
    n_bins: int = 15,
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
    classes: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> CalibrationReport:
    """Evaluate predictions: scores, calibration errors, their noise floor, tests and bins.

    Args:
        y_true: Labels, codes 0..k-1 or names from `classes`.
        probs: Probabilities, one row per sample and one column per class.
        n_bins: Number of bins of equal width.
        level: The probability with which intervals should cover the true value.
        n_resamples: Number of resampled label sets for the noise floor and the p-values.
        seed: Seed of all draws.
        classes: The label of each column, if labels are not codes.
        sample_weight: One non-negative weight per row.

    Returns:
        The report, with the verdict in the first line of its text.

    >>> rng = np.random.default_rng(0)
    >>> right = rng.random(500) < 0.8
    >>> report = calibration_report(np.where(right, 0, 1), np.tile([0.95, 0.05], (500, 1)))
    >>> report.verdict.split(":")[0]
    'Over-confident'
    >>> report.ece.low > report.noise_floor.high
    True
    """
    claimed = claims(y_true, probs, classes, sample_weight)
    bins = bin_chunks([claimed], n_bins=n_bins)
    k = checks.as_array(probs).shape[1]
    common: dict[str, Any] = {"classes": classes, "sample_weight": sample_weight}
    scores = {
        score: score_interval(y_true, probs, score=score, level=level, **common)
        for score in ("accuracy", "log_loss", "brier_score")
    }
    ece = calibration_error_interval(y_true, probs, n_bins=n_bins, level=level, seed=seed, **common)
    resampled = resampled_errors(claimed, bins, norm="l1", n_resamples=n_resamples, seed=seed)
    floor_low, floor_high = np.quantile(resampled, [0.05, 0.95]).tolist()
    bin_low, bin_high = wilson_interval(bins.accuracy, bins.effective_count, level=level)
    binned = {"n_bins": n_bins, **common}
    errors = {
        "maximum_error": maximum_calibration_error(y_true, probs, **binned),
        "adaptive_error": adaptive_calibration_error(y_true, probs, **binned),
        "classwise_error": classwise_calibration_error(y_true, probs, **binned),
        "smooth_error": smooth_calibration_error(y_true, probs, **common),
        "mmce": mmce(y_true, probs, **common),
        "overconfidence": overconfidence(y_true, probs, **binned),
        "underconfidence": underconfidence(y_true, probs, **binned),
    }
    pairs = int(np.clip(KERNEL_PAIRS // len(claimed.confidence), 50, 200))
    resampling = {"n_resamples": n_resamples, "seed": seed}
    tests = {
        "consistency": CalibrationTest(ece.value, resampling_p_value(ece.value, resampled)),
        "spiegelhalter": spiegelhalter_test(y_true, probs, **common),
        "kolmogorov_smirnov": kolmogorov_smirnov_test(y_true, probs, **common),
        "kuiper": kuiper_test(y_true, probs, **common),
        "kernel": kernel_calibration_test(y_true, probs, block_size=pairs, **resampling, **common),
    }
    return CalibrationReport(
        n=len(claimed.confidence),
        classes=tuple(range(k) if classes is None else map(checks.plain, checks.as_array(classes))),
        n_bins=n_bins,
        level=level,
        **scores,
        brier_parts=brier_decomposition(y_true, probs, **common),
        ece=ece,
        noise_floor=NoiseFloor(mean=float(resampled.mean()), low=floor_low, high=floor_high),
        errors=errors,
        tests=tests,
        bins=bins,
        bin_low=bin_low,
        bin_high=bin_high,
    )


def _html_row(cells: tuple[str, ...], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    value = checks.plain(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
