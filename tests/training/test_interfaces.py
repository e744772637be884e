import numpy as np
import pytest
import torch

from selfcal import Recipe
from selfcal.errors import ConfigError
from selfcal.hypergradients import OneStep
from selfcal.losses import cross_entropy
from selfcal.objectives import MMCE, NLL, ConfidenceBCE, WeightedSum
from selfcal.optimizers import SGD
from selfcal.outer import SampleWeights
from tests.objectives.batches import rows, value


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
