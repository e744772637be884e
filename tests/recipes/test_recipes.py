import copy
import inspect
import pickle
import warnings

import numpy as np
import pytest

from selfcal import (
    Ensemble,
    Recipe,
    SelfCalibratedClassifier,
    calibrators,
    losses,
    outer,
    recipes,
    selections,
)
from selfcal.datasets import Blobs
from selfcal.errors import CalibrationWarning, ConfigError, DataError


@pytest.mark.parametrize("name", recipes.names())
def test_every_named_recipe_can_be_made_and_carries_its_name(name):
    recipe = recipes.named(name)
    assert isinstance(recipe, (Recipe, Ensemble))
    assert recipe.name == name
    made = getattr(recipes, name, None)
    assert repr(recipe) == repr(made() if made else recipes.post_hoc(recipe.calibrator, name))


def test_every_exported_recipe_has_a_name():
    made = {name for name in recipes.__all__ if inspect.isfunction(getattr(recipes, name))}
    need_arguments = {"one_run", "post_hoc", "restarted", "with_loss"}
    assert made - need_arguments - {"named", "names"} == {*recipes.names()} - {*recipes.POST_HOC}


@pytest.mark.parametrize(
    "module", [recipes.one_level, recipes.bilevel, recipes.several_answers, recipes.several_networks]
)
def test_every_method_is_exported(module):
    made = {name for name, f in vars(module).items() if getattr(f, "__module__", "") == module.__name__}
    assert {name for name in made if not name.startswith("_")} <= {*recipes.__all__}


def for_one_network():
    return {name: recipe for name in recipes.names() if isinstance(recipe := recipes.named(name), Recipe)}


def test_every_calibrator_has_a_name():
    used = {type(recipe.calibrator) for recipe in for_one_network().values()} - {type(None)}
    assert used == {getattr(calibrators, name) for name in calibrators.__all__}


@pytest.mark.parametrize("name", [name for name, recipe in for_one_network().items() if recipe.calibrator])
def test_every_post_hoc_method_works_in_the_classifier(name):
    X, y = Blobs(std=1.7).sample(400, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # 60 rows are few for some of them
        clf = SelfCalibratedClassifier(name, max_epochs=30, random_state=0).fit(X, y)
    probs = clf.predict_proba(X)
    assert clf.score(X, y) > 0.75
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-12)
    assert isinstance(clf.calibrator_, type(recipes.named(name).calibrator))


OWN_LOSS = [name for name, recipe in for_one_network().items() if recipe.loss is not losses.cross_entropy]
META = ["gamma_net_sece", "gamma_net_dece", "gamma_net_mmce", "gamma_net", "ce_dece", "ce_sece"]
FIXED_LOSS = [name for name in OWN_LOSS if name not in (*META, "mixup", "dynamic_pruning")]


@pytest.mark.parametrize("name", dict.fromkeys([*OWN_LOSS, *META]))
def test_every_method_with_a_loss_of_its_own_works_in_the_classifier(name):
    X, y = Blobs(std=1.7).sample(400, seed=0)
    clf = SelfCalibratedClassifier(name, batch_size=64, max_epochs=30, random_state=0).fit(X, y)
    probs = clf.predict_proba(X)
    assert clf.score(X, y) > 0.75
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("name", FIXED_LOSS)
def test_settings_reach_the_loss_and_share_its_defaults(name):
    make = getattr(recipes, name)
    loss = make().loss
    settings = {key: p.default for key, p in inspect.signature(make).parameters.items() if key != "weighted"}
    assert loss.keywords == settings
    assert list(inspect.signature(loss.func).parameters)[2:] == list(settings)
    assert inspect.signature(loss) == inspect.signature(loss.func)  # the defaults fixed are its own
    for key, value in settings.items():
        other = {"norm": "l1", "n_bins": 7, "p": 2.0}.get(key) or value / 2
        assert make(**{key: other}).loss.keywords[key] == other


def test_settings_out_of_range_fail_before_training():
    with pytest.raises(ConfigError, match="gamma must be a number in"):
        recipes.focal(gamma=-1.0)
    with pytest.raises(ConfigError, match="weighted must be True or False"):
        recipes.mmce(weighted="no")


def test_dynamic_pruning_is_a_loss_and_a_selection():
    recipe = recipes.dynamic_pruning(alpha=2.0, delta=0.3, fraction=0.2, every=3, momentum=0.4, least=0.6)
    assert (recipe.loss.func, recipe.loss.keywords) == (losses.huber_gap, {"alpha": 2.0, "delta": 0.3})
    assert recipe.selection == selections.DynamicPruning(fraction=0.2, every=3, momentum=0.4, least=0.6)
    default = recipes.dynamic_pruning()
    assert default.selection == selections.DynamicPruning()
    assert inspect.signature(default.loss) == inspect.signature(losses.huber_gap)
    with pytest.raises(ConfigError, match="fraction must be a number in"):
        recipes.dynamic_pruning(fraction=0.0)


def test_weighted_mmce():
    assert recipes.mmce(weighted=True).loss.func is losses.weighted_mmce


def test_a_batch_of_one_is_one_clear_error():
    with pytest.raises(DataError, match="needs at least two in a batch; got 1"):
        SelfCalibratedClassifier("mmce", batch_size=1, random_state=0).fit(*Blobs().sample(100, seed=0))


def test_a_recipe_with_any_loss_survives_copying():
    recipe = recipes.with_loss(losses.avuc, threshold=0.3)
    assert recipe.name == "avuc"
    for twin in (copy.deepcopy(recipe), pickle.loads(pickle.dumps(recipe))):
        assert repr(twin) == repr(recipe)


def test_misspelt_name_gets_a_hint():
    with pytest.raises(ConfigError, match=r"got 'bo4cs'\. Did you mean 'bo4sc'"):
        recipes.named("bo4cs")


@pytest.mark.parametrize("name", META)
def test_meta_recipes_have_the_parts_of_their_name(name):
    recipe = getattr(recipes, name)(outer_lr=0.5, every=3)
    assert recipe.name == name
    assert (recipe.outer_optimizer.lr, recipe.inner_steps) == (0.5, 3)
    focal = name.startswith("gamma_net")
    assert recipe.loss is (losses.focal if focal else losses.cross_entropy)
    assert isinstance(recipe.outer_model, outer.GammaNet if focal else outer.UnitL2)
    error = {"sece": "SECE", "dece": "DECE", "mmce": "MMCE"}.get(name.rpartition("_")[2], "")
    assert error in repr(recipe.objective)
    assert ("NLL" in repr(recipe.objective)) == (not focal or name == "gamma_net")


def test_settings_reach_their_parts():
    assert recipes.gamma_net_sece(bandwidth=0.2).objective.bandwidth == 0.2
    assert recipes.gamma_net_dece(n_bins=9).objective.n_bins == 9
    assert recipes.gamma_net_mmce(bandwidth=0.2).objective.bandwidth == 0.2
    assert recipes.mixup(alpha=0.3).transform.alpha == 0.3
    recipe = recipes.bo4sc(inner_steps=3, outer_lr=0.5, beta=7.0, link="sigmoid", normalize=True)
    assert recipe.inner_steps == 3
    assert recipe.outer_optimizer.lr == 0.5
    assert recipe.objective.beta == 7.0
    assert (recipe.outer_model.link, recipe.outer_model.normalize) == ("sigmoid", True)
    assert recipes.isoreg(floor="chance").calibrator.floor == "chance"


@pytest.mark.parametrize(
    "learn", ["decay", "smoothing", "gamma", "temperature", "weights", ("decay", "weights")]
)
def test_what_a_cross_fitted_team_learns_is_bounded_and_its_path_is_kept(learn):
    X, y = Blobs(std=1.7).sample(200, seed=0)
    noise = np.random.default_rng(0).normal(size=(200, 20))
    X = np.hstack([X, noise])  # to overfit to: decay and γ start at their lower bounds and are wanted above
    recipe = recipes.crossfit(folds=2, learn=learn)
    settings = {"network": "mlp", "hidden": (8,), "learning_rate": 0.02, "max_epochs": 40}
    clf = SelfCalibratedClassifier(recipe, random_state=0, **settings).fit(X, y)
    assert clf.score(X, y) > 0.6
    paths = clf.history_.snapshots
    assert paths.keys() == clf.outer_params_.keys()
    assert len(clf.history_.snapshot_step) == 9
    assert all(np.isfinite(path).all() and (path != path[0]).any() for path in paths.values())


def test_what_can_be_learned_beside_cross_fitted_networks():
    def recipe(**settings):
        return recipes.crossfit(**settings).networks[0].recipe

    assert recipes.crossfit(learn=()) == recipes.crossfit()
    assert isinstance(recipe(learn=["decay"]).outer_model, outer.LayerDecay)
    own = outer.LayerDecay(start=1.0)
    assert recipe(learn=own).outer_model == own
    assert recipe(learn=(own, "noise")).outer_model == outer.Combined((own, outer.InputNoise()))
    both = recipe(learn=("decay", "smoothing"), outer_lr=0.1, inner_steps=2)
    assert both.outer_model == outer.Combined((outer.LayerDecay(bounds=(0.3, 10.0)), outer.LabelSmoothing()))
    assert (both.outer_optimizer.lr, both.inner_steps, both.loss) == (0.1, 2, losses.smoothed_focal)
    with pytest.raises(ConfigError, match=r"learn must be one of .*got 'decays'\. Did you mean 'decay'"):
        recipes.crossfit(learn="decays")
    with pytest.raises(ConfigError, match="more than one provides LayerDecay"):
        recipes.crossfit(learn=("decay", "decay"))


@pytest.mark.parametrize("learn", ["gamma", "smoothing", "decay", "noise", "mixup", "classes", "weights"])
def test_one_run_learns_and_a_restart_keeps_what_was_learned(learn):
    X, y = Blobs(std=1.7).sample(200, seed=0)
    settings = {"hidden": (8,), "learning_rate": 0.02, "batch_size": 32, "max_epochs": 20, "random_state": 0}
    recipe = recipes.one_run(learn=learn)
    first = SelfCalibratedClassifier(recipe, **settings).fit(X, y)
    assert all((path != path[0]).any() for path in first.history_.snapshots.values())
    again = SelfCalibratedClassifier(recipes.restarted(recipe, first.outer_params_), **settings).fit(X, y)
    assert again.score(X, y) > 0.6
    for name, value in again.outer_params_.items():
        np.testing.assert_allclose(value, first.outer_params_[name])


def test_settings_of_one_run():
    recipe = recipes.one_run(learn="noise", outer_lr=0.5, inner_steps=3)
    assert (recipe.outer_optimizer.lr, recipe.inner_steps) == (0.5, 3)
    assert recipes.one_run(learn="mixup").loss is losses.mixed_cross_entropy
    with pytest.raises(ConfigError, match=r"learn must be one of .*got 'gama'\. Did you mean 'gamma'"):
        recipes.one_run(learn="gama")
