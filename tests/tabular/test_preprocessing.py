from datetime import date

import numpy as np
import polars as pl
import pytest
import skops.io

from selfcal.errors import DataError
from selfcal.tabular.inference import infer_schema
from selfcal.tabular.preprocessing import Preprocessor

TABLE = pl.DataFrame(
    {
        "size": ["1", "2", "NA", "5"],
        "colour": ["red", None, "blue", "red"],
        "open": ["true", "False", None, "TRUE"],
        "when": ["2020-01-01", "2020-07-02", "2021-12-31", None],
        "y": ["a", "b", "a", "b"],
    }
)


def fitted(table=TABLE, *, target="y", max_levels=100, budget=2**30, **options):
    schema = infer_schema(table, target=target if target in table.columns else None, **options)
    return Preprocessor(max_levels=max_levels, budget=budget).fit(table, schema)


def column(preprocessor, table, name):
    return preprocessor.transform(table)[:, preprocessor.feature_names.index(name)]


def test_one_number_for_each_name():
    preprocessor = fitted()
    assert preprocessor.transform(TABLE).shape == (4, len(preprocessor.feature_names))
    assert np.isfinite(preprocessor.transform(TABLE)).all()


def test_numbers_are_standardized_and_missing_ones_are_the_mean():
    values = np.array([1.0, 2.0, 5.0])
    expected = (values - values.mean()) / values.std()
    preprocessor = fitted()
    np.testing.assert_allclose(
        column(preprocessor, TABLE, "size"), [*expected[:2], 0.0, expected[2]], atol=1e-12
    )
    assert column(preprocessor, TABLE, "size is missing").tolist() == [0, 0, 1, 0]


def test_categories_are_one_hot_with_missing_as_one_of_them():
    preprocessor = fitted()
    assert column(preprocessor, TABLE, "colour=red").tolist() == [1, 0, 0, 1]
    assert column(preprocessor, TABLE, "colour=blue").tolist() == [0, 0, 1, 0]
    assert column(preprocessor, TABLE, "colour=(missing)").tolist() == [0, 1, 0, 0]


def test_parts_of_dates():
    table = pl.DataFrame({"when": ["2020-01-01 00:00:00", "2020-07-02 12:00:00", "2021-12-31 18:00:00"]})
    preprocessor = fitted(table)
    assert preprocessor.feature_names == [
        f"when: {part}" for part in ("year", "day of year", "weekday", "hour")
    ]
    raw, _ = preprocessor._raw(table)
    expected = [[2020, 1, 3, 0], [2020 + 183.5 / 366, 184, 4, 12], [2021 + 364.75 / 365, 365, 5, 18]]
    np.testing.assert_allclose(raw, expected)


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e308])
def test_very_large_and_very_small_numbers_keep_their_order(scale):
    table = pl.DataFrame({"x": [-scale, 0.5 * scale, scale, scale] * 10})
    values = column(fitted(table), table, "x")
    assert np.isfinite(values).all()
    assert values[0] < values[1] < values[2] == values[3]


def test_a_constant_that_was_declared_a_number_is_zero():
    table = pl.DataFrame(
        {"x": ["5", "5"], "all": [None, None], "z": ["1", "2"]}, schema_overrides={"all": pl.String}
    )
    preprocessor = fitted(table, kinds={"x": "number", "all": "number"})
    assert column(preprocessor, table, "x").tolist() == [0, 0]
    assert column(preprocessor, table, "all").tolist() == [0, 0]


def test_only_the_most_frequent_levels_are_kept():
    cells = ["a"] * 5 + ["b"] * 4 + ["c"] * 3 + ["d", "e"]
    preprocessor = fitted(pl.DataFrame({"x": cells}), max_levels=3)
    assert preprocessor.feature_names == ["x=a", "x=b", "x=(other)"]
    encoded = preprocessor.encode(pl.DataFrame({"x": ["a", "d", "never seen"]}))
    assert encoded.values.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1]]
    assert encoded.unseen == {"x": 2}


def test_an_unknown_category_without_a_bucket_is_all_zeros_and_counted():
    preprocessor = fitted(pl.DataFrame({"x": ["a", "b", "a"]}))
    encoded = preprocessor.encode(pl.DataFrame({"x": ["c", None, "b"]}))
    assert encoded.values.tolist() == [[0, 0], [0, 0], [0, 1]]
    assert encoded.unseen == {"x": 1}
    assert "1 cell with a category that was not seen in training" in encoded.notes[0]


def test_typed_and_text_columns_give_the_same_numbers():
    """A model trained on CSV takes Parquet, and the other way round."""
    typed = pl.DataFrame(
        {
            "size": [1.0, 2.0, None, 5.0],
            "colour": pl.Series(["red", None, "blue", "red"], dtype=pl.Categorical),
            "open": [True, False, None, True],
            "when": [date(2020, 1, 1), date(2020, 7, 2), date(2021, 12, 31), None],
        }
    )
    from_text, from_typed = fitted(), fitted(typed)
    text = TABLE.drop("y")
    assert from_text.feature_names == from_typed.feature_names
    np.testing.assert_array_equal(from_text.transform(typed), from_text.transform(text))
    np.testing.assert_array_equal(from_typed.transform(typed), from_text.transform(text))
    np.testing.assert_array_equal(from_typed.transform(text), from_text.transform(text))


def test_whole_floats_are_the_categories_they_were_as_integers():
    preprocessor = fitted(pl.DataFrame({"code": ["1", "2", "1"]}), kinds={"code": "category"})
    assert preprocessor.encode(pl.DataFrame({"code": [2.0, 1.0]})).unseen == {}


def test_rows_do_not_depend_on_their_neighbours():
    preprocessor = fitted()
    whole = preprocessor.transform(TABLE)
    parts = np.vstack([preprocessor.transform(part) for part in TABLE.iter_slices(1)])
    np.testing.assert_array_equal(whole, parts)


def test_missing_at_predict_where_nothing_was_missing_at_fit():
    preprocessor = fitted(pl.DataFrame({"x": ["1", "3"]}))
    assert preprocessor.transform(pl.DataFrame({"x": [None, "3"]}, schema={"x": pl.String})).tolist() == [
        [0],
        [1],
    ]


def test_stored_with_skops_without_trust_and_read_back_to_the_bit():
    preprocessor = fitted()
    data = skops.io.dumps(preprocessor.state())
    assert skops.io.get_untrusted_types(data=data) == []
    again = Preprocessor.from_state(skops.io.loads(data, trusted=[]))
    assert again.schema == preprocessor.schema
    assert again.feature_names == preprocessor.feature_names
    np.testing.assert_array_equal(again.transform(TABLE), preprocessor.transform(TABLE))
    assert again.encode(TABLE.with_columns(colour=pl.lit("green"))).unseen == {"colour": 4}


@pytest.mark.parametrize(
    ("name", "cell", "message"),
    [
        ("size", "big", "Column 'size' must hold numbers, as at fit; row 2 is 'big'"),
        ("open", "maybe", "Column 'open' must hold true or false; row 2 is 'maybe'"),
        ("when", "soon", "Column 'when' must hold dates, as at fit; row 2 is 'soon'"),
        ("size", "1e999", r"'size' has 1 \(first in row 2\).*--nonfinite impute"),
    ],
)
def test_cells_that_are_not_what_they_were_at_fit(name, cell, message):
    cells = TABLE[name].to_list()
    cells[1] = cell
    with pytest.raises(DataError, match=message):
        fitted().transform(TABLE.with_columns(pl.Series(name, cells)))


def test_infinite_numbers_as_missing():
    table = pl.DataFrame({"x": ["1", "inf", "3"]})
    preprocessor = fitted(table, nonfinite="impute")
    np.testing.assert_allclose(preprocessor.transform(table), [[-1, 0], [0, 1], [1, 0]])


def test_a_number_too_large_for_the_scale_is_named():
    preprocessor = fitted(pl.DataFrame({"x": [0.0, 1e-9], "z": ["a", "b"]}))
    with pytest.raises(DataError, match=r"row 2, column 'x' is 1e[+]308, where 1e-09 was the largest"):
        preprocessor.transform(pl.DataFrame({"x": [0.0, 1e308], "z": ["a", "b"]}))


def test_the_budget():
    with pytest.raises(
        DataError, match=r"must fit into 0.0 GB of memory; 4 rows of 1. numbers need about .* GB.*--memory"
    ):
        fitted(budget=100)
    preprocessor = fitted()
    preprocessor.budget = 100
    with pytest.raises(DataError, match="must fit into"):
        preprocessor.transform(TABLE)


def test_decimal_commas():
    commas = pl.DataFrame({"x": ["1,5", "2", "-0,5"]})
    points = pl.DataFrame({"x": ["1.5", "2", "-0.5"]})
    preprocessor = fitted(commas, decimal=",")
    np.testing.assert_array_equal(preprocessor.transform(commas), fitted(points).transform(points))
    np.testing.assert_array_equal(preprocessor.transform(points), fitted(points).transform(points))
