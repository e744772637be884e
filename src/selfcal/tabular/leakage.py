"""Target leakage: columns that predict the target nearly perfectly by themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from selfcal._support.checks import Float, Int
from selfcal.metrics import wilson_interval
from selfcal.tabular.copies import n_groups
from selfcal.tabular.schema import Schema
from selfcal.tabular.target import Target

MIN_ERROR_REDUCTION = 0.9
"""A column is reported if, by itself, it avoids this fraction of the errors of predicting the most frequent class.

No model can avoid more than all of them, so such a column alone is nearly as good as any model. Noisy copies of the
target and codes that determine it reach the limit; legitimate columns rarely do.
"""

CONFIDENCE_LEVEL = 0.9
"""The whole interval of this level must be above the limit, which takes about 60 rows."""

MAX_ROWS, MAX_SCREENING_ROWS = 20_000, 1_000
"""Rows used per column, and rows of a first screening that rejects most columns."""

BIN_ROWS = 10
"""Neighbouring numbers are binned, with about this many rows per bin."""

Mask = NDArray[np.bool_]


def leaks(values: Float, schema: Schema, target: Target, groups: Int, *, seed: int = 0) -> tuple[str, ...]:
    """Return a warning for each column that predicts the target nearly perfectly by itself.

    The rows are split into two halves, with copies and groups on one side. A small model of one column, fitted on one
    half, predicts the other: the most frequent class of each category, or of each bin of `BIN_ROWS` neighbouring
    numbers. There is no warning for a table with a single column, nor with fewer than `BIN_ROWS` rows per class.

    Args:
        values: The values of the labelled rows, as `column_values` returns them.
        schema: The columns.
        target: The labels of these rows.
        groups: The number of the group of each row.
        seed: Seed of the split into halves.

    Example:
        >>> from selfcal.tabular.schema import column_values
        >>> from selfcal.tabular.inference import infer_schema
        >>> from selfcal.tabular.target import read_target
        >>> import polars as pl
        >>> x, paid, y = [i % 7 for i in range(100)], ["y", "n"] * 50, ["1", "0"] * 50
        >>> table = pl.DataFrame({"x": x, "paid": paid, "y": y})
        >>> schema = infer_schema(table, target="y")
        >>> leaks(column_values(table, schema), schema, read_target(table, "y"), np.arange(100))
        ("Column 'paid' predicts the target 'y' in 100% of the held-out rows by itself. If it is known only after the
        outcome, leave it out with --kind paid=drop; otherwise the results are too optimistic.",)
    """
    codes, n_classes = target.codes, len(target.classes)
    if len(schema.used) < 2 or min(len(codes), MAX_ROWS) < BIN_ROWS * n_classes:
        return ()
    rng = np.random.default_rng(seed)
    half = rng.permutation(np.arange(n_groups(groups)) % 2)[groups].astype(bool)
    order = rng.permutation(len(codes))
    errors = 1 - np.bincount(codes).max() / len(codes)
    sample = max(MAX_SCREENING_ROWS, BIN_ROWS * n_classes, int(50 / errors))
    warnings = []
    for place, column in enumerate(schema.used):
        for rows in (order[:sample], order[:MAX_ROWS]):
            right = _predicted(values[rows, place], codes[rows], half[rows], column.kind == "category")
            if (1 - right.mean()) > errors / 2:
                break
        low, _ = wilson_interval(right.mean(), len(right), level=CONFIDENCE_LEVEL)
        if 1 - low <= (1 - MIN_ERROR_REDUCTION) * errors:
            warnings.append(
                f"Column {column.name!r} predicts the target {target.name!r} in {100 * right.mean():.3g}% of the "
                "held-out rows by itself. If it is known only after the outcome, leave it out with --kind "
                f"{column.name}=drop; otherwise the results are too optimistic."
            )
    return tuple(warnings)


def _predicted(values: Float, codes: Int, half: Mask, is_category: bool) -> Mask:
    """Whether each row is predicted correctly by the model of the other half."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    level = place if is_category else ((counts.cumsum() - counts) // BIN_ROWS)[place]
    chosen = np.full(len(codes), -1)
    for test in (half, ~half):
        if 0 < test.sum() < len(test):
            chosen[test] = _most_frequent(level[~test], codes[~test], int(level.max()) + 1)[level[test]]
    right: Mask = chosen == codes
    return right


def _most_frequent(level: Int, codes: Int, n_levels: int) -> Int:
    """The most frequent class of each level; that of all rows for a level without rows."""
    n_classes = int(codes.max()) + 1
    pairs, counts = np.unique(level * n_classes + codes, return_counts=True)
    pairs = pairs[np.argsort(counts, kind="stable")]  # of each level, the most frequent one is the last
    frequent = np.full(n_levels, np.bincount(codes).argmax())
    frequent[pairs // n_classes] = pairs % n_classes
    return frequent
