"""Whether a column can be the confidence in the predicted class, and what else it may be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from selfcal._support.checks import Float, such

ROUNDING = 0.0051
"""How far rounding to two digits may move a confidence of 1/k."""

CLEAR_CORRELATION = 0.5


def class_of_probability(values: Float, chosen: pl.Series, classes: Sequence[str]) -> str | None:
    """The class of two whose probability the values are: above one half exactly where it is the predicted one.

    None if the values may also be confidences, which are never below one half.
    """
    if len(classes) != 2 or not (values < 0.5 - ROUNDING).any():
        return None
    for one in classes:
        here = (chosen == one).to_numpy()
        if (values[here] >= 0.5).all() and (values[~here] <= 0.5).all():
            return one
    return None


def confidence_error(
    column: str, values: Float, chosen: pl.Series, labels: pl.Series, classes: Sequence[str]
) -> str | None:
    """Why the values cannot be confidences in the predicted classes, and what to do; None if they can."""
    k = max(2, len(classes))
    below = values < 1 / k - ROUNDING
    if not below.any():
        return None
    row = int(below.argmax())
    return (
        f"Column {column!r} must hold the confidence in the predicted class, which is at least 1/{k} with {k} "
        f"classes; row {row + 1} is {values[row]:.4g} ({such(int(below.sum()), 'row')}). "
        + _remedy(column, values, chosen, labels, classes)
    )


def _remedy(column: str, values: Float, chosen: pl.Series, labels: pl.Series, classes: Sequence[str]) -> str:
    if len(classes) == 2:
        with_second = _correlation(values, chosen == classes[1])
        if abs(with_second) > CLEAR_CORRELATION:
            one = classes[1] if with_second > 0 else classes[0]
            return f"It looks like P(class {one}): use --positive {one}."
    if _correlation(values, chosen == labels) < 0:
        return (
            f"It is lower where the prediction is right, like an uncertainty: replace it by 1 - {column}, or name "
            "the column of the confidence with --confidence-column."
        )
    if len(classes) <= 2:
        return (
            "If it is the probability of one class, name that class with --positive; if there are more than two "
            "classes, name all with --classes."
        )
    return (
        "If it is the probability of one fixed class or of the true class, use a column for each class "
        "(--columns); if there are more classes, name all with --classes."
    )


def _correlation(values: Float, event: pl.Series) -> float:
    """The correlation of values with an event; 0 if either is constant."""
    happened = event.fill_null(value=False).to_numpy()
    if np.ptp(values) == 0 or happened.all() or not happened.any():
        return 0.0
    return float(np.corrcoef(values, happened)[0, 1])
