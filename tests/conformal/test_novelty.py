import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from selfcal.conformal import NoveltyDetector
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, PromiseWarning
from selfcal.uncertainty import Entropy, KNearestNeighbors, Mahalanobis

X, y = Blobs(std=1.3).sample(1000, seed=0)
MODEL = GaussianNB().fit(X, y)


@pytest.mark.parametrize(
    "score", [Entropy(), Mahalanobis(), KNearestNeighbors()], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_false_alarms_are_as_rare_as_stated(score, rate):
    score.fit(MODEL.predict_proba(X) if isinstance(score, Entropy) else X, y)
    found = []
    for seed in range(1, 101):
        rows, _ = Blobs(std=1.3).sample(600, seed=seed)
        detector = NoveltyDetector(MODEL, score, false_alarms=rate).fit(rows[:100])
        found.append(detector.is_novel(rows[100:]).mean())
        assert ((detector.p_value(rows) <= rate) == detector.is_novel(rows)).all()
    error = np.std(found, ddof=1) / 10
    exact = np.floor(101 * rate + 1e-9) / 101
    assert abs(np.mean(found) - exact) < 3.5 * error


def test_a_left_out_class_is_found():
    known = y != 0
    model = GaussianNB().fit(X[known], y[known])
    score = KNearestNeighbors().fit(X[known], y[known])
    rows, labels = Blobs(std=1.3).sample(2000, seed=1)
    detector = NoveltyDetector(model, score, false_alarms=0.05).fit(rows[:1000][labels[:1000] != 0])
    new, true = rows[1000:], labels[1000:]
    assert detector.is_novel(new[true == 0]).mean() > 3 * detector.is_novel(new[true != 0]).mean()


def test_too_few_rows_flag_nothing():
    score = KNearestNeighbors().fit(X, y)
    with pytest.warns(PromiseWarning, match="at least 99"):
        detector = NoveltyDetector(MODEL, score, false_alarms=0.01).fit(X[:98])
    assert not detector.is_novel(1e6 * X).any()
    assert NoveltyDetector(MODEL, score, false_alarms=0.01).fit(X[:99]).is_novel(1e6 * X).all()


def test_mistakes_are_explained():
    with pytest.raises(ConfigError, match="between 0 and 1"):
        NoveltyDetector(MODEL, Entropy(), false_alarms=5).fit(X)
    with pytest.raises(ConfigError, match="KNearestNeighbors"):
        NoveltyDetector(MODEL, "entropy").fit(X)


def test_without_a_classifier_the_input_is_that_of_the_score():
    score = KNearestNeighbors().fit(X[:500], y[:500])
    alone, asked = (NoveltyDetector(model, score).fit(X[500:]) for model in (None, MODEL))
    assert alone.threshold_ == asked.threshold_
    new = 2 * X
    np.testing.assert_array_equal(alone.is_novel(new), asked.is_novel(new))


def test_rows_too_far_away_for_a_distance_are_flagged():
    detector = NoveltyDetector(None, Mahalanobis().fit(X[:500], y[:500])).fit(X[500:])
    far = np.array([[1e200, -1e200], [1e308, 1e308]])
    assert detector.is_novel(far).all()
    assert (detector.p_value(far) == 1 / 501).all()


def test_the_state_makes_the_same_detector():
    detector = NoveltyDetector(None, Mahalanobis().fit(X[:500], y[:500]), false_alarms=0.1).fit(X[500:])
    again = NoveltyDetector.from_state(detector.state)
    assert (again.threshold_, again.guarantee_) == (detector.threshold_, detector.guarantee_)
    np.testing.assert_array_equal(again.p_value(2 * X), detector.p_value(2 * X))


def test_the_p_value_of_a_count_is_as_rare_as_it_says():
    """Ranks of normal numbers are all there is to it; 400 draws of held-out and new rows."""
    rng = np.random.default_rng(0)
    score = KNearestNeighbors().fit([[0.0], [0.0]], [0, 1])  # the distance from zero
    found = []
    for _ in range(400):
        detector = NoveltyDetector(None, score, false_alarms=0.1).fit(rng.normal(size=(59, 1)))
        found.append(detector.p_value_of_many(int(detector.is_novel(rng.normal(size=(80, 1))).sum()), 80))
    for level in (0.05, 0.2, 0.5):
        # at most the level, and not much less: counts are whole numbers; 3.5 standard errors of 400 draws
        error = 3.5 * np.sqrt(level * (1 - level) / 400)
        assert 0.5 * level - error < np.mean(np.array(found) <= level) < level + error
    assert detector.p_value_of_many(0, 80) == 1
    assert detector.p_value_of_many(80, 80) < 1e-9
    assert detector.p_value_of_many(10**7, 10**8) == pytest.approx(0.5, abs=0.1)


def test_too_few_rows_make_no_count_noteworthy():
    with pytest.warns(PromiseWarning):
        few = NoveltyDetector(None, Mahalanobis().fit(X, y)).fit(X[:10])
    assert few.p_value_of_many(5, 5) == 1
