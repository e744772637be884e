"""How the cost of several workers is extrapolated; it is measured in `tests/distributed`."""

import pytest

from benchmarks import scaling


def test_growth_is_extrapolated_by_the_slope_of_the_largest_sizes():
    rows = [{"size": n, "seconds": seconds} for n, seconds in ((1, 5.0), (2, 1.0), (8, 2.0))]
    assert scaling.slope(rows) == pytest.approx(0.5)
    assert scaling.extrapolated(rows, 32) == pytest.approx(4.0)


def test_what_gets_cheaper_is_not_extrapolated_downwards():
    rows = [{"size": n, "seconds": 1 / n} for n in (1, 2)]
    assert scaling.extrapolated(rows, 64) == 0.5
