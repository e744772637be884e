"""A post-hoc calibrator for predictions in a table, fitted on some rows and applied to others."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
import polars as pl
from sklearn.base import clone

from selfcal import metrics, recipes
from selfcal._support.checks import Float, one_of
from selfcal.calibrators._base import LogitCalibrator
from selfcal.datasets import stratified_split
from selfcal.errors import CalibrationWarning, DataError
from selfcal.reporting.predictions import Predictions
from selfcal.workflows.evaluation import Judge
from selfcal.workflows.layout import Layout
from selfcal.workflows.set_column import SET_COLUMN

FOLDS = 5
_SMALLEST = 1e-12  # a probability of zero has no logarithm, and one mistake among them would dominate the fit


class Recalibration:
    """A calibrator in place of the probabilities that a table holds.

    Args:
        layout: The columns of the predictions.
        calibrator: The name of a calibrator, such as "temperature"; one of `recipes.POST_HOC`.

    Attributes:
        before: The predictions as they were.
        after: Out-of-fold predictions of the calibrator (five folds).

    Example:
        >>> from selfcal.workflows.layout_search import find_layout
        >>> table = pl.DataFrame({"y": ["a", "a", "a", "b"] * 25, "prob_a": [0.99] * 100, "prob_b": [0.01] * 100})
        >>> recalibration = Recalibration(find_layout(table, "y")).fit(table)
        >>> recalibration.apply(table)["prob_a"].round(2)[0]
        0.75
    """

    before: Predictions
    after: Predictions

    def __init__(self, layout: Layout, calibrator: str = "temperature") -> None:
        self.layout = layout
        self._calibrator = recipes.POST_HOC[one_of("calibrator", calibrator, recipes.POST_HOC)]()

    def fit(self, table: pl.DataFrame, *, drop_unlabelled: bool = False) -> Self:
        """Fit on labelled rows that the model was not trained on."""
        judge = Judge(self.layout, drop_unlabelled=drop_unlabelled, keep=table.height * table.width).update(
            table
        )
        kept = judge.predictions
        if kept is None or len(kept.y) < 2 * FOLDS:
            raise DataError(f"Calibration needs at least {2 * FOLDS} labelled rows; got {judge.rows:,}.")
        self.before = kept
        z = _logits(kept.probs)
        probs = np.empty_like(kept.probs)
        for fold in stratified_split(kept.y, [1 / FOLDS] * FOLDS, seed=0):
            rest = np.setdiff1d(np.arange(len(z)), fold)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)  # the fit on all rows warns, too
                probs[fold] = self._predicted(clone(self._calibrator).fit(z[rest], kept.y[rest]), z[fold])
        if self.layout.columns:
            self.after = Predictions.from_probabilities(kept.y, probs)
        else:
            self.after = Predictions(kept.y, kept.chosen, probs[:, 1], probs)
        self._calibrator.fit(z, kept.y)
        return self

    def apply(self, part: pl.DataFrame, start: int = 0) -> pl.DataFrame:
        """The rows with calibrated probabilities, and the class and confidence that follow from them.

        Columns `abstain` and `prediction_set` are dropped: they were decided by the probabilities as they were. The
        confidence in a predicted class is at least 1/k for k classes.
        """
        part = part.drop(self.stale(part))
        if not part.height:
            return part
        probs = self._predicted(self._calibrator, _logits(self.layout.probabilities(part, start)))
        changed = {name: pl.Series(values) for name, values in self.layout.cells(probs).items()}
        if self.layout.columns:
            chosen = pl.Series(self.layout.classes, dtype=pl.String).gather(probs.argmax(axis=1))
            written = set(part.columns) - {self.layout.target}
            percent = self.layout.unit == "percentages"
            sure = pl.Series(probs.max(axis=1) * (100 if percent else 1))
            choice = self.layout.choice or "predicted"
            if choice in written and part[choice].dtype.is_numeric():
                chosen = chosen.cast(part[choice].dtype, strict=False)
            follows = {choice: chosen, "confidence": sure}
            changed = {name: values for name, values in follows.items() if name in written} | changed
        return part.with_columns(values.alias(name) for name, values in changed.items())

    def stale(self, part: pl.DataFrame) -> list[str]:
        """Columns that are no longer true once the confidences have changed."""
        used = {self.layout.target, self.layout.choice, *self.layout.columns}
        return [name for name in ("abstain", SET_COLUMN) if name in part.columns and name not in used]

    @property
    def gain(self) -> metrics.Comparison:
        """The log loss after and before, on out-of-fold predictions."""
        return metrics.compare(self.before.y, self.after.probs, self.before.probs)

    def _predicted(self, calibrator: LogitCalibrator, z: Float) -> Float:
        probs = calibrator.predict_proba(z)
        if len(self.layout.seen) < 2:
            return probs
        confidence = np.maximum(probs[:, 1], 1 / len(self.layout.seen))
        return np.column_stack([1 - confidence, confidence])


def _logits(probs: Float) -> Float:
    return np.log(np.maximum(probs, _SMALLEST))
