"""The description of an ensemble: parts that do not fit fail when it is made."""

import pytest

from selfcal import recipes
from selfcal.ensembles import Candidate, CrossFit, Ensemble
from selfcal.errors import ConfigError

PLAIN = Candidate("mlp", recipes.standard())


@pytest.mark.parametrize(
    ("candidates", "splitter", "message"),
    [
        ((), CrossFit(), "must have at least one candidate"),
        ((PLAIN,), 5, "splitter must be a Splitter such as CrossFit.*; got 5"),
        ((Candidate("mlp", "standard"),), CrossFit(), "candidate 'mlp' must have a Recipe; got 'standard'"),
        ((PLAIN, Candidate("mlp", recipes.isoreg())), CrossFit(), "Leave the calibrator out"),
    ],
)
def test_parts_that_do_not_fit(candidates, splitter, message):
    with pytest.raises(ConfigError, match=message):
        Ensemble("odd", candidates, splitter)


def test_with_another_network_there_is_one_candidate_for_each_recipe():
    other = Candidate("linear", recipes.focal())
    ensemble = Ensemble("both", (PLAIN, PLAIN._replace(network="linear"), other), CrossFit())
    chosen = ensemble.with_network("periodic").candidates
    assert chosen == (Candidate("periodic", PLAIN.recipe), Candidate("periodic", other.recipe))
