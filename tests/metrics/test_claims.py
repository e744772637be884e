import numpy as np
import pytest

from selfcal._support.binning import Chunk, bin_index, chunk_sums, indexed_sums, uniform_edges
from selfcal.metrics._claims import N_CELLS, ClaimMoments, doubt_cell, partition_sums, thresholds


def claims(dtype, *, weighted):
    """Confidences anywhere, at edges of bins and percents and next to them, and at 0 and 1."""
    rng = np.random.default_rng(0)
    edges = np.concatenate([uniform_edges(15), uniform_edges(100), thresholds()])
    near = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])
    confidence = np.concatenate([near, rng.random(2000), 1 - rng.random(2000) ** 6]).clip(0, 1).astype(dtype)
    correct = rng.random(len(confidence)) < confidence
    weight = rng.exponential(size=len(confidence)) * (rng.random(len(confidence)) < 0.9) if weighted else None
    return Chunk(confidence, correct, weight)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("closed", ["right", "left"])
@pytest.mark.parametrize("n_bins", [1, 15, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_partitions_are_those_of_the_rows(dtype, n_bins, closed, weighted):
    """Every confidence is in the bin, percent and cell that it is in if each of them is looked up on its own."""
    claim = claims(dtype, weighted=weighted)
    moments = ClaimMoments(n_bins, closed, weighted=weighted)
    for rows in (slice(None, 3000), slice(3000, None)):
        weight = None if claim.weight is None else claim.weight[rows]
        moments.add(Chunk(claim.confidence[rows], claim.correct[rows], weight))
    found = partition_sums(moments.totals(), n_bins, closed)
    cell = doubt_cell(1 - claim.confidence.astype(np.float64))
    expected = {
        "top_label": chunk_sums(claim, uniform_edges(n_bins), closed),
        "percent": chunk_sums(claim, uniform_edges(100), "right"),
        "histogram": indexed_sums(cell, claim, N_CELLS),
    }
    for name, sums in expected.items():
        np.testing.assert_allclose(found[name], sums, rtol=1e-9, atol=1e-9, err_msg=name)
    c, w = claim.confidence.astype(np.float64), 1.0 if claim.weight is None else claim.weight
    index = bin_index(c, uniform_edges(n_bins), closed)
    squares = [np.bincount(index, x, n_bins) for x in (w * (claim.correct - c) ** 2, w**2 * c * (1 - c))]
    np.testing.assert_allclose(found["claim_squares"], squares, rtol=1e-9, atol=1e-9)


def test_cells_are_finer_where_confidences_are_high():
    width = -np.diff(thresholds())
    assert (np.diff(width) >= 0).all()
    assert width[0] < 2e-12
    assert width[-1] == pytest.approx(1 / 256)
