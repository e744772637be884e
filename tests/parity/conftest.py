import numpy as np
import pytest


@pytest.fixture(params=[(450, 2), (600, 5), (300, 40)], ids=str)
def data(request):
    """Labels, probabilities that are too sure, and weights. Fifteen bins of equal mass hold equally many rows."""
    n, k = request.param
    rng = np.random.default_rng(n + k)
    probs = rng.dirichlet(np.full(k, 0.4), size=n)
    y = (rng.random((n, 1)) > (0.7 * probs + 0.3 / k).cumsum(axis=1)).sum(axis=1).clip(0, k - 1)
    return y, probs, rng.random(n)


@pytest.fixture
def top(data):
    """Whether the first argmax is right, and its confidence."""
    y, probs, _ = data
    return (probs.argmax(axis=1) == y).astype(float), probs.max(axis=1)


@pytest.fixture(params=[2, 3, 10], ids="{} classes".format)
def logits(request):
    """Labels, logits 1.8 times too large, and weights."""
    return too_large_logits(request.param)


@pytest.fixture
def two_classes():
    """The same for two classes only."""
    return too_large_logits(2)


def too_large_logits(n_classes, n=2000):
    rng = np.random.default_rng(n_classes)
    z = rng.normal(0, 1.5, size=(n, n_classes))
    y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return y, 1.8 * z, rng.random(n)
