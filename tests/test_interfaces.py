import functools
import subprocess
import sys

import numpy as np
import pytest
import torch

from selfcal import Recipe, recipes
from selfcal.calibrators import TemperatureScaling
from selfcal.errors import ConfigError
from selfcal.hypergradients import OneStep
from selfcal.interfaces import Candidate
from selfcal.losses import cross_entropy
from selfcal.objectives import MMCE, NLL, ConfidenceBCE, WeightedSum
from selfcal.optimizers import SGD
from selfcal.outer import SampleWeights
from selfcal.sharing import CrossFit
from tests.objectives.batches import rows, value


def test_an_outer_level_must_be_whole():
    with pytest.raises(ConfigError, match="without objective, hypergradient, outer_optimizer"):
        Recipe(name="half", loss=cross_entropy, outer_model=SampleWeights())


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"portfolio": (Candidate("mlp", recipes.standard()),)}, "has a portfolio and no sharing"),
        ({"sharing": 5}, "sharing must be a Sharing object; got 5"),
        ({"sharing": CrossFit(), "calibrator": TemperatureScaling()}, "leave the calibrator out"),
        (
            {"sharing": CrossFit(), "portfolio": (Candidate("mlp", recipes.isoreg()),)},
            "leave the calibrator out",
        ),
    ],
)
def test_what_does_not_go_with_sharing(parts, message):
    with pytest.raises(ConfigError, match=message):
        Recipe("shared", cross_entropy, **parts)


def test_parts_that_do_not_fit_say_what_is_offered_and_accepted():
    class Gamma(SampleWeights):
        provides = frozenset({"gamma"})

    with pytest.raises(
        ConfigError, match="offer gamma; the loss accepts penalty, weight and requires nothing"
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


def test_a_loss_that_needs_what_nobody_offers():
    with pytest.raises(
        ConfigError, match="offer nothing; the loss accepts gamma, penalty, weight and requires gamma"
    ):
        Recipe(name="odd", loss=lambda logits, y, *, gamma: logits)


@pytest.mark.parametrize("part", ["one_step", OneStep])
def test_parts_of_the_wrong_kind(part):
    with pytest.raises(ConfigError, match="hypergradient must be a Hypergradient object"):
        Recipe(name="odd", loss=cross_entropy, hypergradient=part)


def test_equal_recipes_read_the_same_in_every_process():
    """Results are kept under what a recipe says of itself, so no address may be in it."""
    code = "from selfcal import recipes; print([recipes.named(name) for name in recipes.names()])"
    first, second = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert first == second
    assert " at 0x" not in first


def test_a_recipe_shows_its_parts_and_the_settings_of_its_loss():
    def sharp(logits, y, *, gamma):
        return logits[:, 0] * gamma

    shown = repr(Recipe(name="sharp", loss=functools.partial(sharp, gamma=2.0)))
    assert shown == "Recipe(name='sharp', loss=sharp(gamma=2.0))"
    assert "hypergradient=OneStep(tangent='difference')" in repr(recipes.bo4sc())
    assert "inner_steps=10" in repr(recipes.bo4sc())


class TestSumsOfObjectives:
    def test_the_value_is_the_weighted_sum(self):
        logits, y = rows()
        weight = torch.arange(len(y)).double()
        parts = [value(objective, logits, y, weight) for objective in (NLL(), MMCE(), ConfidenceBCE())]
        whole = value(0.5 * NLL() + MMCE() * 3 + ConfidenceBCE(), logits, y, weight)
        torch.testing.assert_close(whole, 0.5 * parts[0] + 3 * parts[1] + parts[2])

    def test_equal_sums_are_equal_however_they_came_about(self):
        a, b, c = NLL(), MMCE(), ConfidenceBCE()
        assert (a + b) + c == a + (b + c)
        assert 2 * (a + 0.5 * b) == 2 * a + b
        assert np.float64(2) * a == a * 2
        assert a + b != b + a + c
        assert len({a + b, 1 * a + b * 1.0}) == 1

    @pytest.mark.parametrize(
        ("objective", "shown"),
        [
            (NLL() + 0.5 * MMCE(), "NLL() + 0.5 * MMCE(bandwidth=0.4)"),
            (2 * NLL(), "2.0 * NLL()"),
            (1 * NLL(), "1.0 * NLL()"),
            (0.5 * (NLL() + NLL() * 4), "0.5 * NLL() + 2.0 * NLL()"),
        ],
        ids=["sum", "product", "one", "nested"],
    )
    def test_a_sum_reads_as_it_is_written(self, objective, shown):
        assert repr(objective) == shown
        assert eval(shown, {"NLL": NLL, "MMCE": MMCE}) == objective

    def test_a_recipe_takes_one(self):
        recipe = Recipe(
            name="mixed",
            loss=cross_entropy,
            outer_model=SampleWeights(),
            objective=NLL() + MMCE(),
            hypergradient=OneStep(),
            outer_optimizer=SGD(0.1),
        )
        assert "objective=NLL() + MMCE(bandwidth=0.4)," in repr(recipe)

    @pytest.mark.parametrize("weight", [-1, float("nan"), "much", True, MMCE()], ids=repr)
    def test_a_weight_must_be_a_number_of_at_least_zero(self, weight):
        with pytest.raises(ConfigError, match=r"the weight of an objective must be a number in \[0"):
            NLL() * weight

    @pytest.mark.parametrize(
        "wrong", [((), ()), ((NLL(),), (1.0, 2.0)), ((NLL(), 3.0), (1.0, 1.0))], ids=repr
    )
    def test_terms_and_weights_go_together(self, wrong):
        with pytest.raises(ConfigError, match="objectives as terms and one weight for each"):
            WeightedSum(*wrong)

    def test_a_number_is_no_objective(self):
        with pytest.raises(ConfigError, match="objectives as terms"):
            NLL() + 1
