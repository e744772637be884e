"""Coverage, risk and confusion for a grid of thresholds on the confidence: the numbers behind the slider."""

from __future__ import annotations

import numpy as np

from selfcal import metrics
from selfcal._support.checks import Float, Int
from selfcal.reporting.content import RejectCurve
from selfcal.reporting.predictions import Predictions

FULL_MATRIX_CLASSES = 10
PAIRS_SHOWN = 10
RISKS = (0.01, 0.02, 0.05, 0.1)
NUMBERS = 250_000
"""Maximum number of values that all the explorers of a page hold together."""


def thresholds(confidence: Float, steps: int) -> Float:
    """Thresholds for the slider: round ones, and ones that each reject the same fraction of the rows.

    The second kind is rounded to three digits of 1 - t, so that the value shown is the value used.

    >>> thresholds(np.array([0.86, 0.99917, 0.99983]), steps=24)
    array([0.     , 0.9    , 0.95   , 0.99917, 1.     ])
    """
    round_ones = np.arange(101) / 100 if steps >= 200 else np.arange(21) / 20
    n_even = steps - len(round_ones)
    fractions = np.arange(1, n_even) / n_even
    doubt = 1 - np.quantile(confidence, fractions, method="inverted_cdf")
    digits = 2 - np.floor(np.log10(np.clip(doubt, 1e-9, None))).astype(int)
    even_ones = [round(1 - round(d, n), n) for d, n in zip(doubt.tolist(), digits.tolist(), strict=True)]
    grid = np.unique(np.concatenate([round_ones, even_ones]))
    useful = np.searchsorted(grid, confidence.min(), side="right") - 1  # below it, all rows are accepted
    return np.concatenate([[0.0], grid[max(useful, 0) + 1 :]])


def explore(judged: Predictions, *, level: float, cells: int, n_methods: int) -> RejectCurve:
    """Accepted rows, mistakes among them and their confusion, at each threshold; rows at it are accepted.

    Args:
        judged: The predictions.
        level: The level of the intervals of the risk.
        cells: Maximum number of lists of confusion counts of a method.
        n_methods: Number of methods on the page.

    Returns:
        The counts, and for each cell (true, predicted) how many of its rows the step to the next threshold loses;
        also the areas under the whole curve, and the coverage at some risks.
    """
    steps = int(np.clip(NUMBERS // (cells * n_methods), 40, 200))
    grid = thresholds(judged.confidence, steps)
    place = np.searchsorted(grid, judged.confidence, side="right") - 1
    accepted = _at_or_above(place, len(grid))
    errors = _at_or_above(place[~judged.correct], len(grid))
    low, high = metrics.wilson_interval(errors / np.maximum(accepted, 1), accepted, level=level)
    start = int(np.searchsorted(grid, 0.9))
    if start == len(grid) or accepted[start] < 0.1 * len(place):
        start = int(np.flatnonzero(accepted >= 0.8 * len(place))[-1])
    curve = metrics.confidence_risk_coverage_curve(judged.correct, judged.confidence)
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
        cells=tuple(_cells(judged, place, len(grid))),
    )


def _at_or_above(place: Int, length: int) -> Int:
    return np.bincount(place, minlength=length)[::-1].cumsum()[::-1]


def _cells(judged: Predictions, place: Int, length: int) -> list[tuple[int, int, tuple[int, ...]]]:
    """`(true, predicted, counts)` of every cell of a small matrix, or of the mistakes that lead at some threshold."""
    k = judged.probs.shape[1]
    rows = np.flatnonzero(np.ones(len(place)) if k <= FULL_MATRIX_CLASSES else ~judged.correct)
    code, cell = np.unique(judged.y[rows] * k + judged.chosen[rows], return_inverse=True)
    step = place[rows]
    kept = np.arange(len(code)) if k <= FULL_MATRIX_CLASSES else _leading(cell, step, len(code))
    listed = np.isin(cell, kept)
    column = np.searchsorted(kept, cell[listed])
    counts = np.bincount(column * length + step[listed], minlength=len(kept) * length)
    return [
        (*divmod(int(code[index]), k), tuple(of_cell.tolist()))
        for index, of_cell in zip(kept, counts.reshape(-1, length), strict=True)
    ]


def _leading(cell: Int, step: Int, n_cells: int) -> Int:
    """The cells that are among the most frequent at some threshold; of equals, the first."""
    order = np.argsort(-step, kind="stable")
    changes = np.flatnonzero(np.diff(step[order])) + 1
    leaders: set[int] = set()
    if n_cells == 0:
        return np.zeros(0, dtype=np.int64)
    count = np.zeros(n_cells, dtype=np.int64)
    for added in np.split(cell[order], changes):
        count += np.bincount(added, minlength=n_cells)
        ahead = count * n_cells - np.arange(n_cells)
        top = np.argpartition(-ahead, min(PAIRS_SHOWN, n_cells) - 1)[:PAIRS_SHOWN]
        leaders.update(int(index) for index in top if count[index])
    return np.array(sorted(leaders), dtype=np.int64)
