"""Rows unlike the training rows, on the estimator."""

import warnings

import numpy as np
import polars as pl
import pytest

from selfcal import SelfCalibratedClassifier
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, PromiseWarning
from selfcal.uncertainty import KNearestNeighbors

X, Y = Blobs(std=1.7).sample(400, seed=0)


def classifier(**settings):
    return SelfCalibratedClassifier(
        "standard", **{"hidden": (8,), "max_epochs": 4, "random_state": 0, **settings}
    )


def frame(values, labels):
    """Two numbers of very different units and a category."""
    names = np.array(["a", "b", "c", "d", "e"])[labels]
    return pl.DataFrame({"east": values[:, 0] * 1e6, "north": values[:, 1] * 1e-6, "name": names})


@pytest.fixture(scope="module")
def known():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf = classifier().fit(frame(X[:200], Y[:200]), Y[:200])
    return clf.fit_novelty(frame(X[:200], Y[:200]), Y[:200], frame(X[200:], Y[200:]), false_alarms=0.1)


def test_a_data_frame_is_encoded_as_for_the_network(known):
    new, labels = Blobs(std=1.7).sample(2000, seed=1)
    marked = known.is_novel(frame(new, labels))
    # 10% of 2,000 rows, by a threshold from 200: standard deviation 2.2%
    assert 0.02 < marked.mean() < 0.2
    strange = frame(new, labels)
    assert known.is_novel(strange.with_columns(pl.col("east") + 3e7)).all()
    assert known.is_novel(strange.with_columns(pl.col("north") * 1e6)).mean() > 0.9
    with pytest.warns(UserWarning, match="not seen in training"):
        unseen = known.is_novel(strange.with_columns(name=pl.lit("z")))
    assert unseen.mean() > 0.9
    np.testing.assert_array_equal(known.is_novel(strange), marked)


def test_units_of_arrays_do_not_matter():
    marks = []
    for units in (np.ones(2), np.array([1e-5, 1e5])):
        clf = classifier().fit(units * X[:200], Y[:200])
        clf.fit_novelty(units * X[:200], Y[:200], units * X[200:])
        marks.append(clf.is_novel(2 * units * X))
    assert (marks[0] == marks[1]).mean() > 0.99
    assert 0.1 < marks[0].mean() < 0.9


def test_predictions_stay_and_another_fit_forgets():
    clf = classifier().fit(X[:200], Y[:200])
    before = clf.predict_proba(X)
    score = KNearestNeighbors(max_rows=20)
    assert clf.fit_novelty(X[:200], Y[:200], X[200:], score=score) is clf
    np.testing.assert_array_equal(clf.predict_proba(X), before)
    assert not hasattr(score, "rows_")  # a copy is fitted
    clf.fit(X[:200], Y[:200])
    with pytest.raises(ConfigError, match="Call fit_novelty"):
        clf.is_novel(X)


def test_too_few_rows_mark_none():
    clf = classifier().fit(X[:200], Y[:200])
    with pytest.warns(PromiseWarning, match="at least 19"):
        clf.fit_novelty(X[:200], Y[:200], X[200:210])
    assert not clf.is_novel(1e6 * X).any()
