"""Permutation importance: by how much predictions get worse when a column is shuffled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from selfcal import metrics
from selfcal._support import checks
from selfcal._support.checks import Float
from selfcal.errors import DataError
from selfcal.metrics._rows import values_per_row
from selfcal.metrics.intervals import ROW_SCORES
from selfcal.reporting._classes import estimate
from selfcal.reporting._names import counted, shown_apart
from selfcal.reporting.content import ColumnImportance, Importance

MAX_ROWS = 1000
MAX_PREDICTIONS = 200_000
"""Of wide tables, fewer permutations are made, and then fewer rows are used, so that no more rows are predicted."""

MIN_ROWS = 100
MAX_FEATURES = 10**8
"""Maximum number of features of all rows that are predicted: of very many columns, only some are measured."""

MAX_CELLS = 2**17
"""Maximum number of features or probabilities of several permutations that are in memory at once."""


def permutation_importance(
    predict_proba: Callable[[Float], Float],
    X: ArrayLike,
    y: ArrayLike,
    *,
    columns: Mapping[str, Sequence[int]] | Sequence[str] | None = None,
    classes: ArrayLike | None = None,
    n_repeats: int = 5,
    max_rows: int = MAX_ROWS,
    max_predictions: int = MAX_PREDICTIONS,
    level: float = 0.95,
    seed: int = 0,
) -> Importance:
    """By how much the log loss rises, and the accuracy falls, when the values of a column are permuted.

    Use rows that the model was not trained on. Each column is permuted `n_repeats` times among a sample of the rows.
    The cost is bounded: no more than about `max_predictions` rows are predicted. With many columns there are fewer
    permutations, then fewer rows, and at last only as many columns as can be measured on 100 rows, drawn at random.
    Of columns that carry the same information none may seem important, since the model can use the other.

    Args:
        predict_proba: Probabilities for rows of features.
        X: The features, one row per sample.
        y: The labels, codes or names from `classes`.
        columns: The names of the features, or for each name the positions of the features that are permuted together,
            such as those that encode one column of a table. By default each feature is a column, with its name in a
            data frame, or its position.
        classes: The label of each column of the probabilities, if labels are not codes.
        n_repeats: Number of permutations of each column.
        max_rows: Maximum number of rows to use.
        max_predictions: Maximum number of rows to predict.
        level: The level of the intervals, which hold for all columns at once and take rows and permutations into
            account.
        seed: Seed of the sample and the permutations.

    Returns:
        The columns, most important first.

    Example:
        >>> X = np.random.default_rng(0).uniform(size=(400, 2))
        >>> y = (X[:, 0] > 0.5).astype(int)
        >>> def sure_of_the_first(X):
        ...     return np.where(X[:, :1] > 0.5, [[0.1, 0.9]], [[0.9, 0.1]])
        >>> found = permutation_importance(sure_of_the_first, X, y, columns=["size", "noise"])
        >>> [(one.column, one.finding) for one in found.columns]
        [('size', True), ('noise', False)]

    Reference: Breiman, Random Forests, Machine Learning 45 (2001).
    """
    values = checks.as_array(X)
    if values.ndim != 2 or not values.size:
        raise DataError(f"X must have rows and columns; got shape {values.shape}.")
    labels = checks.as_array(y)
    checks.same_length(X=values, y=labels)
    for name, number in (
        ("n_repeats", n_repeats),
        ("max_rows", max_rows),
        ("max_predictions", max_predictions),
    ):
        checks.positive_int(name, number)
    blocks = blocks_of(getattr(X, "columns", None) if columns is None else columns, values.shape[1])
    most = max(1, min(max_predictions, MAX_FEATURES // values.shape[1]))
    repeats, n_rows, n_columns = _affordable(len(blocks), len(values), n_repeats, max_rows, most)
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(len(values))[:n_rows])
    measured = np.sort(rng.permutation(len(blocks))[:n_columns]).tolist()
    sample, true = values[rows], labels[rows]
    orders = np.array([rng.permutation(n_rows) for _ in range(repeats)])

    def scored(probs: Any) -> dict[str, Float]:
        answers = np.tile(true, len(probs) // n_rows)
        return {
            name: values_per_row(ROW_SCORES[name], answers, probs, classes).reshape(-1, n_rows)
            for name in ("log_loss", "accuracy")
        }

    probs = checks.as_array(predict_proba(sample))
    before = scored(probs)
    at_once = max(1, MAX_CELLS // max(sample.size, probs.size))
    del probs
    each = 1 - (1 - level) / len(measured)
    names, features = list(blocks), list(blocks.values())
    found = []
    for column in measured:
        worse: dict[str, list[Float]] = {"log_loss": [], "accuracy": []}
        for start in range(0, repeats, at_once):
            permuted = np.concatenate(
                [_permuted(sample, features[column], o) for o in orders[start : start + at_once]]
            )
            after = scored(predict_proba(permuted))
            worse["log_loss"].append(after["log_loss"] - before["log_loss"])
            worse["accuracy"].append(before["accuracy"] - after["accuracy"])
        log_loss, accuracy = (
            estimate(metrics.mean_interval(np.concatenate(worse[name]).mean(axis=0), level=each))
            for name in ("log_loss", "accuracy")
        )
        important = log_loss.low is not None and log_loss.low > 0
        found.append(ColumnImportance(names[column], log_loss, accuracy, important))
    found.sort(key=lambda one: -one.log_loss.value)
    part = "" if n_rows == len(values) else f"{n_rows:,} of "
    text = (
        f"Measured on {part}{counted(len(values), 'held-out row')}, with "
        f"{counted(repeats, 'permutation')} of each column"
    )
    if len(measured) < len(blocks):
        text += f", for {len(measured):,} of {len(blocks):,} columns drawn at random"
    return Importance(tuple(found), n_rows, len(values), repeats, seed, f"{text}.")


def blocks_of(
    columns: Mapping[str, Sequence[int]] | Sequence[str] | None, width: int
) -> dict[str, list[int]]:
    """The features of each column, by a name that is fit to print."""
    if isinstance(columns, Mapping):
        positions = [list(places) for places in columns.values()]
        if any(not 0 <= place < width for places in positions for place in places):
            raise DataError(
                f"columns must hold positions of the {width:,} features of X, 0 to {width - 1:,}."
            )
        return dict(zip(shown_apart(list(columns)), positions, strict=True))
    names: list[object] = list(range(width)) if columns is None else list(columns)
    if len(names) != width:
        raise DataError(f"columns must name the {width:,} features of X; got {len(names):,} names.")
    return dict(zip(shown_apart(names), ([place] for place in range(width)), strict=True))


def _affordable(n_columns: int, n_rows: int, repeats: int, max_rows: int, most: int) -> tuple[int, int, int]:
    """The numbers of repeats, rows and columns that keep the number of predicted rows at most about `most`.

    >>> _affordable(10, 5000, 5, 1000, 200_000), _affordable(100, 5000, 5, 1000, 200_000)
    ((5, 1000, 10), (2, 1000, 100))
    >>> _affordable(500, 5000, 5, 1000, 200_000), _affordable(10_000, 5000, 5, 1000, 200_000)
    ((1, 400, 500), (1, 100, 2000))
    """
    rows = min(n_rows, max_rows)
    repeats = max(1, min(repeats, most // (n_columns * rows)))
    rows = min(rows, max(MIN_ROWS, most // (n_columns * repeats)))
    return repeats, rows, min(n_columns, max(1, most // (rows * repeats)))


def _permuted(sample: Any, features: list[int], order: Any) -> Any:
    changed = sample.copy()
    changed[:, features] = sample[order][:, features]
    return changed
