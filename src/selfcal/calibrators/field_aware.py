"""Field-aware calibration: an increasing function of the scores, and a term for each value of a categorical field."""

from __future__ import annotations

from functools import partial
from operator import ne
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import log_softmax

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import checked_rows, softmax
from selfcal.calibrators._rising_line import Line, Rows, as_logits, fit_line, inner_quantiles
from selfcal.calibrators._safeguard import Safeguarded
from selfcal.errors import DataError

Values = NDArray[np.object_]
"""The values of a field, None where it is missing."""


class FieldAwareCalibration(Safeguarded):
    """Calibrate with an increasing piecewise linear function, shifted for each value of a field such as the site.

    Two classes with log odds s: ``P(y = 1) = sigmoid(line(s) + term[v, 1] - term[v, 0])``, v the value of the
    field. More classes have one common line, which takes the logarithms of their softmax probabilities:
    ``p ∝ exp(line(log p_c) + term[v, c])``, so that temperature scaling is the case of a straight line. The line
    has a slope, not below zero, between any two quantiles of the scores, and is extended linearly beyond the last.
    The log loss plus ``l2 / 2`` times the squares of the terms, of the offset and of the slopes less one is
    minimised by L-BFGS from the identity, where that penalty is zero: the fit cannot end above it. A value not
    seen in fit, or missing (None or NaN), has the neutral term 0; without a field only the line is fitted, which
    keeps the order of the classes up to ties. In the paper the terms come from a neural network of all features.

    Args:
        n_bins: Maximum number of slopes; equal scores have one.
        l2: Strength of the penalty: roughly the weight of the identity, in rows.
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        line_: The line: `knots` where the slope changes, `slopes` between them, and `offset`, its value at 0.
        terms_: For each value of the field its terms, one for each class; None if there was no field.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        Two sites, the same scores, other frequencies:

        >>> import numpy as np
        >>> site = ["A"] * 20 + ["B"] * 20
        >>> y = [0] * 15 + [1] * 5 + [0] * 5 + [1] * 15
        >>> calibrator = FieldAwareCalibration(safeguard=False).fit(np.zeros((40, 2)), y, field=site)
        >>> calibrator.predict_proba(np.zeros((3, 2)), field=["A", "B", "C"])[:, 1].round(2)
        array([0.27, 0.73, 0.5 ])

    Reference:
        Pan, Ao, Tang, Lu, Liu, Xiao and He, Field-aware calibration: a simple and empirically strong method for
        reliable probabilistic predictions, 2020.
    """

    line_: Line
    terms_: dict[Any, Float] | None

    def __init__(self, n_bins: int = 15, l2: float = 1.0, *, safeguard: bool = True) -> None:
        super().__init__(safeguard=safeguard)
        self.n_bins = n_bins
        self.l2 = l2

    def fit(
        self,
        logits: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        classes: ArrayLike | None = None,
        field: ArrayLike | None = None,
    ) -> Self:
        """Fit on logits of rows that the network was not trained on.

        Args:
            logits: One row per sample and one column per class.
            y: Labels, codes 0..k-1 or names from `classes`.
            sample_weight: One non-negative weight per row; a row of weight 2 counts as two rows.
            classes: The label of each column, if labels are not codes.
            field: The value of the field in each row; None or NaN where it is missing.
        """
        self._check_settings()
        z, codes, weight = checked_rows(logits, y, sample_weight, classes)
        values = None
        if field is not None:
            n_rows = len(np.asarray(y))
            all_weights = checks.sample_weights(sample_weight, n_rows)
            values = field_values(field, n_rows)
            values = values if all_weights is None else values[all_weights > 0]
        self.n_classes_ = z.shape[1]
        self.is_identity_ = False

        def predict(kept: Int, kept_weight: Float, left_out: Int) -> Float:
            other = self._unfitted()
            of_kept, of_left_out = (None if values is None else values[rows] for rows in (kept, left_out))
            other._fit(z[kept], codes[kept], kept_weight, of_kept)
            return other._map(z[left_out], of_left_out)

        with np.errstate(invalid="ignore", over="ignore"):
            self._fit(z, codes, weight, values)
            self._find_share(z, codes, weight, predict)
        self._roll_back_if_worse(z, codes, weight, lambda rows: self._map(rows, values))
        return self

    def _roll_back(self) -> str:
        self.line_ = Line(np.zeros(0), np.ones(1), 0.0)  # what was found may not even be numbers
        return super()._roll_back()

    def predict(self, logits: ArrayLike, *, field: ArrayLike | None = None) -> Int:
        """The code of the most probable class."""
        return self.predict_proba(logits, field=field).argmax(axis=1)

    def predict_proba(self, logits: ArrayLike, *, field: ArrayLike | None = None) -> Float:
        """Calibrated probabilities; without `field` every row has the neutral term."""
        z = self._checked(logits)
        values = None if field is None else field_values(field, len(z))
        if values is not None and self.terms_ is None:
            raise DataError("field must be left out, as it was in fit. Fit with field= to use it here.")
        return softmax(z) if self.is_identity_ else self._answer(z, values)

    def confidence(self, logits: ArrayLike, *, field: ArrayLike | None = None) -> Float:
        """The probability of the most probable class."""
        return self.predict_proba(logits, field=field).max(axis=1)

    def _check_settings(self) -> None:
        super()._check_settings()
        checks.positive_int("n_bins", self.n_bins)
        checks.in_range("l2", self.l2, 0, open_low=True)

    def _fit(self, z: Float, codes: Int, weight: Float, values: Values | None = None) -> None:
        known = None if values is None else [v for v in dict.fromkeys(values.tolist()) if v is not None]
        rows = Rows(scores(z), codes, weight, indicators(values, known or [], len(z)))
        knots = inner_quantiles(rows.scores, weight, self.n_bins)
        self.line_, terms = fit_line(knots, rows, self.n_classes_, self.l2)
        self.terms_ = None if known is None else dict(zip(known, terms, strict=True))

    def _answer(self, z: Float, values: Values | None) -> Float:
        return self._mixed(z, partial(self._map, values=values))

    def _map(self, z: Float, values: Values | None = None) -> Float:
        lines = as_logits(self.line_(scores(z)))
        if values is None:
            return softmax(lines)
        terms_of = self.terms_ or {}
        terms = np.array(list(terms_of.values())).reshape(-1, self.n_classes_)
        return softmax(lines + indicators(values, list(terms_of), len(z)) @ terms)


def scores(z: Float) -> Float:
    """The input of the line: the log odds of the second of two classes, or the log probabilities of more."""
    return z[:, 1:] - z[:, :1] if z.shape[1] == 2 else log_softmax(z, axis=1)


def field_values(field: ArrayLike, n_rows: int) -> Values:
    """The values as objects, with None for what is missing."""
    values = np.asarray(field, dtype=object)
    if values.ndim != 1:
        raise DataError(
            f"field must be a vector with one value for each row; got shape {values.shape}. "
            "Join several fields to one value, such as 'site/device'."
        )
    checks.same_length(logits=range(n_rows), field=values)
    values = values.copy()
    values[[is_missing(v) for v in values.tolist()]] = None
    return values


def is_missing(value: Any) -> bool:
    """Whether the value is None, or unequal to itself as NaN is."""
    try:
        return value is None or bool(ne(value, value))
    except TypeError:  # pandas' NA cannot be compared
        return True


def indicators(values: Values | None, known: list[Any], n_rows: int) -> Any:
    """A sparse table with a one where the row's field has that value; the others' rows are empty."""
    place = {v: i for i, v in enumerate(known)}
    at = np.array([place.get(v, -1) for v in ([] if values is None else values.tolist())], dtype=np.int64)
    rows = np.flatnonzero(at >= 0)
    return csr_array((np.ones(len(rows)), (rows, at[rows])), shape=(n_rows, len(known)))
