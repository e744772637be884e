"""Coverage over many sets of calibration rows: exactly what is guaranteed."""

from itertools import product

import numpy as np
import pytest

from selfcal.conformal import ConformalClassifier
from selfcal.conformal.guarantee import rank_for_coverage
from tests.conformal.worlds import draw

pytestmark = pytest.mark.filterwarnings("ignore::selfcal.errors.PromiseWarning")


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


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
@pytest.mark.parametrize("steps", [None, 6], ids=["continuous", "tied"])
def test_coverage_is_as_guaranteed(score, steps):
    exact = coverages(50, 0.9, sets=100, steps=steps, score=score, randomized=True)[:, 0]
    assert abs(z_score(exact, 0.9)) < 3.5
    plain = coverages(50, 0.9, sets=100, steps=steps, score=score)[:, 0]
    assert z_score(plain, rank_for_coverage(0.9, 50) / 51) > -3.5


def test_coverage_of_each_class_and_group_is_as_guaranteed():
    each = coverages(200, 0.8, sets=100, score="lac", randomized=True, per_class=True, steps=6)
    assert all(abs(z_score(values, 0.8)) < 3.5 for values in each.T)


def test_one_threshold_covers_rare_classes_less():
    """Without it, the test of `per_class` could not fail."""
    assert abs(z_score(coverages(200, 0.8, sets=100, randomized=True)[:, 1], 0.8)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
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
        plain.append(z if steps is None and score == "lac" else min(z, 0.0))
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
