import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal.errors import DataError
from selfcal.tabular.target import read_target


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=20))
@settings(max_examples=100, deadline=None)
def test_labels_are_kept_byte_for_byte(labels):
    """Codes and classes give back each label, apart from other spellings of one whole number."""
    target = read_target(pl.DataFrame({"y": ["first", "second", *labels]}), "y")
    for old, new in zip(labels, target.labels[2:], strict=True):
        assert new == old or float(new) == float(old)
    assert len(set(target.classes)) == len(target.classes)


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["10", "9", "1"], ("1", "9", "10")),
        (["b", "a", "B"], ("B", "a", "b")),
        ([2, 10, 2], ("2", "10")),
        ([1.0, 2.0, 1.0], ("1", "2")),
        ([True, False], ("false", "true")),
        (["1.0", "2.0"], ("1.0", "2.0")),
        (["x", "10", "9", "-1.5"], ("-1.5", "9", "10", "x")),
        (["nan", "1e3", "inf", "20", "-inf", "NaN"], ("20", "1e3", "-inf", "NaN", "inf", "nan")),
    ],
    ids=str,
)
def test_classes_in_order(cells, classes):
    target = read_target(pl.DataFrame({"y": cells}), "y")
    assert target.classes == classes
    assert target.notes == ()
    assert target.codes.dtype == np.int64


def test_rows_with_a_label():
    target = read_target(pl.DataFrame({"y": ["a", None, "b"]}), "y", drop_unlabelled=True)
    assert target.rows.tolist() == [0, 2]
    assert target.labels.tolist() == ["a", "b"]
    assert target.notes == ("1 of 3 rows has no label in column 'y' and is left out.",)


def test_no_label_at_all():
    with pytest.raises(DataError, match="3 of 3 have none"):
        read_target(pl.DataFrame({"y": [None] * 3}, schema={"y": pl.String}), "y", drop_unlabelled=True)


@pytest.mark.parametrize("typed", [True, False])
def test_measurements_are_not_classes(typed):
    cells = pl.Series("y", [i / 7 for i in range(100)])
    with pytest.raises(
        DataError, match=r"must hold classes; it holds 100 distinct numbers such as 0.14.*, in row 2"
    ):
        read_target((cells if typed else cells.cast(pl.String)).to_frame(), "y")


def test_a_few_decimals_are_classes():
    """Sizes of shoes, doses: a hundred distinct ones are classes, one more is a measurement."""
    doses = [f"{i / 8}" for i in range(113)] * 10  # 98 of them are not whole
    assert len(read_target(pl.DataFrame({"y": doses}), "y").classes) == 113
    doses = [f"{i / 8 + 1 / 16}" for i in range(101)] * 10
    with pytest.raises(
        DataError, match=r"101 distinct numbers such as 0.0625, in row 1, and looks continuous"
    ):
        read_target(pl.DataFrame({"y": doses}), "y")
    assert len(read_target(pl.DataFrame({"y": doses}), "y", classes_anyway=True).classes) == 101
    with pytest.raises(DataError, match="--classes-anyway"):
        read_target(
            pl.DataFrame({"y": doses}).select(pl.col("y").str.replace(".", ",", literal=True)),
            "y",
            decimal=",",
        )


def test_ten_thousand_classes():
    labels = [f"class {i % 10_000}" for i in range(50_000)]
    target = read_target(pl.DataFrame({"y": labels}), "y")
    assert len(target.classes) == 10_000
    assert target.labels.tolist() == labels


def test_many_whole_numbers_may_be_a_quantity():
    ages = pl.DataFrame(
        {"age": [str(20 + i % 40) for i in range(200)], "code": [f"c{i % 40}" for i in range(200)]}
    )
    (note,) = read_target(ages, "age").notes
    assert "'age' holds 40 whole numbers, and each is a separate class" in note
    assert read_target(ages, "code").notes == ()


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        ([str(i * 37) for i in range(1001)] * 5, "1,001 distinct numbers such as 0, in row 1"),
        ([str(900 + 7 * i) for i in range(60)], "60 distinct numbers such as 900"),
        ([i * 37 for i in range(60)], "60 distinct numbers such as 0"),
        ([f"${i * 37:,}.50" for i in range(60)], "60 distinct numbers such as .0.50"),
        (
            [f"{i % 28 + 1:02}.{i % 12 + 1:02}.{2000 + i}" for i in range(60)],
            "60 distinct dates such as 01.01.2000",
        ),
        ([f"2024-{i % 12 + 1:02}-{i % 28 + 1:02}" for i in range(60)], "60 distinct dates"),
    ],
    ids=["prices", "areas", "typed", "currency", "dates", "iso"],
)
def test_quantities_are_not_classes(cells, what):
    table = pl.DataFrame({"y": cells})
    with pytest.raises(DataError, match=f"must hold classes; it holds {what}.*Bin them.*--classes-anyway"):
        read_target(table, "y")
    assert len(read_target(table, "y", classes_anyway=True).classes) == len(set(cells))


def test_many_repeated_codes_and_few_dates_are_classes():
    assert len(read_target(pl.DataFrame({"y": [str(i % 1000) for i in range(5000)]}), "y").classes) == 1000
    assert len(read_target(pl.DataFrame({"y": ["2024-01-01", "2025-01-01"] * 5}), "y").classes) == 2
