from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal.datasets import Blobs, stratified_split, three_way_split
from selfcal.errors import ConfigError, DataError

counts_per_class = st.lists(st.integers(1, 60), min_size=1, max_size=12)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def fractions(draw):
    weights = draw(st.lists(st.integers(1, 20), min_size=1, max_size=5))
    return [weight / sum(weights) for weight in weights]


@st.composite
def counts_and_sizes(draw):
    counts = draw(counts_per_class)
    left, sizes = sum(counts), []
    for _ in range(draw(st.integers(1, 5))):
        if left:
            sizes.append(draw(st.integers(1, left)))
            left -= sizes[-1]
    return counts, sizes


def labels(counts, seed):
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


def table_of(y, parts, n_classes):
    return np.array([np.bincount(y[part], minlength=n_classes) for part in parts]).T


@settings(deadline=None)
@given(counts_per_class, fractions(), seeds)
def test_fractions_cover_all_rows_once_and_keep_proportions(counts, fractions, seed):
    y = labels(counts, seed)
    parts = stratified_split(y, fractions, seed)
    assert len(parts) == len(fractions)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    for part in parts:
        assert part.dtype == np.int64
        assert np.all(np.diff(part) > 0)
    for n, row in zip(counts, table_of(y, parts, len(counts)), strict=True):
        quota = n * np.asarray(fractions)
        if n < len(fractions):
            assert row.tolist() == [1] * n + [0] * (len(fractions) - n)
        elif quota.min() >= 1:
            assert np.all(np.abs(row - quota) < 1)
        else:
            assert row.min() >= 1
            assert np.all(row <= np.maximum(np.ceil(quota), 1))


@settings(deadline=None)
@given(counts_and_sizes(), seeds)
def test_sizes_are_exact_disjoint_and_proportional(counts_sizes, seed):
    counts, sizes = counts_sizes
    y = labels(counts, seed)
    parts = stratified_split(y, sizes, seed)
    assert [len(part) for part in parts] == sizes
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    table = table_of(y, parts, len(counts))
    quota = np.outer(counts, sizes) / sum(counts)
    assert np.all(np.abs(table - quota)[:, 0] < 1 + 1e-9)
    assert np.all(np.abs(table - quota) < 2 + 1e-9)


@settings(deadline=None, max_examples=25)
@given(counts_per_class, seeds)
def test_the_seed_moves_rows_but_not_how_many(counts, seed):
    y = labels(counts, 0)
    first, again = (stratified_split(y, (0.7, 0.15, 0.15), seed) for _ in range(2))
    other = stratified_split(y, (0.7, 0.15, 0.15), seed + 1)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(table_of(y, first, len(counts)), table_of(y, other, len(counts)))


def test_another_seed_gives_other_rows():
    y = np.zeros(1000, dtype=int)
    a, b = (stratified_split(y, (0.5, 0.5), seed)[0] for seed in (0, 1))
    assert 150 < len(np.intersect1d(a, b)) < 350


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(1, [1, 0, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (4, [2, 1, 1]), (10, [7, 2, 1]), (20, [14, 3, 3])],
)
def test_small_classes_fill_the_first_parts_first(rows, expected):
    y = np.array([0] * 100 + [1] * rows)
    parts = stratified_split(y, (0.7, 0.15, 0.15), seed=0)
    assert [int((y[part] == 1).sum()) for part in parts] == expected


def test_the_first_part_is_first_even_when_it_is_the_smallest():
    parts = stratified_split([0], (0.1, 0.45, 0.45), seed=0)
    assert [len(part) for part in parts] == [1, 0, 0]


def test_labels_may_be_names():
    y = np.array(["cat"] * 10 + ["dog"] * 30)
    first, second = stratified_split(y, (0.5, 0.5), seed=0)
    assert (y[first] == "cat").sum() == (y[second] == "cat").sum() == 5


def test_rows_are_picked_without_regard_to_order():
    first, _ = stratified_split(np.zeros(10_000, dtype=int), (0.5, 0.5), seed=0)
    assert first.mean() == pytest.approx(5_000, abs=5 * 10_000 / np.sqrt(12 * 5_000))


@pytest.mark.parametrize(
    "fractions", [(0.7, 0.2), (0.5, 0.6), (1, 0.5), (1.5,), (0.0, 1.0), (0.5, -0.5, 1.0)]
)
def test_fractions_must_sum_to_one(fractions):
    with pytest.raises(ConfigError, match="fraction"):
        stratified_split([0, 1, 0, 1], fractions, seed=0)


def test_rounded_thirds_are_fractions():
    assert [len(part) for part in stratified_split(np.zeros(9), (0.333333,) * 3, seed=0)] == [3, 3, 3]


def test_no_parts_no_rows_no_seed():
    with pytest.raises(ConfigError, match="at least one part"):
        stratified_split([0, 1], (), seed=0)
    with pytest.raises(ConfigError, match="size of a part must be a whole number of at least 1; got 0"):
        stratified_split([0, 1], (1, 0), seed=0)
    with pytest.raises(DataError, match=r"at least one label; got shape \(0,\)"):
        stratified_split([], (0.5, 0.5), seed=0)
    with pytest.raises(DataError, match=r"got shape \(2, 2\)"):
        stratified_split([[0, 1], [1, 0]], (0.5, 0.5), seed=0)
    with pytest.raises(ConfigError, match="seed must be a whole number"):
        stratified_split([0, 1], (0.5, 0.5), seed=-1)


def test_three_way_split_as_in_the_paper():
    X, y = Blobs().sample(2_500, seed=0)
    split = three_way_split(X, y)
    assert [len(part.y) for part in split] == [700, 300, 1000]
    overall = np.bincount(y) / len(y)
    for part in split:
        np.testing.assert_allclose(np.bincount(part.y), len(part.y) * overall, rtol=0, atol=2)
    row_of = {tuple(x): label for x, label in zip(X, y, strict=True)}
    rows = [(tuple(x), label) for part in split for x, label in zip(*part, strict=True)]
    assert len({x for x, _ in rows}) == 2_000
    assert all(row_of[x] == label for x, label in rows)


def test_three_way_split_names_what_is_missing():
    X, y = Blobs().sample(100, seed=0)
    with pytest.raises(DataError, match=r"700 \+ 300 \+ 1000 = 2000 rows; got 100.*smaller sizes"):
        three_way_split(X, y)
    with pytest.raises(ConfigError, match=r"sizes\[1\] must be a whole number of at least 1; got 0.3"):
        three_way_split(X, y, sizes=(1, 0.3, 1))
    with pytest.raises(ConfigError, match="three whole numbers"):
        three_way_split(X, y, sizes=(50, 50))
    with pytest.raises(DataError, match="X has 100, y has 99"):
        three_way_split(X, y[:-1], sizes=(10, 10, 10))


def test_a_million_rows_and_many_classes():
    y = np.random.default_rng(0).integers(0, 1_000, 1_000_000)
    parts = stratified_split(y, (0.7, 0.15, 0.15), seed=0)
    assert sum(map(len, parts)) == len(y)
    np.testing.assert_allclose([len(part) / len(y) for part in parts], [0.7, 0.15, 0.15], rtol=0, atol=0.001)
