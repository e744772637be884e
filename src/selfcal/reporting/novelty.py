"""Rows unlike the training rows: how often held-out rows are marked, and which columns make them strange."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.metrics import clopper_pearson_interval
from selfcal.reporting._classes import fraction
from selfcal.reporting._names import counted
from selfcal.reporting.content import Estimate, Novelty, StrangeColumn
from selfcal.reporting.importance import MAX_FEATURES, MAX_PREDICTIONS, blocks_of

TRIES = 20
"""Values of other rows that a column is given."""

MAX_MARKED = 200
"""Maximum number of marked rows to look at."""

Marks = NDArray[np.bool_]


def novelty_report(
    marked: ArrayLike,
    *,
    score: str,
    false_alarms: float,
    chosen_on: int,
    columns: tuple[int, tuple[StrangeColumn, ...]] = (0, ()),
    level: float = 0.95,
) -> Novelty:
    """How often rows like the training rows are marked, beside what was promised.

    Args:
        marked: Whether each row was marked, of rows that neither the score nor the threshold was chosen on.
        score: The name of the score.
        false_alarms: The fraction of ordinary rows that may be marked.
        chosen_on: Number of rows that the threshold was chosen on.
        columns: What `strange_columns` returned.
        level: The level of the interval.

    Example:
        >>> found = novelty_report([True] + 19 * [False], score="Mahalanobis", false_alarms=0.05, chosen_on=19)
        >>> print(found.text)
        1 of 20 held-out rows is marked: 5.0%, with an interval of 0.1% to 24.9%, at a promised rate of at most 5%.
    """
    flags = checks.as_array(marked)
    n, hits = len(flags), int(flags.sum())
    low, high = clopper_pearson_interval(hits / n, n, level=level)
    rate = Estimate(hits / n, float(low), float(high))
    text = (
        f"{hits:,} of {counted(n, 'held-out row')} {'is' if hits == 1 else 'are'} marked: {rate.value:.1%}, with an "
        f"interval of {low:.1%} to {high:.1%}, at a promised rate of at most {100 * false_alarms:g}%."
    )
    return Novelty(score, false_alarms, chosen_on, n, hits, rate, text, *columns)


def strange_columns(
    is_novel: Callable[[Float], Marks],
    X: ArrayLike,
    marked: Marks,
    *,
    columns: Mapping[str, Sequence[int]] | Sequence[str] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[int, tuple[StrangeColumn, ...]]:
    """Which columns make rows strange: those whose value alone, replaced by that of another row, removes the mark.

    Each column of a marked row in turn is given the values of several rows that are not marked. A row may have no
    such column, if several are strange at once or only together.

    Args:
        is_novel: Whether rows of features are marked.
        X: Features, one row per sample.
        marked: Whether each row of `X` is marked.
        columns: The features of each column, as in `permutation_importance`.
        level: The level of the intervals, which hold for all columns at once.
        seed: Seed of the draws.

    Returns:
        The number of marked rows that were looked at, and the columns, the most frequent first.

    Example:
        >>> X = np.array([[0.0, 1.0], [0.5, 0.0], [9.0, 0.5]])
        >>> looked_at, found = strange_columns(lambda X: X.max(axis=1) > 2, X, X.max(axis=1) > 2)
        >>> looked_at, [(one.column, one.rows) for one in found]
        (1, [('0', 1), ('1', 0)])
    """
    values = checks.as_array(X)
    blocks = blocks_of(getattr(X, "columns", None) if columns is None else columns, values.shape[1])
    rng = np.random.default_rng(seed)
    most = min(MAX_PREDICTIONS, MAX_FEATURES // values.shape[1]) // (TRIES * len(blocks))
    some = rng.permutation(np.flatnonzero(marked))[: min(MAX_MARKED, max(1, most))]
    ordinary = np.flatnonzero(~marked)
    if not len(some) or not len(ordinary):
        return 0, ()
    others = values[rng.choice(ordinary, size=TRIES)]
    found = []
    for name, features in blocks.items():
        tried = np.repeat(values[some], TRIES, axis=0)
        tried[:, features] = np.tile(others, (len(some), 1))[:, features]
        cleared = int((~is_novel(tried)).reshape(-1, TRIES).any(axis=1).sum())
        share = fraction(cleared, len(some), 1 - (1 - level) / len(blocks))
        assert share is not None, "there are rows"
        found.append(StrangeColumn(name, cleared, share))
    return len(some), tuple(sorted(found, key=lambda one: -one.rows))
