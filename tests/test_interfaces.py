import pytest

from selfcal import Recipe
from selfcal.errors import ConfigError
from selfcal.hypergradients import OneStep
from selfcal.losses import cross_entropy
from selfcal.objectives import ConfidenceBCE
from selfcal.optimizers import SGD
from selfcal.outer import SampleWeights


def test_an_outer_level_must_be_whole():
    with pytest.raises(ConfigError, match="without objective, hypergradient, outer_optimizer"):
        Recipe(name="half", loss=cross_entropy, outer_model=SampleWeights())


def test_parts_that_do_not_fit_say_what_is_offered_and_accepted():
    class Gamma(SampleWeights):
        provides = frozenset({"gamma"})

    with pytest.raises(ConfigError, match="Gamma offers gamma, but the loss accepts only weight"):
        Recipe(
            name="odd",
            loss=cross_entropy,
            outer_model=Gamma(),
            objective=ConfidenceBCE(),
            hypergradient=OneStep(),
            outer_optimizer=SGD(lr=1),
        )


def test_a_loss_with_the_keyword_accepts_it():
    class Gamma(SampleWeights):
        provides = frozenset({"gamma"})

    def focal(logits, y, *, gamma):
        return cross_entropy(logits, y) * gamma

    recipe = Recipe(
        name="fits",
        loss=focal,
        outer_model=Gamma(),
        objective=ConfidenceBCE(),
        hypergradient=OneStep(),
        outer_optimizer=SGD(lr=1),
    )
    assert recipe.is_bilevel
    assert recipe.needs_outer_data


def test_inner_steps_must_be_positive():
    with pytest.raises(ConfigError, match="inner_steps must be a whole number of at least 1; got 0"):
        Recipe(name="none", loss=cross_entropy, inner_steps=0)
