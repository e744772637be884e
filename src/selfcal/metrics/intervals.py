"""Intervals around measured shares."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from selfcal import _checks
from selfcal._checks import Float


def wilson_interval(rate: ArrayLike, count: ArrayLike, *, level: float = 0.95) -> tuple[Float, Float]:
    """Wilson score interval of a share; unlike the textbook one it stays in [0, 1] and works at 0 and 1.

    `(r + z^2 / 2n -+ z sqrt(r (1 - r) / n + z^2 / 4n^2)) / (1 + z^2 / n)`, z the normal quantile of the level.

    Args:
        rate: Observed shares, in [0, 1].
        count: How many observations each share is of; (effective) counts need not be whole.
        level: How often the interval should hold the true share.

    Returns:
        Lower and upper ends; 0 and 1 where the count is 0.

    >>> low, high = wilson_interval([0.5, 1.0], [10, 10])
    >>> low.round(3), high.round(3)
    (array([0.237, 0.722]), array([0.763, 1.   ]))

    Reference: Wilson, Probable Inference, J. Am. Stat. Assoc. 22 (1927).
    """
    _checks.in_range("level", level, 0.0, 1 - 1e-12, open_low=True)
    r, n = np.broadcast_arrays(_checks.numbers(rate, "rate"), _checks.numbers(count, "count"))
    some = np.where(n > 0, n, 1.0)
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    centre = (r + z2 / (2 * some)) / (1 + z2 / some)
    half = np.sqrt(z2 * (r * (1 - r) / some + z2 / (4 * some**2))) / (1 + z2 / some)
    low = np.where(n > 0, np.maximum(centre - half, 0.0), 0.0)
    high = np.where(n > 0, np.minimum(centre + half, 1.0), 1.0)
    return low, high
