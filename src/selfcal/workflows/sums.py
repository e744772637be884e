"""Sums over rows of predictions in a table, and the report that is made of them: no row is kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import chdtrc

from selfcal import __version__, metrics
from selfcal._support.checks import Float, Int
from selfcal.errors import DataError
from selfcal.metrics import CalibrationAccumulator
from selfcal.metrics._claims import thresholds
from selfcal.metrics._streamed import N_RESAMPLES, N_STEPS, STEP, gap_spread
from selfcal.reporting import _verdict
from selfcal.reporting._classes import baseline, estimate
from selfcal.reporting._explorer import RISKS
from selfcal.reporting._names import shown, shown_apart
from selfcal.reporting.content import MethodReport, NoiseFloor, RejectCurve, Report
from selfcal.reporting.summarise import FORMAT, TITLE, bins_of, printable
from selfcal.tabular.cells import as_text, first_row
from selfcal.workflows.layout import Layout

_TABLE = 2**16
"""Maximum range of whole numbers whose classes are looked up in a table."""

_COUNT, _CONFIDENCE, _CORRECT = 1, 3, 4  # the rows of sums over bins


class Sums:
    """Sums over rows of predictions.

    Those of several sets of rows can be merged; the same rows, added in the same batches and order, give the same
    bits.

    Args:
        layout: The columns of the predictions.
        drop_unlabelled: Drop rows without a label, instead of an error.
        n_bins: Number of bins of the calibration error.

    Attributes:
        rows: Number of rows with a label.
        unlabelled: Number of rows without one.
        scores: The accumulator of all metrics.

    Example:
        >>> from selfcal.workflows.layout_search import find_layout
        >>> table = pl.DataFrame({"y": ["no", "yes"], "prob_no": [0.9, 0.2], "prob_yes": [0.1, 0.8]})
        >>> sums = Sums(find_layout(table, "y")).update(table)
        >>> sums.report().methods[0].accuracy.value
        1.0
    """

    def __init__(self, layout: Layout, *, drop_unlabelled: bool = False, n_bins: int = 15) -> None:
        self.layout, self.drop_unlabelled = layout, drop_unlabelled
        self.classes = layout.classes or ("wrong", "right")
        self.rows = self.unlabelled = 0
        # a confidence without classes is the probability of being right, and may be below one half
        of_class = None if layout.columns else 1
        self.scores = CalibrationAccumulator(
            len(self.classes), n_bins=n_bins, details=True, of_class=of_class
        )

    def update(self, part: pl.DataFrame) -> Sums:
        """Add rows of a table."""
        target, start = self.layout.target, self.rows + self.unlabelled
        labels = part[target]
        if labels.dtype.is_float():
            labels = labels.fill_nan(None)
        if labels.null_count():
            if not self.drop_unlabelled:
                raise DataError(
                    f"Column {target!r} must hold a label in every row; row "
                    f"{start + first_row(labels.is_null()):,} has none. Label it, or pass --drop-unlabelled."
                )
            self.unlabelled += labels.null_count()
            part, labels = part.filter(labels.is_not_null()), labels.drop_nulls()
        if part.height:
            self._add(part, labels, start)
            self.rows += part.height
        return self

    def merge(self, other: Sums) -> Sums:
        """Add the sums of other rows."""
        self.scores.merge(other.scores)
        self.rows += other.rows
        self.unlabelled += other.unlabelled
        return self

    def to_dict(self) -> dict[str, Any]:
        """The sums in plain Python, ready for JSON."""
        return {"rows": self.rows, "unlabelled": self.unlabelled, "scores": self.scores.to_dict()}

    def restored(self, state: Mapping[str, Any]) -> Sums:
        """These settings with the sums that `to_dict` returned."""
        made = Sums(self.layout, drop_unlabelled=self.drop_unlabelled, n_bins=self.scores.n_bins)
        made.rows, made.unlabelled = int(state["rows"]), int(state["unlabelled"])
        made.scores.merge(CalibrationAccumulator.from_dict(state["scores"]))
        return made

    def _add(self, part: pl.DataFrame, labels: pl.Series, start: int) -> None:
        if self.layout.columns:
            codes = _codes(self.layout, labels, start)
            plain = _plain(self.layout, part)
            if plain is not None:
                try:
                    self.scores.update(codes, plain)
                    return
                except DataError:
                    pass  # the layout finds the row, and names it and the columns
            self.scores.update(codes, self.layout.probabilities(part, start))
            return
        probs = self.layout.probabilities(part, start)
        self.layout.check_confidence(part, probs[:, 1], start)
        self.scores.update(self.layout.correct(part).to_numpy().astype(np.int64), probs)

    def report(
        self, *, name: str = "predictions", level: float = 0.95, seed: int = 0, **about: Any
    ) -> Report:
        """The report on all rows.

        Args:
            name: The name of the predictions.
            level: The level of the intervals.
            seed: Seed of the draws.
            **about: `title`, `subtitle`, `settings` and `provenance`, as in `summarise`.
        """
        if not self.rows:
            raise DataError("Evaluation needs at least one labelled row; got none.")
        sums = self.scores.sums()
        class_rows = sums["true"][0].astype(int)
        settings, provenance = about.get("settings") or {}, about.get("provenance")
        return Report(
            title=shown(about.get("title", TITLE), 160),
            subtitle=shown(about["subtitle"], 600) if about.get("subtitle") else "",
            format=FORMAT,
            selfcal=__version__,
            rows=self.rows,
            classes=tuple(shown_apart(list(self.classes))),
            class_rows=tuple(class_rows.tolist()),
            level=level,
            n_bins=self.scores.n_bins,
            n_resamples=N_RESAMPLES,
            seed=seed,
            settings={shown(key): shown(value, 200) for key, value in settings.items()},
            provenance=provenance and printable(provenance),
            baseline=baseline(class_rows),
            of_classes=bool(self.layout.columns),
            methods=(self._method(name, sums, level, seed),),
        )

    def _method(self, name: str, sums: Mapping[str, Float], level: float, seed: int) -> MethodReport:
        seen = self.scores.compute(level=level, seed=seed)
        bins, curve = seen.bins, seen.risk_coverage
        assert seen.intervals is not None
        assert seen.noise_floor is not None
        assert seen.kuiper is not None
        assert curve is not None
        spread = gap_spread(sums, bins)
        z = np.divide(bins.gap, spread, out=np.zeros(len(spread)), where=spread > 0)
        binned = float(chdtrc(max(1, int((spread > 0).sum())), float(z @ z)))
        tests = {"bins": binned, "kuiper": seen.kuiper.p_value}
        estimates: dict[str, Any] = {key: estimate(one) for key, one in seen.intervals.items()}
        percent = sums["percent"]
        groups = np.searchsorted(np.arange(1, 101) / 100, _verdict.RANGES[:-1], side="right")
        at_most_chance = thresholds() < 1 / len(self.classes) - 1e-9
        return MethodReport(
            name=shown(name),
            judgement=_verdict.judge(bins, tests, level),
            verdict=_typical(percent, level),
            mean_confidence=bins.mean_confidence,
            **estimates,
            noise_floor=NoiseFloor(seen.noise_floor.mean, seen.noise_floor.low, seen.noise_floor.high),
            log_loss_behind_best=None,
            tests=tests,
            below_chance=0.0
            if self.layout.columns
            else float(sums["histogram"][_COUNT, at_most_chance].sum() / self.rows),
            bins=bins_of(bins, level),
            by_range=_verdict.in_ranges(np.add.reduceat(percent, groups, axis=1), level),
            by_class=_verdict.in_classes(
                sums["chosen"][_COUNT].astype(np.int64),
                sums["chosen"][_CONFIDENCE],
                sums["chosen"][_CORRECT],
                level,
            ),
            reject=_reject(curve, sums, len(self.classes), level),
            worst=None,
        )


def _codes(layout: Layout, labels: pl.Series, start: int) -> Int:
    """The number of the class of each label; whole numbers in a small range are looked up in a table."""
    if labels.dtype.is_integer():
        values = labels.to_numpy()
        low, high = int(values.min()), int(values.max())
        if high - low < _TABLE:
            codes: Int = _table(layout, low, high).take(values if low == 0 else values - low)
            if codes.min() >= 0:
                return codes
    return layout.codes(as_text(labels), start)  # or an error that names the row


@lru_cache(16)
def _table(layout: Layout, low: int, high: int) -> Int:
    """The number of the class of each whole number in a range; -1 for those that are none."""
    numbers = as_text(pl.Series(np.arange(low, high + 1)))
    return layout.known_codes(numbers).cast(pl.Int64).fill_null(-1).to_numpy()


def _plain(layout: Layout, part: pl.DataFrame) -> NDArray[np.floating] | None:
    """The columns as they are, if they are probabilities in numbers of one kind without missing ones."""
    if layout.unit != "probabilities" or len(layout.columns) < 2 or layout.digits is not None:
        return None
    # column by column: what polars does to a whole table waits for the thread that reads the next batch
    columns = [part.get_column(name) for name in layout.columns]
    kinds = {column.dtype for column in columns}
    if (
        len(kinds) > 1
        or not kinds <= {pl.Float32, pl.Float64}
        or any(column.null_count() for column in columns)
    ):
        return None
    return np.stack([column.to_numpy() for column in columns]).T


def _typical(percent: Float, level: float) -> Any:
    """The verdict on the rows with a confidence of about 90%, if there are enough, or on all."""
    rows = percent[_COUNT]
    everything = (
        f"Over all rows, with a mean confidence of {100 * percent[_CONFIDENCE].sum() / rows.sum():.0f}%"
    )
    when, chosen = everything, slice(None)
    if rows[85:95].sum() >= _verdict.ENOUGH_ROWS:
        when, chosen = "When its confidence is about 90%", slice(85, 95)
    elif rows[95:].sum() >= _verdict.ENOUGH_ROWS:
        when, chosen = "When its confidence is above 95%", slice(95, None)
    _, n, _, claimed, right = percent[:, chosen].sum(axis=1).tolist()
    return _verdict.verdict_on(when, rows=int(n), claimed=claimed / n, right=right / n, level=level)


def _reject(curve: metrics.RiskCoverageCurve, sums: Mapping[str, Float], k: int, level: float) -> RejectCurve:
    """Coverage and risk at the thresholds for which the confusion matrix is kept, as in `explore`."""
    steps = sums["histogram"].reshape(5, N_STEPS, STEP).sum(axis=2)
    last = int(np.flatnonzero(steps[_COUNT])[-1])  # the step of the lowest confidence; all rows are above 0
    grid = np.append(thresholds()[STEP - 1 :: STEP][:last], 0.0)[::-1]
    accepted = np.cumsum(steps[_COUNT, : last + 1])[::-1].astype(np.int64)
    errors = np.cumsum((steps[_COUNT] - steps[_CORRECT])[: last + 1])[::-1].round().astype(np.int64)
    low, high = metrics.wilson_interval(errors / np.maximum(accepted, 1), accepted, level=level)
    start = int(np.searchsorted(grid, 0.9))
    if start == len(grid) or accepted[start] < 0.1 * accepted[0]:
        start = int(np.flatnonzero(accepted >= 0.8 * accepted[0])[-1])
    cells = []
    if sums["confusion"].size:
        counts = sums["confusion"].reshape(k, k, N_STEPS)[..., : last + 1][..., ::-1].astype(np.int64)
        cells = [(i, j, tuple(counts[i, j].tolist())) for i, j in np.argwhere(counts.any(axis=2)).tolist()]
    return RejectCurve(
        aurc=curve.aurc,
        excess_aurc=curve.excess_aurc,
        answered_at_risk=tuple((risk, curve.coverage_at_risk(risk)) for risk in RISKS),
        thresholds=tuple(grid.tolist()),
        accepted=tuple(accepted.tolist()),
        errors=tuple(errors.tolist()),
        risk_low=tuple(low.tolist()),
        risk_high=tuple(high.tolist()),
        start=start,
        cells=tuple(cells),
    )
