import numpy as np
import polars as pl
import pytest

from selfcal._support.splits import split_groups
from selfcal.errors import ConfigError, DataError
from selfcal.tabular.split import Parts, divide


def visits(n=200, seed=0):
    """Two visits of each patient, a few of them without a patient."""
    rng = np.random.default_rng(seed)
    who = [None if i % 50 == 0 else f"p{i // 2}" for i in range(n)]
    return pl.DataFrame(
        {"x": rng.normal(size=n), "z": rng.normal(size=n), "who": who, "y": rng.choice(["a", "b"], n)}
    )


def divided(table, **options):
    return divide(table, "y", held_out=0.2, validation=0.3, seed=0, **options)


@pytest.mark.parametrize("seed", range(5))
def test_copies_stay_together_and_every_class_is_trained_on(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(40, size=120)
    _, groups = np.unique(groups, return_inverse=True)
    codes = np.where(rng.random(120) < 0.9, groups % 3, rng.integers(4, size=120))
    rest, apart = split_groups(codes, groups, (0.7, 0.3), seed=seed)
    assert not set(groups[rest]) & set(groups[apart])
    assert sorted([*rest, *apart]) == list(range(120))
    assert set(codes[rest]) == set(codes)


@pytest.mark.parametrize("seed", range(5))
def test_without_held_out_rows_all_others_are_split_in_the_same_way(seed):
    rng = np.random.default_rng(seed)
    _, groups = np.unique(rng.integers(40, size=120), return_inverse=True)
    codes = np.where(rng.random(120) < 0.9, groups % 3, rng.integers(4, size=120))
    parts = Parts.of(codes, groups, 0, 0.3, seed)
    assert len(parts.held_out) == 0
    assert sorted([*parts.train, *parts.validation]) == list(range(120))
    assert not set(groups[parts.train]) & set(groups[parts.validation])
    assert set(codes[parts.train]) == set(codes)
    assert 0.15 < len(parts.validation) / 120 < 0.45


def test_rows_that_are_all_copies_cannot_be_split():
    with pytest.raises(DataError, match="enough rows to hold some out"):
        Parts.of(np.arange(30) % 2, np.zeros(30, dtype=int), 0.2, 0.3, 0)
    with pytest.raises(DataError, match="enough rows to hold some out"):
        Parts.of(np.arange(30) % 2, np.zeros(30, dtype=int), 0, 0.3, 0)


def test_rows_of_a_group_stay_together_and_its_column_is_not_a_feature():
    found = divided(visits(), group="who")
    assert [c.name for c in found.schema.used] == ["x", "z"]
    sides = [
        found.table["who"][rows].drop_nulls()
        for rows in (found.parts.train, found.parts.validation, found.parts.held_out)
    ]
    assert sum(side.n_unique() for side in sides) == 100
    unknown = found.groups[::50]
    assert len(set(unknown)) == 4 == sum(np.isin(found.groups, unknown))
    assert found.notes == (
        "Column 'who' is not used as a feature; rows with the same of its 100 values are kept in the same part.",
        "4 of 200 rows have no value in it; each is a separate group.",
    )


def test_groups_are_compared_by_value():
    numbers = visits().with_columns(
        who=pl.Series([["7", " 7.0", "07", "8"][i % 4] + ("" if i < 4 else str(i)) for i in range(200)])
    )
    found = divided(numbers, group="who")
    assert found.groups[:4].tolist() == [0, 0, 0, 1]


def test_copies_in_different_groups_are_noted():
    table = pl.concat([visits(), visits().with_columns(who="q" + pl.col("who"))])
    found = divided(table, group="who")
    assert any("200 of 400 rows repeat a row of another group" in note for note in found.notes)


@pytest.mark.parametrize(
    ("group", "error", "message"),
    [
        ("whom", DataError, r"must have a column 'whom'; it has 'x', 'z', 'who', 'y'. Did you mean 'who'\?"),
        ("y", ConfigError, "must not be the target; got 'y' for both"),
    ],
)
def test_bad_group_columns(group, error, message):
    with pytest.raises(error, match=message):
        divided(visits(), group=group)
