"""Areas under ROC curves, against scikit-learn, by their definition and by simulation."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from selfcal import metrics
from selfcal.errors import DataError
from selfcal.metrics import _areas
from selfcal.metrics.intervals import mean_and_error

from .strategies import predictions, weights_for


def by_scikit_learn(y, p, w=None):
    """Macro, one-vs-rest, over the classes that have rows of either side; scikit-learn refuses the others."""
    columns = [1] if p.shape[1] == 2 else range(p.shape[1])
    weight = np.ones(len(y)) if w is None else w
    known = [c for c in columns if 0 < weight[y == c].sum() < weight.sum()]
    assume(known)
    return np.mean([roc_auc_score(y == c, p[:, c], sample_weight=w) for c in known])


@given(predictions(), st.booleans())
def test_equals_scikit_learn_with_ties_and_weights(data, weighted):
    y, p = data
    w = weights_for(len(y)) if weighted else None
    expected = by_scikit_learn(y, p, w)
    assert metrics.roc_auc(y, p, sample_weight=w) == pytest.approx(expected, abs=1e-9)


def test_equals_scikit_learns_macro_average():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=300)
    y = rng.integers(0, 4, 300)
    assert metrics.roc_auc(y, p) == pytest.approx(roc_auc_score(y, p, multi_class="ovr"), abs=1e-12)


@given(predictions(), st.randoms(use_true_random=False))
def test_names_order_and_repetition_do_not_matter(data, random):
    y, p = data
    expected = by_scikit_learn(y, p)
    order = random.sample(range(len(y)), len(y))
    names = np.array(["cat", "dog", "eel", "fox", "gnu"])[: p.shape[1]]
    assert metrics.roc_auc(names[y[order]], p[order], classes=names) == pytest.approx(expected, abs=1e-12)
    twice = metrics.roc_auc(np.repeat(y, 2), np.repeat(p, 2, axis=0))
    assert twice == pytest.approx(expected, abs=1e-12)


@given(predictions())
def test_the_value_is_the_mean_of_the_values_per_row(data):
    y, p = data
    by_scikit_learn(y, p)
    w = weights_for(len(y))
    assume(any(0 < w[y == c].sum() < w.sum() for c in range(1, p.shape[1])))
    for weight in (None, w):
        area = _areas.macro(_areas.roc_areas(y, p, None, weight))
        assert np.average(area.per_row, weights=weight) == pytest.approx(area.value, abs=1e-12)
        found = area.interval(0.95)
        assert 0 <= found.low <= area.value + 1e-12
        assert area.value - 1e-12 <= found.high <= 1


def test_the_error_is_delongs():
    """The variance of DeLong, computed from the placement values by the definition."""
    rng = np.random.default_rng(1)
    y = np.arange(90) % 3 == 0
    s = np.round(rng.random(90) / 2 + 0.3 * y, 2)
    above = (s[y][:, None] > s[~y]) + (s[y][:, None] == s[~y]) / 2
    delong = above.mean(axis=1).var(ddof=1) / 30 + above.mean(axis=0).var(ddof=1) / 60
    area = next(iter(_areas.roc_areas(y.astype(int), np.column_stack([1 - s, s]))))
    _, error, _ = mean_and_error(area.per_row, None)
    assert error**2 == pytest.approx(delong, rel=0.03)


@pytest.mark.parametrize(("shift", "n"), [(0.0, 60), (1.0, 60), (2.5, 100)])
def test_the_interval_covers(shift, n):
    from scipy.stats import norm

    rng = np.random.default_rng(0)
    true = norm.cdf(shift / np.sqrt(2))
    covered = 0
    for _ in range(300):
        y = (np.arange(n) % 4 == 0).astype(int)
        s = norm.cdf(rng.normal(size=n) + shift * y)
        covered += true in metrics.roc_auc_interval(y, np.column_stack([1 - s, s]))
    assert covered >= 0.9 * 300


def test_complete_separation_has_an_interval():
    y = np.array([0] * 50 + [1] * 20)
    found = metrics.roc_auc_interval(y, np.eye(2)[y])
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(metrics.wilson_interval(1.0, 20)[0])


def test_it_is_one_half_for_equal_predictions_and_undefined_for_one_class():
    assert metrics.roc_auc([0, 1, 1], np.full((3, 2), 0.5)) == 0.5
    with pytest.raises(DataError, match="at least two classes"):
        metrics.roc_auc([1, 1], [[0.2, 0.8], [0.5, 0.5]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_input_type_does_not_matter(dtype):
    rng = np.random.default_rng(0)
    p = rng.multinomial(64, rng.dirichlet(np.ones(4)), size=500) / 64
    y = rng.integers(0, 4, 500)
    assert metrics.roc_auc(y, p.astype(dtype)) == pytest.approx(metrics.roc_auc(y, p), abs=1e-12)
