import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from selfcal.tabular.copies import find_copies, joined, n_groups, numbered


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def copied(table, times=5):
    """The rows of a table several times, shuffled, and which row each is a copy of."""
    order = np.random.default_rng(1).permutation(times * len(table))
    return np.tile(table, (times, 1))[order], np.tile(np.arange(len(table)), times)[order]


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 40), st.integers(1, 12)),
        elements=st.sampled_from([0.0, -0.0, 1.0, 1.5, -1e300, 1e-300, np.nan]),
    )
)
def test_equal_rows_share_a_group_unless_they_have_too_few_values(X):
    rows = [tuple("missing" if np.isnan(v) else v + 0.0 for v in row) for row in X]
    distinct = list(dict.fromkeys(rows))
    found = find_copies(X, kinds=["boolean"] * X.shape[1])
    if len(distinct) < min(20, len(X) / 2):
        assert found.groups.tolist() == list(range(len(X)))
        assert f"The {len(X)} rows have only {len(distinct)} distinct values" in found.notes[0]
    else:
        assert found.groups.tolist() == [distinct.index(row) for row in rows]
        assert len(found.notes) == (len(distinct) < len(X))


def test_rows_without_copies_are_groups_in_order(rng):
    for X in (rng.normal(size=(5000, 1)), rng.normal(size=(500, 20)), rng.integers(0, 10**6, size=(3000, 2))):
        found = find_copies(X.astype(float))
        np.testing.assert_array_equal(found.groups, np.arange(len(X)))
        assert found.notes == ()


@pytest.mark.parametrize("digits", [4, 7, 16])
def test_rounding_noise(rng, digits):
    """Numbers of seven digits often lie where rounding to six turns."""
    X = np.array(
        [[float(f"{v:.{digits}g}") for v in row] for row in rng.normal(size=(300, 6)) * 10.0 ** np.arange(6)]
    )
    noisy, row = copied(X)
    noisy *= 1 + 1e-9 * rng.normal(size=noisy.shape)
    found = find_copies(noisy)
    assert n_groups(found.groups) <= 303
    assert len(set(zip(found.groups, row, strict=True))) == n_groups(found.groups)
    assert "equal an earlier row after rounding to 6 significant digits" in found.notes[0]


def test_copies_written_with_six_digits(rng):
    X = rng.lognormal(sigma=4, size=(300, 6))
    found = find_copies(np.vstack([X, [[float(f"{v:.6g}") for v in row] for row in X]]))
    assert found.groups.tolist() == [*range(300)] * 2


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: 1e6 + rng.random((1000, 2)),
        lambda rng: 1e5 + 10 * rng.random((1000, 1)),
        lambda rng: rng.normal(size=(20_000, 1)),
        lambda rng: np.column_stack([rng.integers(10**6, 10**8, 5000), rng.integers(0, 2, 5000)]),
    ],
)
def test_numbers_close_together_are_not_copies(rng, make):
    """Their digits beyond the sixth say something, or there are so many that some are close."""
    X = make(rng)
    assert find_copies(X.astype(float)).groups.tolist() == list(range(len(X)))


@pytest.mark.parametrize("ids", ["running", "random", "running, with gaps"])
def test_another_identifier_for_each_copy(rng, ids):
    X, row = copied(np.column_stack([rng.normal(size=(300, 3)), rng.integers(0, 4, (300, 3))]))
    column = {
        "running": np.arange(len(X)),
        "random": rng.choice(10**9, len(X), replace=False),
        "running, with gaps": np.flatnonzero(rng.random(3000) < 0.55)[: len(X)],
    }[ids]
    found = find_copies(np.column_stack([X, column]), names=[*"abcdef", "id"])
    np.testing.assert_array_equal(found.groups, numbered(row))
    assert found.notes == (
        "1,200 of 1,500 rows equal an earlier row except for identifiers or dates ('id'); such near-copies are kept "
        "in the same part.",
    )


def test_another_date_for_each_copy(rng):
    X, row = copied(rng.normal(size=(300, 3)))
    dated = np.column_stack([X, rng.integers(0, 1000, len(X))])
    found = find_copies(dated, kinds=["number"] * 3 + ["date"])
    np.testing.assert_array_equal(found.groups, numbered(row))
    assert "dates (3)" in found.notes[-1]


def test_all_at_once(rng):
    """Copies that differ in the identifier, others in the date, others by noise."""
    X = rng.normal(size=(300, 6))
    table = np.column_stack([X, np.arange(300) * 37 % 1009, rng.integers(0, 500, 300)])
    parts = [table.copy() for _ in range(5)]
    parts[1][:, 6] += 2000
    parts[2][:, 7] += 777
    parts[3][:, :6] *= 1 + 1e-9 * rng.normal(size=(300, 6))
    found = find_copies(np.vstack(parts), kinds=["number"] * 7 + ["date"])
    np.testing.assert_array_equal(found.groups, np.tile(np.arange(300), 5))
    assert len(found.notes) == 3


@pytest.mark.parametrize("columns", [1, 2, 4, 8])
def test_few_levels_beside_a_date_or_an_identifier_are_not_copies(rng, columns):
    """Equal days are a matter of course where a day has few features."""
    levels = rng.integers(0, 3, (1000, columns))
    dates = rng.choice(10_000, 1000, replace=False)
    for kind in ("date", "number"):
        found = find_copies(
            np.column_stack([levels, dates]).astype(float), kinds=["category"] * columns + [kind]
        )
        assert found.groups.tolist() == list(range(1000))
        assert found.notes == ()


def test_days_of_few_products_are_not_copies(rng):
    """The features of a product go together, whatever one leaves out; there are just few of them."""
    products = np.column_stack([np.arange(20), rng.normal(size=(20, 3))])
    table = np.column_stack([products[rng.integers(0, 20, 1000)], rng.choice(10_000, 1000, replace=False)])
    found = find_copies(table, kinds=["category", *["number"] * 3, "date"])
    assert found.groups.tolist() == list(range(1000))


def test_a_few_near_copies_are_ignored(rng):
    X = rng.normal(size=(1000, 4))
    X[:5] = X[5:10] * (1 + 1e-12)
    assert find_copies(X).notes == ()


def test_groups_that_share_a_row_are_joined():
    assert joined(np.array([0, 1, 2, 0]), np.array([0, 1, 1, 2]), np.array([0, 1, 2, 3])).tolist() == [
        0,
        1,
        1,
        0,
    ]
    assert joined(np.array([0, 1, 0])).tolist() == [0, 1, 0]
