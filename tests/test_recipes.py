import pytest

from selfcal import Recipe, recipes
from selfcal.errors import ConfigError


@pytest.mark.parametrize("name", recipes._NAMED)
def test_every_named_recipe_can_be_made_and_carries_its_name(name):
    recipe = recipes.named(name)
    assert isinstance(recipe, Recipe)
    assert recipe.name == name
    assert repr(recipe) == repr(getattr(recipes, name)())


def test_misspelt_name_gets_a_hint():
    with pytest.raises(ConfigError, match=r"got 'bo4cs'\. Did you mean 'bo4sc'"):
        recipes.named("bo4cs")


def test_settings_reach_their_parts():
    recipe = recipes.bo4sc(inner_steps=3, outer_lr=0.5, beta=7.0, link="sigmoid", normalize=True)
    assert recipe.inner_steps == 3
    assert recipe.outer_optimizer.lr == 0.5
    assert recipe.objective.beta == 7.0
    assert (recipe.outer_model.link, recipe.outer_model.normalize) == ("sigmoid", True)
    assert recipes.isoreg(floor="chance").calibrator.floor == "chance"
