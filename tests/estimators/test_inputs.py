import datetime
from fractions import Fraction

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning

from selfcal.errors import DataError, DataTypeError
from selfcal.estimators.inputs import cell, class_codes, counted_rows, feature_table, labels

TABLE = np.arange(12.0).reshape(6, 2)


def read(X, name="X"):
    return feature_table(BaseEstimator(), X, reset=True, name=name)


def with_cell(value, row=2, column=1):
    X = TABLE.astype(object)
    X[row, column] = value
    return X


class TestFeatureTable:
    @pytest.mark.parametrize(
        "X",
        [
            TABLE,
            TABLE.tolist(),
            TABLE.astype(int),
            TABLE.astype(np.float16),
            TABLE.astype(object),
            TABLE.astype(str),
            np.asfortranarray(TABLE),
            np.ma.array(TABLE, mask=False),
            torch.from_numpy(TABLE.copy()),
            [[Fraction(int(v)) for v in row] for row in TABLE],
        ],
        ids=["array", "list", "int", "float16", "object", "text", "fortran", "unmasked", "torch", "fraction"],
    )
    def test_numbers_of_any_kind(self, X):
        table = read(X)
        assert table.dtype == np.float64
        np.testing.assert_array_equal(table, TABLE)

    def test_booleans_are_zero_and_one(self):
        np.testing.assert_array_equal(read(TABLE > 5), TABLE > 5)

    def test_does_not_copy_what_is_right(self):
        assert np.shares_memory(read(TABLE), TABLE)

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            (with_cell(np.nan), "row 2, column 1 is NaN"),
            (with_cell(None), "row 2, column 1 is NaN"),
            (with_cell(-np.inf), "row 2, column 1 is infinity"),
            (with_cell("nan"), "row 2, column 1 is NaN"),
            (np.ma.array(TABLE, mask=TABLE == 5), r"row 2, column 1 is NaN \(1 such cell"),
            (np.ma.array(TABLE.astype(int), mask=TABLE == 5), "row 2, column 1 is NaN"),
            (np.full((3, 2), np.nan), "row 0, column 0 is NaN .6 such cells.*SimpleImputer"),
        ],
    )
    def test_missing_numbers(self, X, message):
        with pytest.raises(DataError, match=message):
            read(X)

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            (with_cell("red"), "row 2, column 1 is 'red' .*fitted on numbers; .*data frame"),
            (np.array([["1", "2"], ["3", "x"]]), "row 1, column 1 is 'x'"),
            (with_cell("x" * 10_000), "row 2, column 1 is 'x{,20}...x{,20}'"),
            (with_cell(10**400), "row 2, column 1 is 1000.*int too large"),
            (with_cell(""), "row 2, column 1 is ''"),
        ],
    )
    def test_text(self, X, message):
        with pytest.raises(DataError, match=message):
            read(X)

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            (with_cell({"a": 1}), "row 2, column 1 is {'a': 1} .*Convert the column to numbers"),
            (with_cell(datetime.date(2020, 1, 1)), "row 2, column 1 is datetime.date"),
            (with_cell(1j), "row 2, column 1 is 1j"),
            (TABLE.astype("M8[D]"), r"got datetime64\[D\]. Turn dates into days first"),
            (TABLE.astype("M8[D]").tolist(), "row 0, column 0 is datetime.date"),
            ([[np.datetime64("2020-01-01")]] * 3, r"got datetime64\[D\]"),
            (TABLE.astype("m8[s]"), r"got timedelta64\[s\]"),
            (np.zeros((3, 2), dtype=[("a", float), ("b", float)]), "Pass each field as a separate column"),
            (None, r"table of numbers of shape \(rows, columns\).*got a NoneType"),
            (3.5, "got a float"),
            ("table", "got a str"),
            ({"a": [1, 2]}, "got a dict"),
            (iter(TABLE.tolist()), "got a list_iterator"),
        ],
    )
    def test_things_that_are_no_numbers(self, X, message):
        with pytest.raises(DataTypeError, match=message):
            read(X)

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            (TABLE[0], r"got shape \(2,\). Reshape your data: X.reshape\(-1, 1\)"),
            (["red", "green"], "Reshape your data"),
            ([], "Reshape your data"),
            (TABLE[:, :, None], r"got shape \(6, 2, 1\). Try X.reshape\(len\(X\), -1\)"),
            ([[1, 2], [3]], "rows have different lengths"),
            ([np.ones((2, 2)), np.ones((2, 3))], r"table of numbers of shape \(rows, columns\)"),
            (TABLE[:0], r"0 sample\(s\)"),
            (TABLE[:, :0], r"0 feature\(s\)"),
            (TABLE + 1j, "^Complex data not supported$"),
            (torch.zeros(3, 2, requires_grad=True), r"tensor.detach\(\).numpy\(\)"),
        ],
    )
    def test_other_shapes(self, X, message):
        with pytest.raises(DataError, match=message):
            read(X)

    def test_remembers_the_width(self):
        estimator = BaseEstimator()
        feature_table(estimator, TABLE, reset=True)
        assert estimator.n_features_in_ == 2
        with pytest.raises(DataError, match=r"^X_val: X has 1 features, but BaseEstimator is expecting 2"):
            feature_table(estimator, TABLE[:, :1], reset=False, name="X_val")

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            (with_cell(np.nan), "^X_val must hold finite numbers"),
            (with_cell("red"), "^X_val must hold numbers"),
            (TABLE[0], r"^X_val must be a table.*X_val.reshape\(-1, 1\)"),
            (TABLE[:0], "^X_val: Found array"),
        ],
    )
    def test_says_which_table(self, X, message):
        with pytest.raises(DataError, match=message):
            read(X, name="X_val")

    def test_cell_has_the_name_of_its_column(self):
        estimator = BaseEstimator()
        assert cell(estimator, 3, 1) == "row 3, column 1"
        estimator.feature_names_in_ = np.array(["age", "height"], dtype=object)
        assert cell(estimator, 3, 1) == "row 3, column 1 ('height')"


class Undecided:
    """Neither equal nor unequal to itself, as pandas.NA is."""

    def __eq__(self, other):
        return self

    __ne__ = __eq__
    __hash__ = object.__hash__

    def __bool__(self):
        raise TypeError("boolean value is ambiguous")


class TestLabels:
    @pytest.mark.parametrize(
        ("y", "kind"),
        [
            (["a", "b"], "U"),
            (np.array(["a", "b"], dtype=object), "O"),
            ([1, 2], "i"),
            (np.array([1, np.int8(2)], dtype=object), "i"),
            (np.array([True, np.False_], dtype=object), "b"),
            ([1.0, 2.0], "f"),
            (np.array(["2020", "2021"], dtype="M8[Y]"), "M"),
        ],
    )
    def test_kinds(self, y, kind):
        target = labels(y, 2)
        assert target.dtype.kind == kind
        assert target.tolist() == np.asarray(y).tolist()

    def test_column_is_taken_with_a_warning(self):
        with pytest.warns(DataConversionWarning, match="column-vector"):
            np.testing.assert_array_equal(labels([[0], [1]], 2), [0, 1])

    @pytest.mark.parametrize("missing", [None, np.nan, np.inf, -np.inf, np.float32("nan"), Undecided()])
    def test_missing_labels_name_the_row(self, missing):
        with pytest.raises(DataError, match=r"a label in every row; row 2 is .*1 such row.*Drop the rows"):
            labels(np.array(["a", "b", missing], dtype=object), 3)

    @pytest.mark.parametrize(
        ("y", "row"),
        [
            ([0.0, np.nan], 1),
            ([np.inf, 0.0], 0),
            (np.array(["2020", "NaT"], dtype="M8[Y]"), 1),
            (np.ma.array([0, 1], mask=[False, True]), 1),
        ],
    )
    def test_missing_in_arrays_of_one_type(self, y, row):
        with pytest.raises(DataError, match=f"row {row} is"):
            labels(y, 2)

    @pytest.mark.parametrize(
        ("y", "kinds"),
        [([1, "a"], "number and str"), ([True, 2], "bool and number"), ([b"a", "b"], "bytes and str")],
    )
    def test_mixed_labels(self, y, kinds):
        with pytest.raises(DataError, match=rf"of one kind; got {kinds} mixed.*y.astype\(str\)"):
            labels(np.array(y, dtype=object), 2)

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            ([0.0, 1.5], "continuous.*row 1 is 1.5.*Bin a continuous target into classes"),
            (np.array([0, 1.5], dtype=object), "continuous.*row 1 is 1.5"),
            (np.array([{}, {}]), "row 0 is {}"),
            (np.eye(2), r"vector with one label per row; .*\(2, 2\).*y.argmax\(axis=1\)"),
            (3, "vector with one label per row"),
            ([1j, 2j], "Complex data not supported"),
            ([0, 1, 2], "X has 2, y has 3"),
            ([], "X has 2, y has 0"),
            (None, "requires y to be passed, but the target y is None"),
        ],
    )
    def test_no_labels(self, y, message):
        with pytest.raises(DataError, match=message):
            labels(y, 2)

    def test_bytes(self):
        with pytest.raises(DataTypeError, match=r"y must hold strings, integers or booleans: .*bytes"):
            labels(np.array([b"a", b"b"]), 2)

    @pytest.mark.parametrize("y", [[0.5, 1], [None, 1], np.eye(2), [0, 1, 2]])
    def test_says_which_labels(self, y):
        with pytest.raises(DataError, match="y_val"):
            labels(y, 2, name="y_val")


class TestClassCodes:
    def test_codes_lead_back_to_the_labels(self):
        target = np.array(["b", "a", "c", "a"])
        classes, codes = class_codes(target)
        np.testing.assert_array_equal(classes[codes], target)
        assert codes.dtype == np.int64

    @pytest.mark.parametrize("label", [0.0, "a", True])
    def test_one_class(self, label):
        with pytest.raises(DataError, match=f"at least two classes; every row is {label!r}, one class only"):
            class_codes(np.array([label] * 3))


class TestCountedRows:
    def test_without_weights_every_row_counts(self):
        np.testing.assert_array_equal(counted_rows(np.array([0, 1, 1]), None), [0, 1, 2])

    def test_weight_zero_does_not_count(self):
        np.testing.assert_array_equal(counted_rows(np.array([0, 1, 1]), np.array([0.5, 0, 1])), [0, 2])

    def test_two_classes_must_be_left(self):
        with pytest.raises(DataError, match=r"at least two classes.*that of row 1"):
            counted_rows(np.array([0, 1, 1]), np.array([0.0, 1, 1]))
