import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from selfcal._support.splits import split_groups
from selfcal.datasets import stratified_split
from selfcal.errors import DataError
from selfcal.estimators.splits import hold_out, with_validation

codes_of_up_to_five_classes = hnp.arrays(np.int64, st.integers(1, 80), elements=st.integers(0, 4))
seeds = st.integers(0, 2**31 - 1)


def parts_of(parts):
    return [part for part in (parts.train, parts.outer, parts.selection) if part is not None]


@pytest.mark.filterwarnings("ignore:.*classes ha(s|ve) fewer than")
@given(
    codes=codes_of_up_to_five_classes,
    share=st.floats(0.01, 0.9),
    outer=st.booleans(),
    selection=st.booleans(),
    seed=seeds,
    data=st.data(),
)
def test_parts_are_disjoint_and_cover_all_rows(*, codes, share, outer, selection, seed, data):
    counted = data.draw(hnp.arrays(bool, len(codes)).filter(np.any))
    rows = np.flatnonzero(counted)
    largest = np.bincount(codes[rows]).max()
    if outer + selection and largest <= outer + selection:
        with pytest.raises(DataError, match="Too few rows"):
            hold_out(codes, np.arange(len(codes)), rows, share, outer=outer, selection=selection, seed=seed)
        return
    parts = hold_out(codes, np.arange(len(codes)), rows, share, outer=outer, selection=selection, seed=seed)
    assert (parts.outer is not None, parts.selection is not None) == (outer, selection)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts_of(parts))), rows)
    assert all(len(part) for part in parts_of(parts))
    assert set(codes[parts.train]) == set(codes[rows])  # nothing is predicted that was never seen
    for c in np.flatnonzero(np.bincount(codes[rows]) > outer + selection):
        assert all(c in codes[part] for part in parts_of(parts))


@pytest.mark.filterwarnings("ignore:.*classes ha(s|ve) fewer than")
@given(codes=codes_of_up_to_five_classes.filter(lambda codes: np.bincount(codes).max() > 2), seed=seeds)
def test_rows_that_do_not_count_do_not_matter(codes, seed):
    among_others = np.repeat(codes, 2)
    every = np.arange(2 * len(codes))
    some = hold_out(among_others, every, every[::2], 0.3, outer=True, selection=True, seed=seed)
    every = np.arange(len(codes))
    alone = hold_out(codes, every, every, 0.3, outer=True, selection=True, seed=seed)
    for part, same in zip(parts_of(some), parts_of(alone), strict=True):
        np.testing.assert_array_equal(part, 2 * same)


def test_share_is_what_is_kept_back_in_all():
    codes = np.arange(1000) % 4
    parts = hold_out(codes, np.arange(1000), np.arange(1000), 0.3, outer=True, selection=True, seed=0)
    assert [len(part) for part in parts_of(parts)] == pytest.approx([700, 150, 150], abs=4)
    parts = hold_out(codes, np.arange(1000), np.arange(1000), 0.3, outer=False, selection=True, seed=0)
    assert [len(part) for part in parts_of(parts)] == pytest.approx([700, 300], abs=4)


def test_seed_decides_which_rows():
    codes = np.arange(100) % 4
    first, again, other = (
        hold_out(codes, np.arange(100), np.arange(100), 0.3, outer=True, selection=True, seed=seed)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.outer, again.outer)
    assert not np.array_equal(first.outer, other.outer)


def test_rare_classes_are_told():
    codes = np.array([0] * 20 + [1] * 20 + [2] * 2 + [5])
    with pytest.warns(UserWarning, match="2 of 4 classes have fewer than 3 rows"):
        parts = hold_out(
            codes, np.arange(len(codes)), np.arange(len(codes)), 0.3, outer=True, selection=True, seed=0
        )
    assert {2, 5} <= set(codes[parts.train])
    assert 2 in codes[parts.outer]
    assert 5 not in codes[parts.outer]


def test_too_few_rows_says_how_many_it_takes():
    with pytest.raises(DataError, match="got 4 rows in 2 classes, none of which has the 3 rows") as told:
        hold_out(np.array([0, 0, 1, 1]), np.arange(4), np.arange(4), 0.25, outer=True, selection=True, seed=0)
    assert "hold out 25% of them" in str(told.value)
    assert "pass X_val and y_val" in str(told.value)


@given(
    codes=codes_of_up_to_five_classes.filter(lambda codes: np.bincount(codes).max() > 1),
    n_train=st.integers(1, 20),
    outer=st.booleans(),
    selection=st.booleans(),
    seed=seeds,
)
def test_validation_rows_come_after_the_training_rows(codes, n_train, outer, selection, seed):
    rows = np.arange(n_train)
    parts = with_validation(
        rows, codes, np.arange(len(codes)), n_train, outer=outer, selection=selection, seed=seed
    )
    np.testing.assert_array_equal(parts.train, rows)
    assert (parts.outer is not None, parts.selection is not None) == (outer, selection)
    kept = parts_of(parts)[1:]
    if kept:
        np.testing.assert_array_equal(np.sort(np.concatenate(kept)), n_train + np.arange(len(codes)))
    if outer and selection:
        assert abs(len(parts.outer) - len(parts.selection)) <= 5  # one row a class at most


def test_validation_data_too_small_to_divide():
    with pytest.raises(DataError, match=r"at least two rows of a class.*got 2 rows.*early_stopping=False"):
        with_validation(np.arange(3), np.array([0, 1]), np.arange(2), 3, outer=True, selection=True, seed=0)
    parts = with_validation(
        np.arange(3), np.array([0, 1]), np.arange(2), 3, outer=True, selection=False, seed=0
    )
    np.testing.assert_array_equal(parts.outer, [3, 4])


@given(codes=codes_of_up_to_five_classes, seed=seeds)
def test_rows_that_are_groups_of_their_own_are_split_class_by_class(codes, seed):
    fractions = (0.6, 0.3, 0.1)
    for part, same in zip(
        split_groups(codes, np.arange(len(codes)), fractions, seed=seed),
        stratified_split(codes, fractions, seed=seed),
        strict=True,
    ):
        np.testing.assert_array_equal(part, same)


@pytest.mark.filterwarnings("ignore:.*classes ha(s|ve) fewer than")
@given(codes=codes_of_up_to_five_classes, seed=seeds, data=st.data())
def test_groups_are_never_divided(codes, seed, data):
    n = len(codes)
    groups = data.draw(hnp.arrays(np.int64, n, elements=st.integers(0, n)))
    try:
        parts = (
            parts_of(hold_out(codes, groups, np.arange(n), 0.3, outer=True, selection=True, seed=seed))
            + parts_of(
                with_validation(np.arange(0), codes, groups, 0, outer=True, selection=True, seed=seed)
            )[1:]
        )
    except DataError:  # too few groups
        return
    for some in (parts[:3], parts[3:]):
        assert sorted(np.concatenate(some)) == list(range(n))
        assert sum(len(set(groups[part])) for part in some) == len(set(groups))
    assert set(codes[parts[0]]) == set(codes)


def test_a_class_in_one_group_is_told_and_trained_on():
    codes, groups = np.array([0] * 20 + [1] * 20 + [2] * 5), np.array([*range(40), *[40] * 5])
    with pytest.warns(UserWarning, match="1 of 3 classes has fewer than 2 rows"):
        parts = hold_out(codes, groups, np.arange(45), 0.3, outer=False, selection=True, seed=0)
    assert {*range(40, 45)} <= {*parts.train}
