import functools
import subprocess
import sys
from dataclasses import dataclass

import pytest

from selfcal import Recipe, recipes
from selfcal.errors import ConfigError
from selfcal.hypergradients import OneStep
from selfcal.losses import cross_entropy
from selfcal.objectives import ConfidenceBCE
from selfcal.optimizers import SGD
from selfcal.outer import SampleWeights
from selfcal.training.interfaces import Hypergradient


def test_an_outer_level_must_be_whole():
    with pytest.raises(
        ConfigError, match=r"without hypergradient, outer_optimizer\. .* or the outer model alone"
    ):
        Recipe(name="half", loss=cross_entropy, outer_model=SampleWeights(), objective=ConfidenceBCE())
    with pytest.raises(ConfigError, match="without outer_model, hypergradient, outer_optimizer"):
        Recipe(name="half", loss=cross_entropy, objective=ConfidenceBCE())


def test_an_outer_model_alone_needs_no_outer_data():
    recipe = Recipe(name="fixed", loss=cross_entropy, outer_model=SampleWeights())
    assert not recipe.is_bilevel
    assert not recipe.needs_outer_data


def test_parts_that_do_not_fit_list_what_is_provided_and_accepted():
    class Gamma(SampleWeights):
        provides = frozenset({"gamma"})

    with pytest.raises(
        ConfigError, match="provide gamma; the loss accepts penalty, weight and requires nothing"
    ):
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


def test_a_loss_that_requires_a_missing_keyword():
    with pytest.raises(
        ConfigError, match="provide nothing; the loss accepts gamma, penalty, weight and requires gamma"
    ):
        Recipe(name="odd", loss=lambda logits, y, *, gamma: logits)


def test_an_outer_model_that_changes_the_update_needs_a_hypergradient_that_differentiates_it():
    @dataclass(frozen=True)
    class Moving(SampleWeights):
        changes_update = True

    class Blind(Hypergradient):
        horizon = 1
        differentiates_update = False

        def __call__(self, problem, trajectory, outer, batch):
            raise AssertionError

        def __repr__(self):
            return "Blind()"

    class Seeing(Blind):
        differentiates_update = True

    def combined(outer_model, hypergradient):
        return Recipe(
            name="odd",
            loss=cross_entropy,
            outer_model=outer_model,
            objective=ConfidenceBCE(),
            hypergradient=hypergradient,
            outer_optimizer=SGD(lr=1),
        )

    combined(SampleWeights(), Blind())
    combined(Moving(), Seeing())
    with pytest.raises(
        ConfigError, match=r"Moving\(.* changes the update .*got Blind\(\)\. Use a hypergradient"
    ):
        combined(Moving(), Blind())


@pytest.mark.parametrize("part", ["one_step", OneStep])
def test_parts_of_the_wrong_kind(part):
    with pytest.raises(ConfigError, match="hypergradient must be a Hypergradient object"):
        Recipe(name="odd", loss=cross_entropy, hypergradient=part)


def test_equal_recipes_read_the_same_in_every_process():
    """Results are stored under the repr of a recipe, so it must not contain an address."""
    code = "from selfcal import recipes; print([recipes.named(name) for name in recipes.names()])"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    here = str([recipes.named(name) for name in recipes.names()])
    assert there.strip() == here
    assert " at 0x" not in here


def test_a_recipe_shows_its_parts_and_the_settings_of_its_loss():
    def sharp(logits, y, *, gamma):
        return logits[:, 0] * gamma

    shown = repr(Recipe(name="sharp", loss=functools.partial(sharp, gamma=2.0)))
    assert shown == "Recipe(name='sharp', loss=sharp(gamma=2.0))"
    assert "hypergradient=OneStep(tangent='difference')" in repr(recipes.bo4sc())
    assert "inner_steps=10" in repr(recipes.bo4sc())
