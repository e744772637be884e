"""Classifiers with the interface of scikit-learn as candidates."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from selfcal import SelfCalibratedClassifier, recipes
from selfcal.datasets import Blobs
from selfcal.ensembles import ClassifierCandidate, CrossFit
from selfcal.ensembles.settings import MemberSettings
from selfcal.ensembles.training import Rows
from selfcal.errors import ConfigError
from selfcal.models.factory import NetworkFactory
from selfcal.models.trees import Trees
from selfcal.training.problem import forward_in_blocks

X, Y = Blobs(std=1.7).sample(300, seed=0)
X = X.astype(np.float32)
SPLITS = CrossFit(3).splits(Y, seed=0)


def trained(classifier, *, members=(0, 1, 2), max_seconds=float("inf"), weight=None):
    settings = MemberSettings(NetworkFactory(5), None, 10, 256, True, 10, seed=3)
    rows = Rows(torch.from_numpy(X), Y, weight)
    return ClassifierCandidate(classifier).trainer(rows, SPLITS, settings).train(members, max_seconds)


@pytest.mark.parametrize(
    "classifier",
    [
        ExtraTreesClassifier(7),
        RandomForestClassifier(7),
        HistGradientBoostingClassifier(max_iter=7),
        GaussianNB(),
    ],
    ids=lambda c: type(c).__name__,
)
def test_members_predict_what_the_classifier_predicts(classifier):
    found = trained(classifier)
    for member, split in enumerate(SPLITS):
        if "random_state" in classifier.get_params():
            classifier.set_params(random_state=3 + member)
        probs = classifier.fit(X[split.train], Y[split.train]).predict_proba(X)
        ours = forward_in_blocks(found.members[member], torch.from_numpy(X)).softmax(dim=1).numpy()
        np.testing.assert_allclose(ours, probs, atol=1e-4)
        held_out = torch.from_numpy(found.held_out_logits[0, split.held_out]).softmax(dim=1)
        np.testing.assert_allclose(held_out, probs[split.held_out], atol=1e-4)
    assert isinstance(found.members[0], Trees) == (type(classifier).__name__ != "GaussianNB")


def test_trees_that_a_user_passes_are_stored(tmp_path):
    method = recipes.auto(folds=3, candidates=[RandomForestClassifier(5), "linear"])
    model = SelfCalibratedClassifier(method, max_epochs=5, random_state=0).fit(X, Y)
    again = SelfCalibratedClassifier.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert {record["network"] for record in again.selection_} == {"RandomForestClassifier", "linear"}


class TestServedForests:
    def test_a_pool_has_one_forest_with_some_trees_of_each_member(self, tmp_path):
        candidates = [ExtraTreesClassifier(8), RandomForestClassifier(6)]
        method = recipes.auto(folds=5, repeats=1, candidates=candidates)
        model = SelfCalibratedClassifier(method, random_state=0).fit(X, Y)
        assert [[forest.n_trees for forest in kind.members] for kind in model.module_.members] == [[20], [15]]
        again = SelfCalibratedClassifier.load(model.save(tmp_path / "model"))
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))

    def test_a_forest_alone_has_all_trees(self):
        method = recipes.auto(folds=3, repeats=1, candidates=[ExtraTreesClassifier(8)])
        model = SelfCalibratedClassifier(method, random_state=0).fit(X, Y)
        assert [member.n_trees for member in model.module_.members] == [8, 8, 8]

    def test_few_members_are_not_repeated_and_others_stay(self):
        forests = trained(ExtraTreesClassifier(4), members=[0, 1]).members
        candidate = ClassifierCandidate(ExtraTreesClassifier(4))
        assert [forest.n_trees for forest in candidate.served(forests)] == [8]
        for others in (
            trained(GaussianNB()).members,
            trained(HistGradientBoostingClassifier(max_iter=3)).members,
        ):
            assert candidate.served(others) is others


def test_another_classifier_predicts_but_is_not_stored(tmp_path):
    model = SelfCalibratedClassifier(recipes.auto(folds=3, candidates=[GaussianNB()]), random_state=0).fit(
        X, Y
    )
    assert model.score(X, Y) > 0.8
    with pytest.raises(ConfigError, match="code is not stored"):
        model.save(tmp_path / "model")


def test_sample_weights_are_passed_where_they_are_known():
    class Seen(ClassifierMixin, BaseEstimator):
        def fit(self, X, y, sample_weight=None):
            self.classes_, self.weight_ = np.unique(y), sample_weight
            return self

        def predict_proba(self, X):
            return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))

    weight = np.arange(1.0, len(Y) + 1)
    first = trained(Seen(), members=[0], weight=weight).members[0]
    np.testing.assert_array_equal(first.classifier.weight_, weight[SPLITS[0].train])
    trained(KNeighborsClassifier(), members=[0], weight=weight)  # which knows none


def test_time_that_runs_out_leaves_fewer_members():
    found = trained(GaussianNB(), max_seconds=0.0)
    assert (len(found.members), found.result.status) == (1, "out of time")
    np.testing.assert_array_equal(
        np.flatnonzero(~np.isnan(found.held_out_logits[0, :, 0])), SPLITS[0].held_out
    )


@pytest.mark.parametrize("bad", [3, GaussianNB, object()])
def test_what_is_no_classifier(bad):
    with pytest.raises(ConfigError, match="must be a classifier with fit, predict_proba and get_params"):
        recipes.auto(candidates=["linear", bad])


@pytest.mark.parametrize(
    ("bad", "message"),
    [("linear", "must be a list"), (["linaer"], "linaer.*linear"), ([], "at least one candidate")],
)
def test_candidates_that_do_not_exist(bad, message):
    with pytest.raises(ConfigError, match=message):
        recipes.auto(candidates=bad)


def test_a_copy_is_fitted_on_a_random_part_of_its_rows_if_they_are_many():
    candidate = ClassifierCandidate(Counting(), max_rows=50)
    rows = Rows(torch.from_numpy(X), Y, None)
    settings = MemberSettings(NetworkFactory(5), None, 10, 256, True, 10, seed=3)
    members = candidate.trainer(rows, SPLITS, settings).train([0, 1], float("inf")).members
    seen = [{tuple(row) for row in member.classifier.rows_} for member in members]
    assert [len(one) for one in seen] == [50, 50]
    assert seen[0] != seen[1]
    for own, split in zip(seen, SPLITS, strict=False):
        assert own <= {tuple(row) for row in X[split.train]}


def test_the_expected_time_does_not_grow_beyond_the_rows_used():
    few, many = (
        ClassifierCandidate(ExtraTreesClassifier(10), max_rows=100).trainer(
            Rows(torch.from_numpy(X[:n]), Y[:n], None),
            SPLITS,
            MemberSettings(NetworkFactory(5), None, 10, 256, True, 10, 3),
        )
        for n in (200, 300)
    )
    assert few.expected_seconds == many.expected_seconds > 0


class Counting(ClassifierMixin, BaseEstimator):
    """Predicts the frequencies of classes, and remembers the rows it was fitted on."""

    def fit(self, X, y):
        self.rows_, self.classes_ = X, np.unique(y)
        return self

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))
