from itertools import pairwise

import numpy as np
import pytest
from scipy.special import betaln, logit

from selfcal._support.binning import bin_index, quantile_edges
from selfcal.calibrators import BBQ
from selfcal.calibrators.bbq import bin_counts, last_rows
from selfcal.errors import ConfigError


def binary(probs):
    return np.column_stack([np.zeros(len(probs)), logit(probs)])


def sample(n=64, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.1, 0.9, n)  # away from 0 and 1, where the midpoints are clipped
    return p, (rng.random(n) < p**2).astype(int)


def enumerated(p, y, new, prior_weight, counts):
    """The paper's average, model by model and bin by bin; p without ties."""
    ordered = np.sort(p)
    log_likelihoods, predictions = [], []
    for n_bins in counts:
        ends = np.ceil(np.arange(1, n_bins) * len(p) / n_bins).astype(int)
        inner = (ordered[ends - 1] + ordered[ends]) / 2
        edges = np.concatenate([[0], inner, [1]])
        total, theta = 0.0, []
        for low, high in pairwise(edges):
            here = (p > low) & (p <= high)
            a = prior_weight / n_bins * (low + high) / 2
            b = prior_weight / n_bins - a
            m = y[here].sum()
            total += betaln(m + a, here.sum() - m + b) - betaln(a, b)
            theta.append((m + a) / (here.sum() + a + b))
        log_likelihoods.append(total)
        predictions.append(np.array(theta)[np.searchsorted(inner, new)])
    weight = np.exp(np.array(log_likelihoods) - max(log_likelihoods))
    return weight @ np.array(predictions) / weight.sum()


@pytest.mark.parametrize("prior_weight", [2.0, 10.0])
def test_equals_the_enumerated_average(prior_weight):
    p, y = sample()
    new = np.linspace(0.01, 0.99, 50)
    expected = enumerated(p, y, new, prior_weight, range(1, 41))
    got = BBQ(prior_weight=prior_weight, safeguard=False).fit(binary(p), y).predict_proba(binary(new))[:, 1]
    np.testing.assert_allclose(got, expected, rtol=1e-9)


def test_one_model_is_its_posterior_mean():
    p, y = sample(8)
    got = BBQ(spread=1.0, safeguard=False).fit(binary(p), y).predict_proba(binary(p))[:, 1]
    assert list(bin_counts(8, 1.0)) == [2]
    assert len(set(got.round(12))) == 2


@pytest.mark.parametrize("n_bins", [1, 3, 7, 50])
def test_bins_are_the_quantile_bins_of_the_metrics(n_bins):
    rng = np.random.default_rng(n_bins)
    p, weight = np.sort(rng.integers(1, 20, 50) / 20), rng.integers(1, 4, 50).astype(float)
    ends = last_rows(p, np.cumsum(weight), n_bins)
    index = bin_index(p, quantile_edges(p, n_bins, sample_weight=weight))
    np.testing.assert_array_equal(ends, np.flatnonzero(np.diff(index, append=-1)))


def test_many_rows_approach_the_truth():
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    y = (rng.random(20_000) < p**2).astype(int)
    grid = np.linspace(0.05, 0.95, 19)
    got = BBQ(safeguard=False).fit(binary(p), y).predict_proba(binary(grid))[:, 1]
    np.testing.assert_allclose(got, grid**2, atol=0.05)


@pytest.mark.parametrize("settings", [{"prior_weight": 0.0}, {"spread": 0.5}])
def test_bad_settings(settings):
    with pytest.raises(ConfigError, match=next(iter(settings))):
        BBQ(**settings, safeguard=False).fit([[0.0, 1.0]], [0])
