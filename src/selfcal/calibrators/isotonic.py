"""Isotonic regression of each class against the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from selfcal._support.checks import Float
from selfcal.calibrators._one_vs_rest import Curve, OneVsRest
from selfcal.calibrators.histogram import smoothed

CERTAIN = 1e-12
"""A block this near to 0 or 1 holds rows of one kind only; weights leave a rounding error in its mean."""


class IsotonicCalibration(OneVsRest):
    """The best non-decreasing curve from the log odds of a class to its probability.

    The curve minimises ``sum w (curve(s) - [y = c])^2`` (and also the log loss) among all increasing
    ones; it is constant on blocks of rows, linear between them, and flat beyond the outermost rows. The block
    where the class never occurs, of total weight n, would predict 0: it predicts ``(1/k) / (n + 1)``, as if one more
    row were divided equally between the k classes, but no more than the next block; the block where it always occurs
    predicts ``(n + 1/k) / (n + 1)``, but no less than the one before. All other blocks are unchanged. Each class has
    its curve, and the rows are normalised; two classes use the curve of the second. Rows in
    the same block tie, so the choice of class may change.

    Args:
        safeguard: Whether to mix with temperature scaling; False for the method as published.

    Attributes:
        curves_: For each class the log odds `x` where the curve bends and its values `y` there.
        share_: The share of the method in that mixture.
        safe_temperature_: The temperature of the other part.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, s] for s in (-3.0, -2.0, -1.0, 1.0, 2.0)])
        >>> calibrator = IsotonicCalibration(safeguard=False).fit(logits, [0, 0, 1, 0, 1])
        >>> calibrator.predict_proba(logits)[:, 1].round(4)
        array([0.1667, 0.1667, 0.5   , 0.5   , 0.75  ])

    Reference:
        Zadrozny and Elkan, Transforming classifier scores into accurate multiclass probability estimates, 2002.
    """

    curves_: tuple[LinePlot, ...]

    def _fit_binary(self, log_odds: Float, is_class: NDArray[np.bool_], weight: Float) -> Curve:
        curve = IsotonicRegression(out_of_bounds="clip").fit(log_odds, is_class, sample_weight=weight)
        x, y = curve.X_thresholds_, curve.y_thresholds_
        never, always = y <= CERTAIN, y >= 1 - CERTAIN
        if never.any():
            n = float(weight[log_odds <= x[never][-1]].sum())
            y = np.maximum(y, min([smoothed(0.0, n, self.n_classes_), *y[~never]]))
        if always.any():
            n = float(weight[log_odds >= x[always][0]].sum())
            y = np.minimum(y, max([smoothed(1.0, n, self.n_classes_), *y[~always]]))
        return LinePlot(x, y)


@dataclass(frozen=True, eq=False)
class LinePlot:
    """A curve through the points (x, y), linear between them and flat beyond."""

    x: Float
    y: Float

    def __call__(self, log_odds: Float) -> Float:
        return np.interp(log_odds, self.x, self.y)
