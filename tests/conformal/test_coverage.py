"""Coverage over many sets of calibration rows: exactly what is guaranteed."""

from itertools import product

import numpy as np
import pytest
from sklearn.model_selection import cross_val_predict
from sklearn.naive_bayes import GaussianNB

from selfcal.conformal import APS, LAC, RAPS, ConformalClassifier
from selfcal.conformal.guarantee import rank_for_coverage
from selfcal.datasets import Blobs
from tests.conformal.worlds import draw

pytestmark = pytest.mark.filterwarnings("ignore::selfcal.errors.PromiseWarning")

SCORES = [LAC(), APS(), RAPS(penalty=0.1, free=1)]
"""RAPS as four classes need it: with its defaults it is APS there."""

of_each_score = pytest.mark.parametrize("score", SCORES, ids=lambda score: type(score).__name__)


def coverages(n, coverage, *, sets, steps=None, m=400, seed=0, **settings):
    """The coverage of new rows, and of those of each class, for each of many sets of calibration rows."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(sets):
        conformal = ConformalClassifier(coverage=coverage, random_state=number, **settings)
        conformal.fit(*draw(n, rng, steps=steps))
        probs, y = draw(m, rng, steps=steps)
        covered = conformal.predict_set(probs)[np.arange(m), y]
        found.append([covered.mean(), *(covered[y == k].mean() for k in range(4))])
    return np.array(found)


def z_score(values, promise):
    return (values.mean() - promise) / max(values.std(ddof=1) / np.sqrt(len(values)), 1e-9)


@of_each_score
@pytest.mark.parametrize("steps", [None, 6], ids=["continuous", "tied"])
def test_coverage_is_as_guaranteed(score, steps):
    exact = coverages(50, 0.9, sets=100, steps=steps, score=score, randomized=True)[:, 0]
    assert abs(z_score(exact, 0.9)) < 3.5
    plain = coverages(50, 0.9, sets=100, steps=steps, score=score)[:, 0]
    assert z_score(plain, rank_for_coverage(0.9, 50) / 51) > -3.5


@of_each_score
def test_coverage_of_each_class_is_as_guaranteed(score):
    each = coverages(200, 0.8, sets=100, score=score, randomized=True, per_class=True, steps=6)
    assert all(abs(z_score(values, 0.8)) < 3.5 for values in each.T)


def of_each_group(*, sets, with_groups, **settings):
    """The coverage of two groups, in one of which the classes are confused, for each of many sets."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(sets):
        (probs, y, groups), (new, true, of_new) = (grouped(n, rng) for n in (150, 400))
        conformal = ConformalClassifier(coverage=0.9, random_state=number, **settings)
        conformal.fit(probs, y, groups=groups if with_groups else None)
        included = conformal.predict_set(new, groups=of_new if with_groups else None)
        covered = included[np.arange(400), true]
        found.append([covered[of_new == group].mean() for group in (0, 1)])
    return np.array(found).T


def grouped(n, rng):
    probs, y = draw(n, rng)
    groups = rng.integers(0, 2, n)
    return np.where(groups[:, None], probs[:, ::-1], probs), y, groups


@of_each_score
def test_coverage_of_each_group_is_as_guaranteed(score):
    exact = of_each_group(sets=100, with_groups=True, score=score, randomized=True)
    assert all(abs(z_score(values, 0.9)) < 3.5 for values in exact)
    plain = of_each_group(sets=100, with_groups=True, score=score)
    assert all(z_score(values, 0.9) > -3.5 for values in plain)


def test_one_threshold_covers_a_difficult_group_less():
    assert z_score(of_each_group(sets=100, with_groups=False)[1], 0.9) < -10


@of_each_score
def test_coverage_from_out_of_fold_predictions_is_about_as_asked_for(score):
    """Nothing is guaranteed there; models of four fifths of the rows are less sure than the one of all."""
    found = []
    for seed in range(60):
        X, y = Blobs(std=1.7).sample(500, seed=seed)
        probs = cross_val_predict(GaussianNB(), X[:100], y[:100], method="predict_proba")
        conformal = ConformalClassifier(GaussianNB().fit(X[:100], y[:100]), coverage=0.9, score=score)
        included = conformal.fit_out_of_fold(y[:100], probs).predict_set(X[100:])
        found.append(included[np.arange(400), y[100:]].mean())
    assert z_score(np.array(found), 0.9) > -3.5
    assert np.mean(found) < 0.97


def test_one_threshold_covers_rare_classes_less():
    """Without it, the test of `per_class` could not fail."""
    assert abs(z_score(coverages(200, 0.8, sets=100, randomized=True)[:, 1], 0.8)) > 10


@pytest.mark.slow
@of_each_score
def test_coverage_is_within_two_standard_errors_at_full_size(score):
    """One comparison in twenty is beyond two standard errors by chance; the limits are for all of them together.

    Without draws, ties raise the coverage, and the least probable class always ties in APS and RAPS, at 1.
    """
    exact, plain = [], []
    for n, coverage, steps in product([50, 200, 1000], [0.8, 0.9, 0.95], [None, 6]):
        common = {"sets": 300, "steps": steps, "score": score, "seed": n}
        exact.append(z_score(coverages(n, coverage, randomized=True, **common)[:, 0], coverage))
        promise = rank_for_coverage(coverage, n) / (n + 1)
        z = z_score(coverages(n, coverage, **common)[:, 0], promise)
        plain.append(z if steps is None and score == LAC() else min(z, 0.0))
    for z in (np.array(exact), np.array(plain)):
        assert np.abs(z).max() < 3.5
        assert (np.abs(z) > 2).sum() <= 3


@pytest.mark.slow
@pytest.mark.parametrize("steps", [None, 6], ids=["continuous", "tied"])
def test_coverage_of_each_class_at_full_size(steps):
    """The rarest class has a tenth of the rows: often too few of 50 or 200; it is then in every set."""

    def z_scores(n, coverage):
        found = coverages(n, coverage, sets=300, steps=steps, randomized=True, per_class=True, seed=n)
        return [z_score(values[~np.isnan(values)], coverage) for values in found.T[1:]]

    levels = [0.8, 0.9, 0.95]
    exact = np.array([z_scores(n, coverage) for n, coverage in product([500, 1000], levels)])
    assert np.abs(exact).max() < 3.8
    assert (np.abs(exact) > 2).sum() <= 4
    few = np.array([z_scores(n, coverage) for n, coverage in product([50, 200], levels)])
    assert few.min() > -3.8
    assert (few < -2).sum() <= 3
