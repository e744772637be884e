"""The safeguard of a calibrator: a mixture with temperature scaling, in which it has the share that it earns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from sklearn.base import clone

from selfcal._support import checks
from selfcal._support.checks import Float, Int
from selfcal.calibrators._base import LogitCalibrator, as_rows
from selfcal.calibrators._share import Predict, best_share, compared, safe_temperature
from selfcal.calibrators._state import State
from selfcal.calibrators.formula import Head, Operations
from selfcal.calibrators.temperature import tempered

BEFORE = {"safeguard": False, "share_": 1.0, "safe_temperature_": 1.0}
"""What a calibrator was that was stored before there was a safeguard."""

FEW_ROWS = 100
"""At this many rows the doubt is one standard error larger; those that are estimated from few rows are too small."""


class Safeguarded(LogitCalibrator):
    """A calibrator that is mixed with temperature scaling, so that few rows do not make it worse than that.

    ``share * calibrated(z) + (1 - share) * softmax(z / T)``, with the share that `best_share` finds by
    cross-validation: 0 where the rows do not show that the method is better than temperature scaling. A new
    calibrator derives from this class, and passes `safeguard` on if it has settings.

    Args:
        safeguard: Whether to mix; False for the method as published.

    Attributes:
        share_: The share of the method, from 0 (temperature scaling) to 1; 1 without the safeguard.
        safe_temperature_: The temperature T of the other part.
    """

    doubt: ClassVar[float] = 1.5
    """How many standard errors of its advantage on the rows left out a method must do without."""

    share_: float
    safe_temperature_: float

    def __init__(self, *, safeguard: bool = True) -> None:
        self.safeguard = safeguard

    def _check_settings(self) -> None:
        checks.boolean("safeguard", self.safeguard)

    @classmethod
    def _completed(cls, state: State) -> State:
        return state if state.keys() & BEFORE.keys() else BEFORE | state

    def _learn(self, z: Float, codes: Int, weight: Float) -> None:
        super()._learn(z, codes, weight)

        def predict(kept: Int, kept_weight: Float, left_out: Int) -> Float:
            other = self._unfitted()
            other._fit(z[kept], codes[kept], kept_weight)
            return other._map(z[left_out])

        self._find_share(z, codes, weight, predict)

    def _unfitted(self) -> Any:
        """A calibrator of the same settings, ready for `_fit`."""
        other = clone(self)
        other.n_classes_ = self.n_classes_
        return other

    def _find_share(self, z: Float, codes: Int, weight: Float, predict: Predict) -> None:
        self.share_, self.safe_temperature_ = 1.0, 1.0
        if self.safeguard:
            self.safe_temperature_ = safe_temperature(z, codes, weight)
            self.share_ = best_share(
                *compared(z, codes, weight, predict), self.doubt + FEW_ROWS / float(weight.sum())
            )

    def _roll_back(self) -> str:
        if not self.safeguard:
            return super()._roll_back()
        self.share_ = 0.0
        return "temperature scaling is used instead"

    def _calibrated(self, z: Float) -> Float:
        return self._mixed(z, super()._calibrated)

    def _mixed(self, z: Float, calibrated: Callable[[Float], Float]) -> Float:
        """The mixture; a method that has no share is not asked, as it may have failed."""
        if self.share_ == 1:
            return calibrated(z)
        other = tempered(z, self.safe_temperature_)
        return self.share_ * as_rows(calibrated(z)) + (1 - self.share_) * other if self.share_ else other

    def _mixed_formula(self, calibrated: Head, ops: Operations) -> Head:
        share, temperature = self.share_, self.safe_temperature_
        if share == 1:
            return calibrated
        if share == 0:
            return lambda z: ops.softmax(z / temperature)
        return lambda z: share * calibrated(z) + (1 - share) * ops.softmax(z / temperature)
