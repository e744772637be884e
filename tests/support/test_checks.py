import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcal._support import checks
from selfcal.errors import ConfigError, DataError


class TestNumbers:
    def test_float64(self):
        assert checks.numbers([1, True, np.float16(2)], "x").dtype == np.float64

    def test_masked_becomes_nan(self):
        masked = np.ma.array([1, 2, 3], mask=[False, True, False])
        np.testing.assert_array_equal(checks.numbers(masked, "x"), [1, np.nan, 3])

    @pytest.mark.parametrize("values", ["red", ["red"], [[1, 2], [3]], {"a": 1}, [10**400], [1j]])
    def test_no_numbers(self, values):
        with pytest.raises(DataError, match="x must hold numbers in rows of equal length; got: "):
            checks.numbers(values, "x")


class TestSettings:
    def test_one_of(self):
        assert checks.one_of("colour", "red", ("red", "green")) == "red"
        with pytest.raises(
            ConfigError, match=r"colour must be one of 'red', 'green'; got 'gren'. Did you mean 'green'"
        ):
            checks.one_of("colour", "gren", ("red", "green"))
        with pytest.raises(ConfigError, match=r"got 'xyz'.$"):
            checks.one_of("colour", "xyz", ("red", "green"))
        with pytest.raises(ConfigError, match=r"got None.$"):
            checks.one_of("colour", None, ("red", "green"))

    @pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.5), np.int64(1)])
    def test_in_range(self, value):
        assert checks.in_range("x", value, 0, 1) == value

    @pytest.mark.parametrize(
        "value", [-0.1, 1.1, np.nan, np.inf, "0.5", None, True, 1j, np.complex64(0), [0.5]]
    )
    def test_out_of_range(self, value):
        with pytest.raises(ConfigError, match=r"x must be a number in \[0, 1\]; got"):
            checks.in_range("x", value, 0, 1)

    def test_open_end(self):
        with pytest.raises(ConfigError, match=r"x must be a number in \(0, inf\); got 0"):
            checks.in_range("x", 0, 0, open_low=True)

    @pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
    def test_infinity_is_no_number(self, value):
        with pytest.raises(ConfigError, match=r"x must be a number in \(-inf, inf\)"):
            checks.in_range("x", value)

    def test_number_too_large_for_a_float_is_compared_all_the_same(self):
        assert checks.in_range("x", 10**400) == 10**400

    @pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3)])
    def test_positive_int(self, value):
        assert type(checks.positive_int("n", value)) is int

    @pytest.mark.parametrize("value", [0, -1, 3.0, "3", None, True, np.True_, np.nan, [3]])
    def test_not_a_positive_int(self, value):
        with pytest.raises(ConfigError, match="n must be a whole number of at least 1; got"):
            checks.positive_int("n", value)

    def test_lowest_int(self):
        assert checks.positive_int("seed", 0, low=0) == 0

    @pytest.mark.parametrize("value", [True, np.True_])
    def test_boolean(self, value):
        assert checks.boolean("flag", value) is True

    @pytest.mark.parametrize("value", ["no", 1, None])
    def test_not_a_boolean(self, value):
        with pytest.raises(ConfigError, match=f"flag must be True or False; got {value!r}"):
            checks.boolean("flag", value)


class TestSameLength:
    def test_none_has_no_length(self):
        assert checks.same_length(a=[1, 2], b=None, c="xy") == 2

    def test_names_all(self):
        with pytest.raises(DataError, match="inconsistent lengths: a has 2, b has 3"):
            checks.same_length(a=[1, 2], b=[1, 2, 3])


class TestProbabilities:
    def test_rounding_errors_are_clipped(self):
        clipped = checks.probabilities([[-1e-7, 1 + 1e-7]])
        np.testing.assert_array_equal(clipped, [[0, 1]])
        checks.probabilities(np.array([[0.33325, 0.6665]], dtype=np.float16))

    @pytest.mark.parametrize(
        ("probs", "message"),
        [
            ([0.5, 0.5], r"got shape \(2,\).*column_stack"),
            ([[1.0]], r"got shape \(1, 1\)"),
            (np.zeros((0, 2)), "no rows"),
            ([[0.5, 0.5], [2.0, 1.0]], r"row 1 is .* with sum 3 \(1 such row\).*softmax"),
            ([[0.5, np.nan]], "row 0 is"),
            ([[1.5, -0.5]], "row 0 is"),
            ([[np.inf, -np.inf]], "row 0 is"),
        ],
    )
    def test_no_probabilities(self, probs, message):
        with pytest.raises(DataError, match=message):
            checks.probabilities(probs)


class TestLogits:
    def test_float64(self):
        assert checks.logits(np.zeros((2, 3), dtype=np.float32)).dtype == np.float64

    @pytest.mark.parametrize(
        ("logits", "message"),
        [
            (
                [1.0, 2.0],
                r"scores must be a table of shape \(rows, classes\).*got shape \(2,\).*column_stack",
            ),
            ([[1.0]], r"got shape \(1, 1\)"),
            (np.zeros((0, 3)), r"got shape \(0, 3\)"),
            ([[0.0, 0.0], [0.0, -np.inf]], "scores must be finite; row 1, column 1 is -inf"),
        ],
    )
    def test_no_logits(self, logits, message):
        with pytest.raises(DataError, match=message):
            checks.logits(logits, "scores")


class TestUnitInterval:
    def test_rounding_errors_are_clipped(self):
        np.testing.assert_array_equal(checks.unit_interval([-1e-7, 0.5, 1 + 1e-7]), [0, 0.5, 1])

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([], r"got shape \(0,\)"),
            ([[0.5]], r"got shape \(1, 1\)"),
            ([0.5, 1.5], r"row 1 is 1.5 \(1 such row\).*calibrate"),
            ([np.nan], "row 0 is nan"),
        ],
    )
    def test_outside(self, values, message):
        with pytest.raises(DataError, match=message):
            checks.unit_interval(values)


class TestLabelCodes:
    @given(st.lists(st.integers(-5, 5), min_size=1), st.permutations(range(-5, 6)))
    def test_code_is_the_place_among_the_classes(self, y, classes):
        codes = checks.label_codes(y, len(classes), classes)
        assert [classes[code] for code in codes] == y

    @pytest.mark.parametrize("kind", [str, object])
    def test_names(self, kind):
        classes = np.array(["owl", "cat", "dog"], dtype=kind)
        np.testing.assert_array_equal(checks.label_codes(["dog", "owl"], 3, classes), [2, 0])

    def test_booleans(self):
        np.testing.assert_array_equal(checks.label_codes([True, False], 2), [1, 0])

    @pytest.mark.parametrize(
        ("y", "classes", "message"),
        [
            ([0, 3], None, r"y must hold labels from \[0, 1\]; row 1 is 3 \(1 such row\). Pass classes="),
            ([-1, 0], None, "row 0 is -1"),
            ([0.5, 0], None, "row 0 is 0.5"),
            ([np.nan, 0], None, "row 0 is nan"),
            (["a", "b"], None, "row 0 is 'a'"),
            (["cat", "dgo"], ["cat", "dog"], "row 1 is 'dgo'.*misspelt"),
            ([0, 1], ["cat", "dog"], "row 0 is 0 .2 such rows"),
            ([[0], [1]], None, r"y must be a vector of labels; got shape \(2, 1\). Try y.ravel"),
            ([0, 1], ["cat"], "classes must name the 2 columns of the probabilities; got 1"),
            ([0, 1], ["cat", "cat"], "classes must name each column once"),
        ],
    )
    def test_unknown(self, y, classes, message):
        with pytest.raises(DataError, match=message):
            checks.label_codes(y, 2, classes, name="y")


class TestSampleWeights:
    def test_none_stays_none(self):
        assert checks.sample_weights(None, 3) is None

    def test_one_number_for_all(self):
        np.testing.assert_array_equal(checks.sample_weights(2, 3), [2, 2, 2])

    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            ([1, 1], r"each of the 3 rows; got shape \(2,\)"),
            ([1, np.nan, 1], "finite and not negative; row 1 is nan"),
            ([1, 1, -2], "row 2 is -2.0"),
            ([np.inf, 1, 1], "row 0 is inf"),
            (np.ma.array([1, 1, 1], mask=[False, False, True]), "row 2 is nan"),
            ([0, 0, 0], "zero in every row"),
            (["a", "b", "c"], "sample_weight must hold numbers"),
        ],
    )
    def test_bad(self, weight, message):
        with pytest.raises(DataError, match=message):
            checks.sample_weights(weight, 3)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("Kind", ["king", "kind"], "kind"),
        ("KIND", ["Kind", "kinds"], "Kind"),
        ("taregt", ["target", "tariff"], "target"),
        ("target", ["age_target_2", "garter"], None),
        ("x1", ["x2"], None),
        ("a", [], None),
        ("x" * 1000, ["x" * 999], None),
    ],
)
def test_the_closest_name_differs_in_few_letters_or_in_case(name, options, expected):
    assert checks.closest(name, options) == expected
