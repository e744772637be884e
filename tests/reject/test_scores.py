"""The reject option with an uncertainty score instead of the confidence."""

import inspect

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB

from selfcal import uncertainty
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, DataError
from selfcal.reject import Costs, SelectiveClassifier
from selfcal.uncertainty import (
    Entropy,
    FeatureScore,
    KNearestNeighbors,
    LogitScore,
    Margin,
    MaximumProbability,
    MemberScore,
    ProbabilityScore,
    TrustScore,
    UncertaintyScore,
)

X, y = Blobs(std=1.7).sample(9000, seed=0)
MODEL = GaussianNB().fit(X[:1000], y[:1000])


def test_the_maximum_probability_decides_like_the_confidence():
    usual, scored = (
        SelectiveClassifier(MODEL, max_risk=0.05, score=score).fit(X[1000:3000], y[1000:3000])
        for score in (None, MaximumProbability())
    )
    np.testing.assert_array_equal(usual.accepts(X[3000:]), scored.accepts(X[3000:]))
    assert usual.guarantee_.accepted == scored.guarantee_.accepted
    assert f"MaximumProbability is at most {-scored.threshold_:.6g}" in str(scored.guarantee_)


@pytest.mark.parametrize(
    "score", [Entropy(), TrustScore(), KNearestNeighbors()], ids=lambda s: type(s).__name__
)
@pytest.mark.filterwarnings("ignore::selfcal.errors.PromiseWarning")
def test_the_guarantee_holds_with_any_order(score):
    """Errors of the risk must be as rare as stated, over sets of calibration rows."""
    score.fit(MODEL.predict_proba(X[:1000]) if isinstance(score, Entropy) else X[:1000], y[:1000])
    rng = np.random.default_rng(0)
    broken, sets, answered = 0, 40, 0
    for _ in range(sets):
        rows = 1000 + rng.choice(8000, 400, replace=False)
        careful = SelectiveClassifier(MODEL, max_risk=0.15, confidence_level=0.8, score=score)
        careful.fit(X[rows], y[rows])
        accepted = careful.accepts(X[1000:])
        wrong = MODEL.predict(X[1000:]) != y[1000:]
        answered += accepted.any()
        broken += accepted.any() and wrong[accepted].mean() > 0.15
    assert broken <= binom.ppf(1 - 1e-3, sets, 0.2)
    assert answered or isinstance(score, KNearestNeighbors)


def test_coverage_and_classes_with_a_score():
    trust = TrustScore().fit(X[:1000], y[:1000])
    some = SelectiveClassifier(MODEL, min_coverage=0.7, score=trust).fit(X[1000:3000], y[1000:3000])
    assert 0.7 < some.accepts(X[3000:]).mean() < 0.8
    every = SelectiveClassifier(MODEL, min_coverage=1.0, score=trust).fit(X[1000:3000], y[1000:3000])
    assert every.accepts(1000 * X[3000:]).all()
    assert "Every row is answered" in str(every.guarantee_)
    each = SelectiveClassifier(MODEL, max_risk=0.2, per_class=True, score=Margin()).fit(X[1000:], y[1000:])
    assert each.threshold_.shape == (5,)


def test_a_risk_that_nothing_exceeds_accepts_all():
    lax = SelectiveClassifier(MODEL, max_risk=0.9, score=KNearestNeighbors().fit(X[:1000], y[:1000]))
    assert lax.fit(X[1000:3000], y[1000:3000]).threshold_ == -np.inf
    assert lax.guarantee_.holds
    assert lax.accepts(1000 * X[3000:]).all()


def test_mistakes_are_explained():
    with pytest.raises(ConfigError, match="leave it out for costs"):
        SelectiveClassifier(MODEL, costs=Costs(), score=Entropy()).fit(X[1000:], y[1000:])
    with pytest.raises(ConfigError, match="such as Entropy"):
        SelectiveClassifier(MODEL, max_risk=0.1, score="entropy").fit(X[1000:], y[1000:])
    with pytest.raises(ConfigError, match="several members"):
        SelectiveClassifier(MODEL, max_risk=0.1, score=uncertainty.Disagreement()).fit(X[1000:], y[1000:])

    class Broken(Entropy):
        def _doubt(self, probs):
            return np.full(len(probs), np.nan)

    with pytest.raises(DataError, match="finite number for each"):
        SelectiveClassifier(MODEL, max_risk=0.1, score=Broken()).fit(X[1000:], y[1000:])


FOREST = RandomForestClassifier(n_estimators=20, min_samples_leaf=5, random_state=0).fit(X[:1000], y[:1000])
NEVER_SURE = {"KNearestNeighbors", "Mahalanobis", "Reconstruction"}
"""Scores that say how strange a row is, not how likely an error: no threshold on them need have a low risk."""
SCORES = [
    kind
    for kind in (getattr(uncertainty, name) for name in uncertainty.__all__)
    if issubclass(kind, UncertaintyScore) and not inspect.isabstract(kind)
]


def fitted(kind):
    score = kind()
    for base, given in (
        (ProbabilityScore, FOREST.predict_proba),
        (LogitScore, lambda rows: np.log(np.maximum(FOREST.predict_proba(rows), 1e-300))),
        (MemberScore, lambda rows: np.array([tree.predict_proba(rows) for tree in FOREST.estimators_])),
        (FeatureScore, lambda rows: rows),
    ):
        if isinstance(score, base):
            return score.fit(given(X[:1000]), y[:1000])
    raise AssertionError(kind)


@pytest.mark.parametrize("kind", SCORES, ids=lambda kind: kind.__name__)
@pytest.mark.filterwarnings("ignore::selfcal.errors.PromiseWarning")
def test_every_score_rejects_by_its_own_order_and_keeps_the_guarantee(kind):
    score = fitted(kind)
    careful = SelectiveClassifier(FOREST, max_risk=0.2, score=score).fit(X[1000:5000], y[1000:5000])
    accepted = careful.accepts(X[5000:])
    np.testing.assert_array_equal(accepted, score.of(FOREST, X[5000:]) <= -careful.threshold_)
    if accepted.any():
        wrong = (FOREST.predict(X[5000:]) != y[5000:])[accepted]
        # the risk is at most 20% with probability 95%; four standard errors of these rows on top
        assert wrong.mean() <= 0.2 + 4 * np.sqrt(0.16 / len(wrong))
    assert accepted.any() or kind.__name__ in NEVER_SURE
