"""Trees are saved once they are trained: a resumed fit loads them, and refuses those of another fit."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB

from selfcal import SelfCalibratedClassifier, recipes
from selfcal.datasets import Blobs
from selfcal.ensembles import Boosting, ClassifierCandidate, CrossFit
from selfcal.ensembles.settings import MemberSettings
from selfcal.ensembles.training import Rows
from selfcal.errors import CheckpointError, Interrupted
from selfcal.models.factory import NetworkFactory
from selfcal.tabular.features import FeatureGroups

X, Y = Blobs(std=1.7).sample(200, seed=0)
X = X.astype(np.float32)
TREES = {
    "boosting": Boosting(max_iter=30),
    "extra trees": ClassifierCandidate(ExtraTreesClassifier(7)),
    "random forest": ClassifierCandidate(RandomForestClassifier(7), max_rows=50),
    "boosting of scikit-learn": ClassifierCandidate(HistGradientBoostingClassifier(max_iter=7)),
}


def train(
    candidate, folder, *, x=X, y=Y, weight=None, groups=None, seed=3, members=(0, 1), max_seconds=np.inf
):
    settings = MemberSettings(NetworkFactory(5), None, 10, 256, True, 10, seed=seed, folder=folder)
    rows = Rows(torch.from_numpy(x), y, weight, groups)
    return candidate.trainer(rows, CrossFit(3).splits(Y, seed=0), settings).train(members, max_seconds)


@pytest.fixture
def no_fit(monkeypatch):
    """A function after whose call no tree can be fitted."""

    def forbid():
        for cls in (ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier):
            monkeypatch.setattr(cls, "fit", lambda *_, **__: pytest.fail("it trained again"))

    return forbid


@pytest.mark.parametrize("max_seconds", [np.inf, 1e-9], ids=["in time", "out of time"])
@pytest.mark.parametrize("candidate", TREES.values(), ids=TREES)
def test_trees_are_trained_once(candidate, max_seconds, tmp_path, no_fit):
    first = train(candidate, tmp_path, max_seconds=max_seconds)
    no_fit()
    again = train(candidate, tmp_path, max_seconds=max_seconds)
    np.testing.assert_array_equal(again.held_out_logits, first.held_out_logits)
    assert len(again.members) == len(first.members)
    for ours, theirs in zip(again.members, first.members, strict=True):
        assert torch.equal(ours(torch.from_numpy(X)), theirs(torch.from_numpy(X)))
    for name in ("n_steps", "best_step", "status", "seconds"):
        assert getattr(again.result, name) == getattr(first.result, name)
    for name, value in vars(first.result.history).items():
        np.testing.assert_array_equal(getattr(again.result.history, name), value)


def test_categories_and_missing_values_are_loaded(tmp_path, no_fit):
    x = np.column_stack([X, np.eye(3)[np.arange(200) % 3]]).astype(np.float32)
    groups = FeatureGroups(missing=[(0, 2)], categories=[(3, 5)])
    first = train(Boosting(max_iter=30), tmp_path, x=x, groups=groups)
    no_fit()
    again = train(Boosting(max_iter=30), tmp_path, x=x, groups=groups)
    assert torch.equal(again.members[0](torch.from_numpy(x)), first.members[0](torch.from_numpy(x)))


FOREST = ClassifierCandidate(RandomForestClassifier(3, class_weight=dict.fromkeys(range(50), 1.0)))
OTHER_WEIGHT = {**dict.fromkeys(range(50), 1.0), 3: 2.0}  # beyond what the repr shows
OTHER = {
    "rows": ({"x": X + 1}, r"train data was \w+ and is \w+"),
    "labels": ({"y": (Y + 1) % 5}, r"train data was \w+ and is \w+"),
    "weights": ({"weight": np.ones(200)}, r"train data was \w+ and is \w+"),
    "seed": ({"seed": 4}, "seed was 3 and is 4"),
    "members": ({"members": (0,)}, r"members was \[0, 1\] and is \[0\]"),
    "candidate": (
        {"candidate": ClassifierCandidate(FOREST.classifier, max_rows=9)},
        "candidate was .* and is .*max_rows=9",
    ),
    "parameter": (
        {"candidate": ClassifierCandidate(RandomForestClassifier(3, class_weight=OTHER_WEIGHT))},
        r"parameters was \w+ and is \w+",
    ),
}


@pytest.mark.parametrize(("changed", "named"), OTHER.values(), ids=OTHER)
def test_trees_of_another_fit_are_refused(changed, named, tmp_path):
    train(FOREST, tmp_path)
    with pytest.raises(CheckpointError, match=f"belongs to another run: .*{named}"):
        train(**{"candidate": FOREST, "folder": tmp_path, **changed})
    train(FOREST, tmp_path)


@pytest.mark.parametrize("module", ["selfcal.training.checkpoint", "sklearn"])
def test_trees_of_another_version_are_refused(module, tmp_path, monkeypatch):
    train(FOREST, tmp_path)
    monkeypatch.setattr(f"{module}.__version__", "99.0")
    with pytest.raises(CheckpointError, match=r"version was \S+ and is 99\.0"):
        train(FOREST, tmp_path)


@pytest.mark.parametrize("state", [0, 1])
def test_a_random_state_counts_by_its_value(state, tmp_path):
    """The repr of a random stream is where it is in memory."""
    first, again = (
        ClassifierCandidate(ExtraTreesClassifier(3, random_state=np.random.RandomState(seed)))
        for seed in (0, state)
    )
    train(first, tmp_path)
    if state == 0:
        train(again, tmp_path)
    else:
        with pytest.raises(CheckpointError, match="parameters was"):
            train(again, tmp_path)


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[:-1], lambda data: data[:-50] + b"x" + data[-49:]],
    ids=["empty", "cut", "changed"],
)
def test_damaged_trees_are_refused(damage, tmp_path):
    train(FOREST, tmp_path)
    (path,) = tmp_path.rglob("*.safetensors")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"cannot be used: .* No intact checkpoint is left in"):
        train(FOREST, tmp_path)
    path.unlink()
    train(FOREST, tmp_path)


def test_a_classifier_that_cannot_be_stored_is_trained_again(tmp_path):
    first, again = (train(ClassifierCandidate(GaussianNB()), tmp_path) for _ in range(2))
    np.testing.assert_array_equal(again.held_out_logits, first.held_out_logits)
    assert list(tmp_path.iterdir()) == []


def test_any_name_is_a_folder(tmp_path, no_fit):
    candidate = ClassifierCandidate(RandomForestClassifier(3), name="../a forest: 1/2")
    train(candidate, tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    no_fit()
    train(candidate, tmp_path / "run")


def classifier(candidates, **settings):
    method = recipes.auto(folds=3, repeats=1, candidates=candidates)
    return SelfCalibratedClassifier(method, max_epochs=5, random_state=0, **settings)


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_fit_stopped_after_its_trees_is_resumed_without_training_them(
    n_jobs, tmp_path, monkeypatch, no_fit
):
    candidates = ["boosting", "extra-trees", "linear"]
    undisturbed = classifier(candidates).fit(X, Y)

    def stopped(*_, **__):
        raise Interrupted("enough", 2)

    with monkeypatch.context() as patched:
        patched.setattr("selfcal.ensembles.settings.train_members", stopped)
        patched.setattr("selfcal.ensembles.selection._longest_first", lambda states, members: states)
        with pytest.raises(Interrupted):
            classifier(candidates, checkpoint_dir=tmp_path / "run").fit(X, Y)
    saved = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.safetensors")}
    no_fit()  # in this process; in others, nothing is saved anew
    resumed = classifier(candidates, checkpoint_dir=tmp_path / "run", n_jobs=n_jobs).fit(X, Y)
    after = [path for path in (tmp_path / "run").rglob("*.safetensors") if "linear" not in path.parent.name]
    assert {path: path.stat().st_mtime_ns for path in after} == saved
    assert len(saved) == 2
    np.testing.assert_array_equal(resumed.predict_proba(X), undisturbed.predict_proba(X))
    np.testing.assert_array_equal(resumed.out_of_fold_, undisturbed.out_of_fold_)


def test_candidates_of_one_name_are_saved_apart(tmp_path, no_fit):
    candidates = [RandomForestClassifier(3), RandomForestClassifier(9), "linear"]
    undisturbed = classifier(candidates).fit(X, Y)
    classifier(candidates, checkpoint_dir=tmp_path / "run").fit(X, Y)
    no_fit()
    again = classifier(candidates, checkpoint_dir=tmp_path / "run").fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(X), undisturbed.predict_proba(X))
