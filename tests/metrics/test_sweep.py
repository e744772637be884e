import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcal.errors import ConfigError
from selfcal.metrics import calibration_error_by_bins, expected_calibration_error

from .strategies import binnings, predictions, weights_for


@given(predictions(), binnings(), st.booleans(), st.booleans())
def test_equal_to_one_call_per_number_of_bins(data, options, weighted, debias):
    y, p = data
    options = {**options, "sample_weight": weights_for(len(y)) if weighted else None}
    options["debias"] = debias and options["norm"] != "max"
    first = options.pop("n_bins")
    numbers = [first, 12, 100]
    sweep = calibration_error_by_bins(y, p, n_bins=numbers, **options)
    assert sweep.n_bins.tolist() == numbers
    squares = [expected_calibration_error(y, p, n_bins=n, **options) ** 2 for n in numbers]
    assert (sweep.error**2).tolist() == pytest.approx(squares, abs=1e-12)


def test_ten_to_a_thousand_bins_by_default():
    sweep = calibration_error_by_bins([0], [[0.7, 0.3]])
    assert (sweep.n_bins[0], sweep.n_bins[-1]) == (10, 1000)
    ratios = sweep.n_bins[1:] / sweep.n_bins[:-1]
    assert np.all(np.abs(ratios - 10**0.1) < 0.06)
    assert sweep.error.tolist() == pytest.approx([0.3] * len(sweep.n_bins))


def test_float32_confidences_are_binned_as_in_one_call():
    p = np.array([[0.2, 0.8], [0.4, 0.6], [0.3, 0.7]], dtype=np.float32)
    sweep = calibration_error_by_bins([1, 0, 1], p, n_bins=[5, 10])
    assert sweep.error.tolist() == [expected_calibration_error([1, 0, 1], p, n_bins=n) for n in (5, 10)]


def test_more_bins_show_more_noise():
    rng = np.random.default_rng(0)
    c = rng.uniform(0.5, 1, 5000)
    y = (rng.random(5000) > c).astype(int)
    p = np.column_stack([c, 1 - c])
    plain, debiased = (
        calibration_error_by_bins(y, p, n_bins=[10, 1000], debias=d).error for d in (False, True)
    )
    assert plain[1] > 4 * plain[0]
    assert debiased[1] - debiased[0] < 0.7 * (plain[1] - plain[0])


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        calibration_error_by_bins([0], [[0.7, 0.3]]).error = np.zeros(3)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"n_bins": []}, "at least one number of bins"),
        ({"n_bins": [10, 0]}, "n_bins must be a whole number of at least 1; got 0"),
        ({"n_bins": [10, 2.5]}, "got 2.5"),
        ({"norm": "L1"}, "Did you mean 'l1'"),
        ({"strategy": "equal"}, "strategy must be one of"),
        ({"closed": "none"}, "closed must be one of"),
        ({"norm": "max", "debias": True}, "debias=True needs"),
    ],
)
def test_bad_options(option, message):
    with pytest.raises(ConfigError, match=message):
        calibration_error_by_bins([0], [[0.5, 0.5]], **option)
