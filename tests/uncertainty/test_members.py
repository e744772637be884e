import numpy as np
import pytest

from selfcal import SelfCalibratedClassifier
from selfcal.datasets import Blobs
from selfcal.errors import ConfigError
from selfcal.uncertainty import Disagreement, MutualInformation

X, y = Blobs(std=1.7).sample(300, seed=0)


def test_members_of_a_classifier_are_its_networks():
    clf = SelfCalibratedClassifier("ensemble", max_epochs=3, random_state=0).fit(X, y)
    members = clf.member_proba(X)
    assert members.shape[1:] == (300, 5)
    assert len(members) > 1
    np.testing.assert_allclose(members.sum(axis=2), 1)
    np.testing.assert_array_equal(Disagreement().of(clf, X), Disagreement().score(members))
    assert MutualInformation().of(clf, X).max() > 0


def test_one_network_has_no_members():
    clf = SelfCalibratedClassifier("standard", max_epochs=1, random_state=0).fit(X, y)
    with pytest.raises(ConfigError, match="needs several answers"):
        MutualInformation().of(clf, X)
