"""The description of an ensemble: parts that do not fit fail when it is made."""

from dataclasses import replace

import pytest

from selfcal import recipes
from selfcal.ensembles import CrossFit, Ensemble, NetworkCandidate
from selfcal.errors import ConfigError

PLAIN = NetworkCandidate("mlp", recipes.standard())


@pytest.mark.parametrize(
    ("candidates", "splitter", "message"),
    [
        ((), CrossFit(), "must have at least one candidate"),
        ((PLAIN,), 5, "splitter must be a Splitter such as CrossFit.*; got 5"),
        ((PLAIN, "mlp"), CrossFit(), "a candidate must be a Candidate .*; got 'mlp'"),
    ],
)
def test_parts_that_do_not_fit(candidates, splitter, message):
    with pytest.raises(ConfigError, match=message):
        Ensemble("odd", candidates, splitter)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("standard", "Candidate 'mlp' must have a Recipe; got 'standard'"),
        (recipes.isoreg(), "Leave the calibrator out"),
    ],
)
def test_a_network_without_a_fitting_recipe(recipe, message):
    with pytest.raises(ConfigError, match=message):
        NetworkCandidate("mlp", recipe)


def test_with_another_network_there_is_one_candidate_for_each_recipe():
    other = NetworkCandidate("linear", recipes.focal())
    ensemble = Ensemble("both", (PLAIN, replace(PLAIN, name="linear"), other), CrossFit())
    chosen = ensemble.with_network("periodic").candidates
    assert chosen == (NetworkCandidate("periodic", PLAIN.recipe), NetworkCandidate("periodic", other.recipe))
