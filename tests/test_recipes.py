import warnings

import numpy as np
import pytest

from selfcal import Recipe, SelfCalibratedClassifier, calibrators, recipes
from selfcal.datasets import Blobs
from selfcal.errors import CalibrationWarning, ConfigError


@pytest.mark.parametrize("name", recipes.names())
def test_every_named_recipe_can_be_made_and_carries_its_name(name):
    recipe = recipes.named(name)
    assert isinstance(recipe, Recipe)
    assert recipe.name == name
    made = getattr(recipes, name, None)
    assert repr(recipe) == repr(made() if made else recipes.post_hoc(recipe.calibrator, name))


def test_every_calibrator_has_a_name():
    used = {type(recipes.named(name).calibrator) for name in recipes.names()} - {type(None)}
    assert used == {getattr(calibrators, name) for name in calibrators.__all__}


@pytest.mark.parametrize("name", [name for name in recipes.names() if recipes.named(name).calibrator])
def test_every_post_hoc_method_works_in_the_classifier(name):
    X, y = Blobs(std=1.7).sample(400, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # 60 rows are few for some of them
        clf = SelfCalibratedClassifier(name, max_epochs=30, random_state=0).fit(X, y)
    probs = clf.predict_proba(X)
    assert clf.score(X, y) > 0.75
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-12)
    assert isinstance(clf.calibrator_, type(recipes.named(name).calibrator))


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
