"""What every uncertainty score must do, for all that the package exports."""

import inspect
import tracemalloc

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier

from selfcal import uncertainty
from selfcal.errors import ConfigError, DataError
from selfcal.storage import skops_archive
from selfcal.uncertainty import FeatureScore, LogitScore, MemberScore, ProbabilityScore, UncertaintyScore

SCORES = [
    value
    for value in (getattr(uncertainty, name) for name in uncertainty.__all__)
    if issubclass(value, UncertaintyScore) and not inspect.isabstract(value)
]
NOVELTY = [
    uncertainty.KNearestNeighbors,
    uncertainty.Mahalanobis,
    uncertainty.OpenMax,
    uncertainty.Reconstruction,
]
"""Scores of rows unlike the training rows, which do not know the classes apart."""

every = pytest.mark.parametrize("kind", SCORES, ids=lambda kind: kind.__name__)


class World:
    """Three classes in the plane, and the input of each kind of score for its rows."""

    def __init__(self, n, seed, spread=1.0):
        rng = np.random.default_rng(seed)
        centres = np.array([[3.0, 0.0], [-3.0, 1.0], [0.0, 4.0]])
        self.y = rng.integers(0, 3, n)
        self.X = centres[self.y] + spread * rng.normal(size=(n, 2))
        self.logits = self.X @ centres.T / 2 - (centres**2).sum(axis=1) / 4
        self.probs = softmax(self.logits, axis=1)
        noise = np.random.default_rng(seed + 1).normal(size=(4, n, 3))
        self.members = softmax(self.logits + noise, axis=2)

    def input(self, score):
        return {
            ProbabilityScore: self.probs,
            LogitScore: self.logits,
            MemberScore: self.members,
            FeatureScore: self.X,
        }[_base(score)]

    def doubt(self, score, rows=slice(None)):
        given = self.input(score)
        if isinstance(score, MemberScore):
            return score.score(given[:, rows])
        more = {"predicted": self.probs.argmax(axis=1)[rows]} if isinstance(score, FeatureScore) else {}
        return score.score(given[rows], **more)


def _base(score):
    return next(
        base for base in (ProbabilityScore, LogitScore, MemberScore, FeatureScore) if isinstance(score, base)
    )


TRAIN, NEW = World(400, 0), World(300, 1)


@pytest.fixture
def score(kind):
    fitted = kind()
    return fitted.fit(TRAIN.input(fitted), TRAIN.y)


@every
def test_a_score_is_one_finite_number_per_row(score):
    doubt = NEW.doubt(score)
    assert doubt.shape == (300,)
    assert doubt.dtype == np.float64
    assert np.isfinite(doubt).all()


@every
def test_rows_are_scored_one_by_one(score):
    whole, part = NEW.doubt(score), NEW.doubt(score, slice(100, 140))
    np.testing.assert_allclose(part, whole[100:140], rtol=1e-9, atol=1e-9)


@every
def test_blocks_change_nothing(score, monkeypatch):
    whole = NEW.doubt(score)
    for place in ("selfcal.uncertainty._base.BLOCK", "selfcal.uncertainty._rows.DISTANCES"):
        monkeypatch.setattr(place, 64)
    np.testing.assert_allclose(NEW.doubt(score), whole, rtol=1e-9, atol=1e-9)


@every
def test_settings_and_state_survive_storage(score):
    stored = skops_archive.load(skops_archive.dump(score.get_state()))
    again = type(score).from_state(stored)
    np.testing.assert_array_equal(NEW.doubt(again), NEW.doubt(score))
    assert again.get_params() == score.get_params()


@every
def test_a_damaged_state_is_refused(score):
    state = score.get_state()
    with pytest.raises(DataError, match="unknown name"):
        type(score).from_state(state | {"zzz": 1.0})
    for name in state:
        with pytest.raises(DataError):
            type(score).from_state({key: value for key, value in state.items() if key != name})


@every
def test_fitting_twice_gives_the_same_and_leaves_the_input(kind):
    given = TRAIN.input(kind()).copy()
    first, second = (kind().fit(given, TRAIN.y) for _ in range(2))
    np.testing.assert_array_equal(NEW.doubt(first), NEW.doubt(second))
    np.testing.assert_array_equal(given, TRAIN.input(first))
    assert not hasattr(clone(first), "means_")


@pytest.mark.parametrize("kind", [kind for kind in SCORES if kind not in NOVELTY], ids=lambda k: k.__name__)
def test_doubt_is_higher_where_predictions_are_wrong(score):
    """Rows far from all others are a matter of the other test; here errors lie between the classes."""
    new = World(2000, 5, spread=2.0)
    doubt, wrong = new.doubt(score), new.probs.argmax(axis=1) != new.y
    assert wrong.sum() > 50
    assert doubt[wrong].mean() > doubt[~wrong].mean()


@pytest.mark.parametrize("kind", NOVELTY, ids=lambda kind: kind.__name__)
def test_doubt_is_higher_far_away(score):
    far = [30.0, 30.0, 30.0] if isinstance(score, LogitScore) else [30.0, -30.0]
    assert score.score([far])[0] > NEW.doubt(score).max()


@every
def test_impossible_input_is_refused(score):
    given = np.array(NEW.input(score))
    given[..., 0, 0] = np.nan
    with pytest.raises(DataError):
        score.score(given)
    with pytest.raises(DataError):
        score.score(given[0, 0])
    with pytest.raises(DataError):
        score.fit(TRAIN.input(score), TRAIN.y + 10, classes=[0, 1, 2])


@every
def test_settings_are_checked(kind):
    for name in kind._get_param_names():
        with pytest.raises(ConfigError, match=name):
            kind(**{name: -1}).fit(TRAIN.input(kind()), TRAIN.y).score(TRAIN.input(kind()))


@every
def test_every_score_works_on_a_fitted_classifier(score):
    names = np.array(["a", "b", "c"])
    forest = RandomForestClassifier(10, random_state=0).fit(TRAIN.X, names[TRAIN.y])
    doubt = score.of(forest, NEW.X)
    assert doubt.shape == (300,)
    assert np.isfinite(doubt).all()


@pytest.mark.slow
@every
def test_memory_does_not_grow_with_the_rows(kind):
    """Beyond input and output; 1e5 training rows and 1e5 new ones of 20 columns."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100_000, 20)), rng.integers(0, 3, 100_000)
    score = kind()
    if isinstance(score, FeatureScore):
        new, more = X, {"predicted": y}
    else:
        probs = softmax(X[:, :3], axis=1)
        new, more = np.array([probs] * 5) if isinstance(score, MemberScore) else probs, {}
        y = probs.argmax(axis=1)
    tracemalloc.start()
    score.fit(new, y).score(new, **more)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e8
