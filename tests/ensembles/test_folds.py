"""Who is trained on which rows: folds that are even, never split a group and never hide a class."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from selfcal._support.splits import fold_numbers
from selfcal.ensembles.folds import CrossFit, SameRows
from selfcal.errors import ConfigError, DataError

SHARINGS = [CrossFit(2), CrossFit(5), CrossFit(3, repeats=2), SameRows(3), SameRows(2, held_out=4)]


@st.composite
def grouped_labels(draw):
    """Label codes and groups of 20 to 60 rows; a group may hold rows of several classes."""
    n = draw(st.integers(20, 60))
    codes = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n))
    groups = draw(st.lists(st.integers(0, n), min_size=n, max_size=n))
    return np.array(codes), np.array(groups)


def folds_or_none(*args, **settings):
    try:
        return fold_numbers(*args, **settings)
    except DataError:
        return None


@settings(deadline=None, max_examples=25)
@given(
    counts=st.lists(st.integers(1, 12), min_size=2, max_size=6),
    folds=st.integers(2, 6),
    seed=st.integers(0, 9),
)
def test_folds_are_even_in_all_and_in_every_class(counts, folds, seed):
    codes = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    found = folds_or_none(codes, folds, seed=seed)
    assume(found is not None)
    for rows in [codes >= 0, *(codes == code for code in range(len(counts)))]:
        sizes = np.bincount(found[rows] + 1, minlength=folds + 1)[1:]
        assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(found == -1, np.array(counts)[codes] == 1)


@settings(deadline=None, max_examples=25)
@given(labelled=grouped_labels(), folds=st.integers(2, 4))
def test_no_group_is_split_and_no_class_is_hidden(labelled, folds):
    codes, groups = labelled
    found = folds_or_none(codes, folds, groups, seed=0)
    assume(found is not None)
    for group in np.unique(groups):
        assert len(np.unique(found[groups == group])) == 1
    for fold in range(folds):
        assert set(codes[found != fold]) == set(codes)
        assert (found == fold).any()


def test_a_class_within_a_group_of_another_class_is_never_hidden():
    codes, groups = np.array([0] * 8 + [1, 1]), np.array([*range(8), 0, 0])
    assert np.flatnonzero(fold_numbers(codes, 3, groups, seed=0) == -1).tolist() == [0, 8, 9]


@pytest.mark.parametrize("splitter", SHARINGS, ids=repr)
@settings(deadline=None, max_examples=25)
@given(labelled=grouped_labels())
def test_contract(splitter, labelled):
    """Every splitter: training and held-out rows are apart and are all there are; groups are whole."""
    codes, groups = labelled
    try:
        shares = splitter.splits(codes, groups, seed=1)
    except DataError:
        assume(False)
    for train, held_out in shares:
        np.testing.assert_array_equal(np.sort(np.r_[train, held_out]), np.arange(len(codes)))
        assert not set(groups[train]) & set(groups[held_out])
        assert len(held_out)
        assert set(codes[train]) == set(codes)


def test_crossfit_holds_every_row_out_once():
    shares = CrossFit(4).splits(np.arange(30) % 3, seed=0)
    assert len(shares) == 4
    np.testing.assert_array_equal(np.sort(np.concatenate([s.held_out for s in shares])), np.arange(30))


def test_crossfit_repeated_begins_as_it_would_alone_and_goes_on_with_other_folds():
    codes = np.arange(30) % 3
    once, twice = ([s.held_out.tolist() for s in CrossFit(4, n).splits(codes, seed=0)] for n in (1, 2))
    assert twice[:4] == once
    assert not any(fold in once for fold in twice[4:])
    np.testing.assert_array_equal(np.sort(np.concatenate(twice[4:])), np.arange(30))


def test_same_rows_are_the_same_for_all():
    first, *others = SameRows(4, held_out=3).splits(np.arange(30) % 3, seed=0)
    assert len(others) == 3
    assert len(first.held_out) == 10
    assert all(np.array_equal(first.train, other.train) for other in others)


@pytest.mark.parametrize("splitter", SHARINGS, ids=repr)
def test_seed(splitter):
    def held_out(seed):
        return [share.held_out.tolist() for share in splitter.splits(np.arange(40) % 2, seed=seed)]

    assert held_out(0) == held_out(0) != held_out(1)


@pytest.mark.parametrize(
    ("codes", "groups", "n"),
    [([0, 0, 0, 1], None, 3), ([0, 1, 2, 3], None, 0), ([0, 1] * 10, [0, 1] * 10, 0)],
    ids=["few rows", "classes of one row", "two groups"],
)
def test_too_few_rows(codes, groups, n):
    groups = None if groups is None else np.array(groups)
    with pytest.raises(DataError, match=f"Too few rows for 5 folds: got {len(codes)} rows, of which {n} can"):
        CrossFit(5).splits(np.array(codes), groups, seed=0)


@pytest.mark.parametrize(
    "make",
    [lambda: CrossFit(1), lambda: CrossFit(repeats=0), lambda: SameRows(0), lambda: SameRows(held_out=1)],
)
def test_bad_settings(make):
    with pytest.raises(ConfigError, match="must be a whole number of at least"):
        make()
