"""Values worked out independently: by hand, or by slow code that follows the papers word for word."""

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors

from selfcal.errors import ConfigError, DataError
from selfcal.uncertainty import (
    Energy,
    KNearestNeighbors,
    Mahalanobis,
    OpenMax,
    PNormLogit,
    Reconstruction,
    TrustScore,
)
from selfcal.uncertainty._rows import drawn
from selfcal.uncertainty.openmax import MAX_SHAPE, weibull


@pytest.fixture
def data():
    rng = np.random.default_rng(7)
    y = rng.integers(0, 3, 240)
    X = np.array([[0, 0, 1], [3, 0, 0], [0, 4, 2.0]])[y] + rng.normal(size=(240, 3)) * [1, 2, 0.5]
    return X, y, rng.normal(size=(60, 3)) * 3


def standardized(X, new):
    return (X - X.mean(axis=0)) / X.std(axis=0), (new - X.mean(axis=0)) / X.std(axis=0)


def test_trust_score_by_hand():
    """Classes at -1 and 1, so that columns are standardised already; 3 is 2 from class 1 and 4 from class 0."""
    score = TrustScore(alpha=0).fit([[-1.0], [1.0]], [0, 1])
    np.testing.assert_allclose(score.score([[3.0], [3.0], [-1.0], [1.0]], [1, 0, 0, 0]), [2 / 6, 4 / 6, 0, 1])


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("k", [1, 5])
def test_trust_score_against_the_paper(data, alpha, k):
    X, y, new = data
    X, new_rows = standardized(X, new)[0], standardized(X, new)[1]
    predicted = np.arange(60) % 3
    far = np.empty((60, 3))
    for label in range(3):
        rows = X[y == label]
        radius = np.sort(cdist(rows, rows), axis=1)[:, k]
        dense = rows[radius <= np.sort(radius)[len(rows) - int(alpha * len(rows)) - 1]]
        far[:, label] = cdist(new_rows, dense).min(axis=1)
    trust = np.array([min(np.delete(far[i], c)) / far[i, c] for i, c in enumerate(predicted)])
    ours = TrustScore(k, alpha, max_rows=None).fit(*data[:2]).score(new, predicted)
    np.testing.assert_allclose(ours, 1 / (1 + trust), rtol=1e-6)


def test_trust_score_at_its_edges():
    X, y = [[-1.0], [-1.0], [1.0], [1.0], [1.0]], [0, 2, 2, 2, 2]
    score = TrustScore(alpha=0).fit(X, y, classes=[0, 1, 2])
    assert score.score([[-1.0]], [0])[0] == 0.5  # a training row of two classes
    assert score.score([[-1.0]], [1])[0] == 1.0  # a class without training rows
    with pytest.raises(ConfigError, match="predicted"):
        score.score([[0.0]])


@pytest.mark.parametrize("k", [1, 4, 1000])
def test_nearest_neighbors_against_scikit_learn(data, k):
    X, y, new = data
    rows, new_rows = standardized(X, new)
    far = NearestNeighbors(n_neighbors=min(k, 240)).fit(rows).kneighbors(new_rows)[0][:, -1]
    ours = KNearestNeighbors(k, max_rows=None).fit(X, y).score(new)
    np.testing.assert_allclose(ours, far, rtol=1e-7)


def test_a_row_of_the_training_data_is_at_distance_zero(data):
    X, y, _ = data
    np.testing.assert_allclose(KNearestNeighbors(max_rows=None).fit(X, y).score(X), 0, atol=1e-6)


def test_rows_are_drawn_from_every_class():
    codes = np.repeat([0, 1, 2], [1000, 5, 300])
    rows = drawn(codes, 65, seed=0)
    assert np.bincount(codes[rows]).tolist() == [30, 5, 30]
    assert (drawn(codes, 65, seed=1) != rows).any()
    assert len(drawn(codes, None, 0)) == len(drawn(codes, 10_000, 0)) == 1305


def test_mahalanobis_against_scikit_learn(data):
    X, y, new = data
    means = np.array([X[y == c].mean(axis=0) for c in range(3)])
    covariance = EmpiricalCovariance(assume_centered=True).fit(X - means[y])
    far = np.array([covariance.mahalanobis(new - mean) for mean in means]).min(axis=0)
    np.testing.assert_allclose(Mahalanobis().fit(X, y).score(new), far, rtol=1e-4)


def test_a_constant_column_does_not_break_distances(data):
    X, y, new = data
    for kind in (Mahalanobis, KNearestNeighbors, TrustScore, Reconstruction):
        score = kind().fit(np.column_stack([X, np.ones(240)]), y)
        usual, strange = (
            score.score(np.column_stack([new, np.full(60, v)]), np.zeros(60, int)) for v in (1.0, 9.0)
        )
        assert np.isfinite(usual).all()
        assert (strange > usual).mean() > 0.5 or kind is TrustScore


def test_weibull_is_that_of_scipy():
    values = np.random.default_rng(0).weibull(1.7, 25) * 4 + 1
    shape, _, scale = stats.weibull_min.fit(values, floc=0)
    np.testing.assert_allclose(weibull(values), (shape, scale), rtol=1e-3)


def test_a_tail_of_equal_distances_is_a_step():
    shape, scale = weibull(np.ones(5))
    assert (shape, scale) == (MAX_SHAPE, 1.0)


def test_openmax_against_the_paper(data):
    """Bendale and Boult's algorithms 1 and 2, row by row, with scipy's Weibull distribution."""
    X, y, new = data
    logits, tail, top = 2 * X, 15, 2
    score = OpenMax(tail=tail, top=top).fit(logits, y)
    right = logits.argmax(axis=1) == y
    means = np.array([logits[right & (y == c)].mean(axis=0) for c in range(3)])
    expected = []
    for z in new:
        corrected, unknown = z.copy(), 0.0
        for rank, c in enumerate(np.argsort(-z)[:top], start=1):
            distances = np.sort(np.linalg.norm(logits[right & (y == c)] - means[c], axis=1))[-tail:]
            shift = 1 - distances[0]
            shape, _, scale = stats.weibull_min.fit(distances + shift, floc=0)
            tail_probability = stats.weibull_min.cdf(np.linalg.norm(z - means[c]) + shift, shape, scale=scale)
            weight = 1 - (top - rank + 1) / top * tail_probability
            corrected[c] = z[c] * weight
            unknown += z[c] * (1 - weight)
        mass = np.exp(np.append(corrected, unknown))
        expected.append(mass[-1] / mass.sum())
    np.testing.assert_allclose(score.score(new), expected, rtol=0.02, atol=1e-4)


def test_openmax_needs_rows_that_are_right():
    with pytest.raises(DataError, match="class 1 has 0"):
        OpenMax().fit([[3.0, 0.0]] * 4, [0, 0, 1, 1])


def test_p_norm_by_hand():
    """Centred 2, -1, -1: the Euclidean norm is sqrt 6, and a factor or a constant changes nothing."""
    ours = PNormLogit(p=2).score([[3.0, 0.0, 0.0], [1e300, -5e299, -5e299], [7.0, 4.0, 4.0]])
    np.testing.assert_allclose(ours, -2 / np.sqrt(6))


def test_energy_at_a_temperature():
    np.testing.assert_allclose(Energy(2.0).score([[2.0, 4.0]]), -2 * np.log(np.e + np.e**2))
