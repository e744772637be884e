"""Columns that give the target away: each is asked to predict it alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from selfcal._support.checks import Float, Int
from selfcal.metrics import wilson_interval
from selfcal.tabular.copies import n_groups
from selfcal.tabular.schema import Schema
from selfcal.tabular.target import Target

SOLVED = 0.9
"""A column is reported if, alone, it avoids this share of the errors of always choosing the most frequent class.

No model avoids more than all of them, so such a column comes close to the whole model, and the warning can be given
before that is trained. Noisy copies of the target and codes that determine it do so. Honest columns rarely do.
"""

LEVEL = 0.9
"""The share must be reached by both ends of this interval, which a few lucky rows do not: it takes about 60 rows."""

ROWS, SAMPLE = 20_000, 1_000
"""Rows of each column that are used at most, and those by which most columns are dismissed."""

WIDTH = 10
"""So many neighbouring numbers are taken as one value."""

Mask = NDArray[np.bool_]


def leaks(values: Float, schema: Schema, target: Target, groups: Int, *, seed: int = 0) -> tuple[str, ...]:
    """Return a warning for each column that predicts the target nearly perfectly by itself.

    The rows are divided in two halves, copies and groups kept together. A small model of one column, fitted on one
    half, predicts the other: the most frequent class of each category, or of `WIDTH` neighbouring numbers. There is
    no warning for a table with a single column, nor for one with fewer than `WIDTH` rows for each class.

    Args:
        values: What `column_values` returned, for the labelled rows.
        schema: The columns.
        target: The labels of these rows.
        groups: Which rows belong together.
        seed: Which rows are in which half.

    Example:
        >>> from selfcal.tabular.schema import column_values
        >>> from selfcal.tabular.inference import infer_schema
        >>> from selfcal.tabular.target import read_target
        >>> import polars as pl
        >>> x, paid, y = [i % 7 for i in range(100)], ["y", "n"] * 50, ["1", "0"] * 50
        >>> table = pl.DataFrame({"x": x, "paid": paid, "y": y})
        >>> schema = infer_schema(table, target="y")
        >>> leaks(column_values(table, schema), schema, read_target(table, "y"), np.arange(100))
        ("Column 'paid' tells the target 'y' in 100 % of the rows, by itself and on rows held out. If it is known only
        after the outcome, leave it out with --kind paid=drop; the results would be too good to be true.",)
    """
    codes, n_classes = target.codes, len(target.classes)
    if len(schema.used) < 2 or min(len(codes), ROWS) < WIDTH * n_classes:
        return ()
    rng = np.random.default_rng(seed)
    half = rng.permutation(np.arange(n_groups(groups)) % 2)[groups].astype(bool)
    order = rng.permutation(len(codes))
    errors = 1 - np.bincount(codes).max() / len(codes)
    sample = max(SAMPLE, WIDTH * n_classes, int(50 / errors))
    warnings = []
    for place, column in enumerate(schema.used):
        for rows in (order[:sample], order[:ROWS]):
            right = _predicted(values[rows, place], codes[rows], half[rows], column.kind == "category")
            if (1 - right.mean()) > errors / 2:
                break
        low, _ = wilson_interval(right.mean(), len(right), level=LEVEL)
        if 1 - low <= (1 - SOLVED) * errors:
            warnings.append(
                f"Column {column.name!r} tells the target {target.name!r} in {100 * right.mean():.3g} % of the rows, "
                "by itself and on rows held out. If it is known only after the outcome, leave it out with --kind "
                f"{column.name}=drop; the results would be too good to be true."
            )
    return tuple(warnings)


def _predicted(values: Float, codes: Int, half: Mask, is_category: bool) -> Mask:
    """Whether each row is predicted right by the other half."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    level = place if is_category else ((counts.cumsum() - counts) // WIDTH)[place]
    chosen = np.full(len(codes), -1)
    for test in (half, ~half):
        if 0 < test.sum() < len(test):
            chosen[test] = _most_frequent(level[~test], codes[~test], int(level.max()) + 1)[level[test]]
    right: Mask = chosen == codes
    return right


def _most_frequent(level: Int, codes: Int, n_levels: int) -> Int:
    """The most frequent class of each level, and of all rows for a level without any."""
    n_classes = int(codes.max()) + 1
    pairs, counts = np.unique(level * n_classes + codes, return_counts=True)
    pairs = pairs[np.argsort(counts, kind="stable")]  # of each level, the most frequent one is the last
    frequent = np.full(n_levels, np.bincount(codes).argmax())
    frequent[pairs // n_classes] = pairs % n_classes
    return frequent
