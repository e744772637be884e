"""What must hold for every way of predicting: found by its package, so that a new one is under test at once."""

import copy
import inspect
import threading
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from selfcal import SelfCalibratedClassifier, models, predictive, recipes
from selfcal.calibrators import TemperatureScaling
from selfcal.datasets import Blobs
from selfcal.ensembles import NetworkCandidate
from selfcal.errors import ConfigError
from selfcal.training.problem import forward_in_blocks, members_in_blocks, n_answers
from selfcal.training.recipe import Recipe
from selfcal.uncertainty import Disagreement, MutualInformation, VariationRatio

KINDS = {name: getattr(predictive, name) for name in predictive.__all__}
METHODS = {type(recipes.named(name).predictive).__name__: name for name in recipes.names() if
           getattr(recipes.named(name), "predictive", None) is not None}  # fmt: skip
X, Y = Blobs(std=1.7).sample(400, seed=0)
ROWS, CODES = torch.tensor(X, dtype=torch.float32), torch.tensor(Y)


def network(name):
    """An untrained network that the predictive accepts; its weights are random, and so are its answers."""
    torch.manual_seed(0)
    return (
        models.tabm(2, 5, hidden=(8,)) if name == "Members" else models.mlp(2, 5, hidden=(16,), dropout=0.3)
    )


def made(name, module=None, **settings):
    module = network(name).eval() if module is None else module
    return KINDS[name]().fit(module, (ROWS, CODES), **settings).eval()


def outputs(module, x):
    """The logits of each answer, of which there may be one."""
    return members_in_blocks(module, x) if n_answers(module) > 1 else forward_in_blocks(module, x)[None]


SEVERAL = [name for name in KINDS if n_answers(made(name)) > 1]


class WithoutLinearLayer(nn.Module):
    def __init__(self, n_columns, n_classes):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_columns, n_classes))

    def forward(self, x):
        return x @ self.weight


def test_every_one_has_a_method():
    assert METHODS.keys() == KINDS.keys()


@pytest.mark.parametrize("name", KINDS)
class TestEvery:
    def test_its_settings_are_frozen_and_its_repr_is_a_call(self, name):
        part = KINDS[name]()
        assert eval(repr(part), dict(KINDS)) == part
        for setting in inspect.signature(KINDS[name]).parameters:
            with pytest.raises(AttributeError):
                setattr(part, setting, 1)

    def test_a_row_has_the_same_answers_whatever_rows_come_with_it(self, name):
        module = made(name)
        for of in (forward_in_blocks, lambda m, x: outputs(m, x).transpose(0, 1)):
            all_rows = of(module, ROWS)
            for part in (slice(0, 1), slice(7, 11), slice(100, 370)):
                torch.testing.assert_close(of(module, ROWS[part]), all_rows[part], rtol=1e-5, atol=1e-5)

    def test_the_seed_decides(self, name):
        first, again, other = (made(name, seed=seed) for seed in (1, 1, 2))
        torch.random.manual_seed(5)
        assert torch.equal(outputs(first, ROWS), outputs(again, ROWS))
        same = torch.equal(outputs(first, ROWS), outputs(other, ROWS))
        assert same == (name in ("Members", "FeatureClipping"))  # nothing is drawn there

    def test_the_network_itself_is_not_changed(self, name):
        module = network(name).eval()
        before, weights = forward_in_blocks(module, ROWS), copy.deepcopy(module.state_dict())
        made(name, module)
        assert torch.equal(forward_in_blocks(module, ROWS), before)
        assert all(torch.equal(value, weights[key]) for key, value in module.state_dict().items())

    def test_it_leaves_torchs_global_stream_alone(self, name):
        module = network(name).eval()
        torch.manual_seed(3)
        outputs(made(name, module), ROWS)
        drawn = torch.rand(1)
        torch.manual_seed(3)
        assert torch.equal(drawn, torch.rand(1))

    def test_copies_answer_the_same_and_on_their_own(self, name):
        module = made(name)
        twin = copy.deepcopy(module)
        expected = outputs(module, ROWS)
        with torch.no_grad():
            for value in module.state_dict().values():
                value.zero_()
        assert torch.equal(outputs(twin, ROWS), expected)

    def test_threads_do_not_disturb_one_another(self, name):
        module = made(name)
        parts = [ROWS[:250], ROWS[250:], ROWS[100:103]]
        expected = [outputs(module, part) for part in parts]
        found = {}

        def work(place):
            for _ in range(5):
                found[place] = outputs(module, parts[place])

        threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(torch.equal(found[place], expected[place]) for place in range(3))

    def test_a_calibrator_is_fitted_to_what_predicts(self, name):
        recipe = replace(recipes.named(METHODS[name]), calibrator=TemperatureScaling())
        clf = SelfCalibratedClassifier(recipe, max_epochs=30, random_state=0).fit(X, Y)
        held_out = np.setdiff1d(np.arange(len(X)), clf.train_rows_)
        again = TemperatureScaling().fit(clf.logits(X[held_out]), Y[held_out])
        assert clf.calibrator_.temperature_ == pytest.approx(again.temperature_, rel=1e-3)

    def test_members_of_an_ensemble_cannot_have_one(self, name):
        with pytest.raises(ConfigError, match="must not have a predictive"):
            NetworkCandidate("mlp", recipes.named(METHODS[name]))

    def test_a_network_that_does_not_fit_is_told_before_training(self, name):
        wrong = {"Members": "mlp", "MonteCarloDropout": "mlp", "LastLayerLaplace": "tabm"}.get(
            name, WithoutLinearLayer
        )
        clf = SelfCalibratedClassifier(METHODS[name], network=wrong, random_state=0)
        with pytest.raises(ConfigError, match=r"[Nn]etwork.*Use"):
            clf.fit(X, Y)


@pytest.mark.parametrize("name", SEVERAL)
class TestSeveralAnswers:
    def test_their_number_and_shape(self, name):
        module = made(name)
        answers = members_in_blocks(module, ROWS)
        assert forward_in_blocks(module, ROWS).shape == (400, 5)
        assert answers.shape == (module.n_answers, 400, 5)
        assert len({tuple(answer.flatten().tolist()) for answer in answers}) == module.n_answers

    def test_the_method_in_the_classifier(self, name, tmp_path):
        clf = SelfCalibratedClassifier(METHODS[name], max_epochs=30, random_state=0).fit(X, Y)
        assert clf.score(X, Y) > 0.75
        answers = clf.member_proba(X)
        np.testing.assert_allclose(answers.sum(axis=2), 1, atol=1e-12)
        if name != "LastLayerLaplace" or clf.module_.sampled:
            np.testing.assert_allclose(answers.mean(axis=0), clf.predict_proba(X), atol=1e-6)
        for score in (MutualInformation(), VariationRatio(), Disagreement()):
            assert score.of(clf, X).max() > 0
        again = SelfCalibratedClassifier.load(clf.save(tmp_path / "model"))
        np.testing.assert_array_equal(again.member_proba(X), answers)
        np.testing.assert_array_equal(again.predict_proba(X), clf.predict_proba(X))


def test_what_is_no_predictive_is_refused():
    with pytest.raises(ConfigError, match="predictive must be a Predictive object; got 'dropout'"):
        Recipe(name="mine", loss=nn.functional.cross_entropy, predictive="dropout")


def test_the_kind_of_network_of_a_method_can_be_chosen():
    clf = SelfCalibratedClassifier("mc_dropout", network="periodic", max_epochs=3, random_state=0).fit(X, Y)
    assert "Periodic" in repr(clf.module_.network)
    assert "network='tabular'" in repr(recipes.mc_dropout())


def test_several_answers_to_the_rows_of_a_data_frame():
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"size": rng.normal(size=120), "colour": rng.choice(["red", "green"], 120).tolist()})
    clf = SelfCalibratedClassifier("laplace", max_epochs=5, random_state=0).fit(
        table, table["size"].to_numpy() > 0
    )
    np.testing.assert_allclose(clf.member_proba(table).mean(axis=0), clf.predict_proba(table), atol=1e-6)
