"""The novelty score of a stored classifier: numbers and names, believed only as far as they fit together."""

import warnings

import numpy as np
import pytest
import safetensors.numpy

from selfcal import SelfCalibratedClassifier, uncertainty
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError, ModelFormatError
from selfcal.storage import describe
from selfcal.storage.novelty import NoveltyState, novelty_parts, restored_novelty
from tests import stored_models
from tests.stored_models import changed

X, Y = Blobs(std=1.7).sample(200, seed=0)
OF_FEATURES = [
    uncertainty.KNearestNeighbors(max_rows=50),
    uncertainty.Mahalanobis(),
    uncertainty.Reconstruction(max_epochs=5),
]


@pytest.fixture(scope="module")
def model():
    clf = SelfCalibratedClassifier("temperature", hidden=(8,), max_epochs=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clf.fit(X[:100], Y[:100])


@pytest.fixture
def folder(model, tmp_path):
    return model.fit_novelty(X[:100], Y[:100], X[100:]).save(tmp_path / "m")


@pytest.mark.parametrize("score", OF_FEATURES, ids=lambda score: type(score).__name__)
def test_a_stored_score_marks_the_same_rows(model, score, tmp_path):
    model.fit_novelty(X[:100], Y[:100], X[100:], score=score, false_alarms=0.1)
    again = SelfCalibratedClassifier.load(model.save(tmp_path / "m"))
    marked = model.is_novel(2 * X)
    assert marked.any()
    assert not marked.all()
    np.testing.assert_array_equal(again.is_novel(2 * X), marked)
    assert again.novelty_.guarantee_ == model.novelty_.guarantee_
    assert type(again.novelty_.score) is type(score)


def test_models_of_earlier_versions_have_none():
    folder = next(path for path in sorted(stored_models.FOLDER.glob("*/bo4sc")) if path.is_dir())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        old = SelfCalibratedClassifier.load(folder)
    assert old.novelty_ is None
    assert old.predict_proba(X).shape == (200, 5)
    with pytest.raises(ConfigError, match="Call fit_novelty"):
        old.is_novel(X)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("name", "Energy", "must be one of KNearestNeighbors"),
        ("name", "os.system", "must be one of KNearestNeighbors"),
        ("false_alarms", 2.0, "false_alarms"),
        ("state", {"n_features_": 7, "n_classes_": 5}, "7 columns"),
    ],
)
def test_a_hostile_description_is_refused(folder, name, value, words):
    changed(folder, lambda description: description["novelty"].update({name: value}))
    with pytest.raises(ModelFormatError, match=words):
        SelfCalibratedClassifier.load(folder)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("novelty.held_out", np.array([np.nan, 1.0])),
        ("novelty.held_out", np.zeros((2, 2))),
        ("novelty.score.means_", np.zeros((5, 3))),
        ("novelty.score.whitening_", np.full((2, 2), np.nan)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(folder, name, values):
    file = folder / "model.safetensors"
    arrays = safetensors.numpy.load(file.read_bytes())
    assert name in arrays
    file.write_bytes(safetensors.numpy.save(arrays | {name: values}))
    changed(folder, lambda description: None)
    with pytest.raises(ModelFormatError, match="holds no usable model"):
        SelfCalibratedClassifier.load(folder)


def test_the_description_names_the_score(folder):
    stored = describe(folder)["novelty"]
    assert (stored["name"], stored["false_alarms"]) == ("Mahalanobis", 0.05)


def test_only_known_scores_are_stored():
    class Own(uncertainty.Mahalanobis):
        pass

    with pytest.raises(ConfigError, match="must be one of"):
        novelty_parts(NoveltyState(Own().fit(X, Y), np.zeros(1), 0.05))
    assert novelty_parts(None) == (None, {})
    state = NoveltyState(uncertainty.Mahalanobis().fit(X, Y), np.array([1.0, 2.0]), 0.05)
    stored, arrays = novelty_parts(state)
    back = restored_novelty(stored, {k.removeprefix("novelty."): v for k, v in arrays.items()}, 2)
    np.testing.assert_array_equal(back.held_out, state.held_out)
