"""Uncertainty scores against plain second implementations of the papers' algorithms, on real digits."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KDTree

from selfcal.uncertainty import OpenMax, TrustScore
from selfcal.uncertainty.openmax import weibull


@pytest.fixture(scope="module")
def digits():
    """Training rows and new ones in the pixels that vary, and what a linear model says."""
    X, y = load_digits(return_X_y=True)
    X = X[:, X.std(axis=0) > 1]
    order = np.random.default_rng(0).permutation(len(y))
    train, new = order[:1000], order[1000:]
    model = LogisticRegression(max_iter=2000).fit(X[train] / 16, y[train])
    return X[train], y[train], X[new], model


@pytest.mark.parametrize(("k", "alpha"), [(10, 0.1), (1, 0.0), (5, 0.25)])
def test_trust_score(digits, k, alpha):
    """Algorithms 1 and 2 with a tree for each class, as in the authors' description; the reverse order of theirs."""
    X, y, new, model = digits
    predicted = model.predict(new / 16)
    mean, scale = X.mean(axis=0), X.std(axis=0)
    rows, new_rows = (X - mean) / scale, (new - mean) / scale
    to_class = np.empty((len(new), 10))
    for label in range(10):
        own = rows[y == label]
        radius = KDTree(own).query(own, k=k + 1)[0][:, -1]  # the nearest is the row itself
        kept = sorted(range(len(own)), key=lambda i: radius[i])[: len(own) - int(alpha * len(own))]
        to_class[:, label] = KDTree(own[kept]).query(new_rows, k=1)[0][:, 0]
    trust = [
        min(d for label, d in enumerate(distances) if label != own) / distances[own]
        for distances, own in zip(to_class.tolist(), predicted.tolist(), strict=True)
    ]
    ours = TrustScore(k, alpha, max_rows=None).fit(X, y).score(new, predicted)
    np.testing.assert_allclose(1 / ours - 1, trust, rtol=1e-6)


def maximum_likelihood(values):
    """Shape and scale of the Weibull distribution, by bisection of the derivative of the log-likelihood."""

    def slope(shape):
        powers = [value**shape for value in values]
        weighted = sum(p * math.log(v) for p, v in zip(powers, values, strict=True)) / sum(powers)
        return 1 / shape + sum(map(math.log, values)) / len(values) - weighted

    low, high = 1e-2, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return low, (sum(value**low for value in values) / len(values)) ** (1 / low)


def test_weibull():
    values = (np.random.default_rng(1).weibull(3.0, 20) * 2 + 1).tolist()
    np.testing.assert_allclose(weibull(np.array(values)), maximum_likelihood(values), rtol=1e-9)


@pytest.mark.parametrize(("tail", "top"), [(20, 10), (15, 3), (40, 1)])
def test_openmax(digits, tail, top):
    """Algorithms 1 and 2, row by row and class by class, in plain Python."""
    X, y, new, model = digits
    logits, new_logits = (model.decision_function(rows / 16) for rows in (X, new))
    fitted = []
    for label in range(10):
        right = [z for z, true in zip(logits, y, strict=True) if true == label == z.argmax()]
        mean = sum(right) / len(right)
        distances = sorted(math.dist(z, mean) for z in right)[-tail:]
        shift = 1 - distances[0]  # the tail begins at 1
        fitted.append((mean, shift, *maximum_likelihood([d + shift for d in distances])))
    expected = []
    for z in new_logits:
        corrected, unknown = z.tolist(), 0.0
        ranked = sorted(range(10), key=lambda label: -z[label])
        for rank, label in enumerate(ranked[:top], start=1):
            mean, shift, shape, scale = fitted[label]
            far = max(math.dist(z, mean) + shift, 0.0)
            kept = 1 - (top - rank + 1) / top * (1 - math.exp(-((far / scale) ** shape)))
            corrected[label] = z[label] * kept
            unknown += z[label] * (1 - kept)
        mass = math.exp(unknown)
        expected.append(mass / (mass + sum(map(math.exp, corrected))))
    ours = OpenMax(tail=tail, top=top).fit(logits, y).score(new_logits)
    assert max(expected) > 10 * min(expected)
    np.testing.assert_allclose(ours, expected, rtol=1e-7)
