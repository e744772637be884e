import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from selfcal._support.binning import (
    BLOCK_ELEMENTS,
    Chunk,
    array_chunks,
    bin_chunks,
    bin_index,
    quantile_edges,
    row_blocks,
    uniform_edges,
)
from selfcal.errors import ConfigError

confidences = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1))
tied_confidences = arrays(np.float64, st.integers(1, 60), elements=st.sampled_from([0, 0.2, 0.25, 0.9, 1.0]))


def binned(correct, confidence, weight=None, **options):
    arrays_ = (np.asarray(a, dtype=np.float64) for a in (correct, confidence))
    return bin_chunks(
        array_chunks(*arrays_, None if weight is None else np.asarray(weight, float)), **options
    )


@pytest.mark.parametrize("n_bins", [1, 2, 7, 10, 15, 49, 100, 1000, 4099])
def test_arithmetic_index_equals_search_at_and_around_every_edge(n_bins):
    edges = uniform_edges(n_bins)
    c = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])
    np.testing.assert_array_equal(bin_index(c, edges), np.searchsorted(edges[1:-1], c, side="left"))


@pytest.mark.parametrize(("closed", "expected"), [("right", [0, 0, 1, 6, 7]), ("left", [0, 1, 2, 7, 7])])
def test_bins_hold_their_closed_edge_and_there_is_no_extra_bin(closed, expected):
    c = np.array([0.0, 1 / 8, 2 / 8, 7 / 8, 1.0])
    np.testing.assert_array_equal(bin_index(c, uniform_edges(8), closed), expected)


@settings(deadline=None)
@given(confidences, st.integers(1, 40), st.sampled_from(["right", "left"]))
def test_index_is_the_bin_that_holds_the_value(c, n_bins, closed):
    edges = uniform_edges(n_bins)
    index = bin_index(c, edges, closed)
    low, high = edges[index], edges[index + 1]
    if closed == "right":
        assert np.all(((low < c) | (c == 0)) & (c <= high))
    else:
        assert np.all((low <= c) & ((c < high) | (c == 1)))


def test_uniform_edges_are_the_nearest_floats():
    assert uniform_edges(10).tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


@pytest.mark.parametrize("closed", ["right", "left"])
def test_quantile_bins_hold_equal_weight_without_ties(closed):
    c = np.random.default_rng(0).permutation(np.linspace(0.3, 0.99, 60))
    assert binned(c, c, n_bins=12, strategy="quantile", closed=closed).count.tolist() == [5] * 12


@settings(deadline=None)
@given(st.one_of(confidences, tied_confidences), st.integers(1, 20), st.sampled_from(["right", "left"]))
def test_quantile_bins_survive_ties(c, n_bins, closed):
    bins = binned(c, c, n_bins=n_bins, strategy="quantile", closed=closed)
    assert bins.edges[0] == 0
    assert bins.edges[-1] == 1
    assert np.all(np.diff(bins.edges) > 0)
    assert 1 <= len(bins.count) <= n_bins
    assert np.all(bins.count > 0)
    assert bins.count.sum() == len(c)


@settings(deadline=None)
@given(tied_confidences, st.integers(1, 8), st.sampled_from(["right", "left"]))
def test_quantile_weights_act_as_repeated_rows(c, n_bins, closed):
    times = np.arange(len(c)) % 3
    times[0] = 1
    np.testing.assert_array_equal(
        quantile_edges(c, n_bins, sample_weight=times.astype(float), closed=closed),
        quantile_edges(np.repeat(c, times), n_bins, closed=closed),
    )


def test_empty_bins_hold_their_midpoint_and_nothing_is_nan():
    bins = binned([1, 0], [0.9, 0.95], n_bins=4)
    np.testing.assert_array_equal(bins.count, [0, 0, 0, 2])
    np.testing.assert_allclose(bins.confidence, [0.125, 0.375, 0.625, 0.925])
    np.testing.assert_allclose(bins.accuracy, [0.125, 0.375, 0.625, 0.5])
    np.testing.assert_allclose(bins.gap, [0, 0, 0, -0.425])


def test_weighted_sums_and_means():
    bins = binned([1, 0, 1], [0.2, 0.4, 0.8], weight=[1, 3, 0], n_bins=2)
    np.testing.assert_array_equal(bins.weight, [4, 0])
    np.testing.assert_array_equal(bins.count, [2, 0])
    np.testing.assert_allclose(bins.effective_count, [1.6, 0])
    np.testing.assert_allclose((bins.confidence[0], bins.accuracy[0]), (0.35, 0.25))
    np.testing.assert_allclose((bins.mean_confidence, bins.mean_accuracy), (0.35, 0.25))


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_chunks_do_not_matter(strategy):
    rng = np.random.default_rng(0)
    c, w = rng.random(1000), rng.integers(1, 5, 1000).astype(float)
    a = rng.random(1000) < c
    whole = bin_chunks([Chunk(c, a, w)], strategy=strategy)
    parts = (Chunk(c[i : i + 7], a[i : i + 7], w[i : i + 7]) for i in range(0, 1000, 7))
    pieces = bin_chunks(parts, strategy=strategy)
    for name in ("edges", "weight", "count", "effective_count", "confidence", "accuracy"):
        np.testing.assert_allclose(getattr(pieces, name), getattr(whole, name), rtol=1e-13)


@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 1), (10, 3), (BLOCK_ELEMENTS + 1, 1), (9, 10 * BLOCK_ELEMENTS)]
)
def test_row_blocks_cover_every_row_once(rows, columns):
    covered = [i for block in row_blocks(rows, columns) for i in range(block.start, block.stop)]
    assert covered == list(range(rows))


def test_extra_memory_does_not_grow_with_the_rows():
    c = np.random.default_rng(0).random(2_000_000)
    tracemalloc.start()
    bin_chunks(array_chunks(c, c))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"n_bins": 0}, "n_bins must be a whole number of at least 1; got 0"),
        ({"n_bins": 1.5}, "n_bins must be a whole number"),
        ({"strategy": "quantiles"}, "Did you mean 'quantile'"),
        ({"closed": "both"}, "closed must be one of 'right', 'left'"),
    ],
)
def test_bad_options(option, message):
    with pytest.raises(ConfigError, match=message):
        binned([1], [0.5], **option)
