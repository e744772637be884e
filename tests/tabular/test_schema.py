import json

import polars as pl
import pytest

from selfcal.errors import DataError
from selfcal.tabular.schema import Column, Schema, column_named


@pytest.fixture
def schema():
    columns = (
        Column("size", "number", missing=1234, distinct=5),
        Column("when", "date", form="%d.%m.%Y"),
        Column("id", "drop", note="is dropped: it numbers the rows"),
    )
    return Schema(columns, nonfinite="impute", target="y", decimal=",")


def test_dropped_columns_are_not_used_but_noted(schema):
    assert [c.name for c in schema.used] == ["size", "when"]
    assert schema.notes == ("Column 'id' is dropped: it numbers the rows.",)


def test_the_table_a_user_sees(schema):
    assert str(schema).splitlines() == [
        "column  kind    missing  distinct",
        "size    number    1,234         5",
        "when    date          0         0",
        "id      drop          0         0  is dropped: it numbers the rows",
    ]


def test_control_characters_in_names_are_escaped():
    assert "\x1b" not in str(Schema((Column("\x1b[2Jhidden", "number"),)))


def test_json_round_trip(schema):
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_a_misspelt_column():
    table = pl.DataFrame({"label": [1], **{f"f{i}": [1] for i in range(30)}})
    assert column_named(table, "label") == "label"
    with pytest.raises(
        DataError, match=r"must have a column 'lable'; it has 'label', .*\.\.\.\. Did you mean 'label'\?"
    ):
        column_named(table, "lable")


def test_a_single_column_may_mean_another_separator():
    with pytest.raises(DataError, match=r"it has 'a:b'. A single column may mean another separator.*--sep"):
        column_named(pl.DataFrame({"a:b": ["1:2"]}), "b")
