import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal.errors import ConfigError
from selfcal.tabular.features import FeatureGroups
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.preprocessing import Preprocessor


def test_values_are_plain_tuples():
    groups = FeatureGroups(missing=[[0, 1]], categories=[[2, 4], [4, 5]])
    assert (groups.missing, groups.categories) == (((0, 1),), ((2, 4), (4, 5)))
    assert groups == FeatureGroups(((0, 1),), ((2, 4), (4, 5)))
    assert groups.n_features == 5
    assert FeatureGroups().n_features == 0


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"missing": "ab"}, "missing must be a list of pairs"),
        ({"missing": [1]}, "missing must hold pairs of positions"),
        ({"missing": [(0, 1, 2)]}, "pairs of positions"),
        ({"missing": [(0, -1)]}, "from 0 on"),
        ({"missing": [(0, True)]}, "whole numbers"),
        ({"categories": [(0, 1.0)]}, "categories must hold pairs"),
        ({"categories": None}, "categories must be a list"),
        ({"categories": [(2, 2)]}, "start < stop"),
        ({"categories": [(0, 3), (2, 4)]}, "in one group only; got several for those at 2"),
        ({"missing": [(0, 0)]}, "in one group only; got several for those at 0"),
        ({"missing": [(0, 1), (2, 1)]}, "in one group only"),
        ({"missing": [(0, 5)], "categories": [(4, 10**15)]}, "in one group only"),
    ],
)
def test_invalid_values(groups, message):
    with pytest.raises(ConfigError, match=message):
        FeatureGroups(**groups)


def fitted(table, **options):
    return Preprocessor(**options).fit(table, infer_schema(table))


def test_the_groups_of_a_table():
    table = pl.DataFrame(
        {
            "colour": ["red", "blue", "red", None],
            "size": ["1", None, "3", "5"],
            "day": ["2024-01-01", None, "2024-02-02", "2024-03-05"],
            "weight": ["1", "2", "4", "3"],
            "town": ["x", "y", "z", "x"],
        }
    )
    preprocessor = fitted(table)
    names, groups = preprocessor.feature_names, preprocessor.groups
    assert [(names[i], names[j]) for i, j in groups.missing] == [
        (name, f"{name} is missing") for name in ("size", *(n for n in names if n.startswith("day: ")))
        if f"{name} is missing" in names
    ]  # fmt: skip
    assert len(groups.missing) == 5
    assert [names[start:stop] for start, stop in groups.categories] == [
        ["colour=blue", "colour=red", "colour=(missing)"],
        ["town=x", "town=y", "town=z"],
    ]
    assert groups.n_features <= len(names)


@settings(deadline=None, max_examples=20)
@given(
    kinds=st.lists(st.sampled_from(["number", "gaps", "category"]), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_every_encoded_feature_is_as_its_group_says(kinds, seed):
    rng = np.random.default_rng(seed)
    columns = {
        "number": lambda: rng.normal(size=30).astype(str),
        "gaps": lambda: np.where(np.arange(30) % 4 == 1, "", rng.normal(size=30).astype(str)),
        "category": lambda: rng.choice(["red", "blue", "green"], 30),
    }
    preprocessor = fitted(pl.DataFrame({f"{kind}{i}": columns[kind]() for i, kind in enumerate(kinds)}))
    table = pl.DataFrame({f"{kind}{i}": columns[kind]() for i, kind in enumerate(kinds)})
    x, groups = preprocessor.transform(table), preprocessor.groups
    assert len(groups.missing) == kinds.count("gaps")
    assert len(groups.categories) == kinds.count("category")
    for number, indicator in groups.missing:
        assert {*x[:, indicator]} == {0, 1}
        assert (x[x[:, indicator] == 1, number] == 0).all()
    for start, stop in groups.categories:
        assert (x[:, start:stop].sum(axis=1) == 1).all()
    assert x.shape[1] == len(kinds) + len(groups.missing) + 2 * len(groups.categories)
