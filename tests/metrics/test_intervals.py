import numpy as np
import pytest

from selfcal.errors import ConfigError
from selfcal.metrics import wilson_interval


def test_known_values():
    low, high = wilson_interval([0.5, 0.0, 1.0], [10, 10, 10])
    np.testing.assert_allclose(low, [0.236593, 0.0, 0.722467], atol=1e-6)
    np.testing.assert_allclose(high, [0.763407, 0.277533, 1.0], atol=1e-6)


def test_equal_to_scipy():
    from scipy.stats import binomtest

    for successes in range(0, 21, 4):
        expected = binomtest(successes, 20).proportion_ci(0.9, method="wilson")
        low, high = wilson_interval(successes / 20, 20, level=0.9)
        np.testing.assert_allclose([low, high], [expected.low, expected.high], atol=1e-12)


def test_nothing_is_known_without_observations():
    low, high = wilson_interval([0.3], [0])
    assert (low[0], high[0]) == (0, 1)


@pytest.mark.parametrize("level", [0, 1, 1.1, "high"])
def test_bad_level(level):
    with pytest.raises(ConfigError, match="level must be"):
        wilson_interval([0.5], [10], level=level)
