import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator

from selfcal.errors import DataError
from selfcal.estimators.scaling import MAX_SCALED, Scaling


@given(st.integers(-300, 300), st.integers(0, 1000))
def test_columns_of_any_size_come_to_unit_size(power, seed):
    table = np.random.default_rng(seed).normal(3, 2, (50, 1)) * 10.0**power
    scaled = Scaling.of(table).tensor(table, BaseEstimator(), limit="near").double()
    assert float(scaled.mean()) == pytest.approx(0, abs=1e-5)
    assert float(scaled.std(correction=0)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e300])
def test_a_constant_column_becomes_zero(value):
    table = np.full((7, 1), value)
    assert not Scaling.of(table).tensor(table, BaseEstimator(), limit="near").any()


def test_a_weight_of_two_is_a_row_twice():
    table = np.random.default_rng(0).normal(size=(5, 3))
    weight = np.array([1.0, 2, 1, 2, 1])
    weighted, repeated = Scaling.of(table, weight), Scaling.of(np.repeat(table, [1, 2, 1, 2, 1], axis=0))
    np.testing.assert_allclose(weighted.mean, repeated.mean)
    np.testing.assert_allclose(weighted.scale, repeated.scale)


def test_a_cell_too_far_away_is_named():
    table = np.array([[0.0, 1.0], [0.0, 2 * MAX_SCALED]])
    with pytest.raises(
        DataError, match=r"X_val must lie near zero; row 1, column 1 is 2e\+18 \(1 such cell\)"
    ):
        Scaling.none(2).tensor(table, BaseEstimator(), limit="near zero", name="X_val")
