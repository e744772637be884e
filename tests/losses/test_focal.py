import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfcal import Batch, BilevelStep, Recipe, losses
from selfcal.hypergradients import OneStep, Unrolled
from selfcal.objectives import ConfidenceBCE
from selfcal.optimizers import SGD
from selfcal.outer import SampleWeights


@settings(deadline=None)
@given(st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=5))
def test_gamma_zero_is_cross_entropy(z):
    logits, y = torch.tensor([z], dtype=torch.float64), torch.tensor([0])
    torch.testing.assert_close(
        losses.focal(logits, y, gamma=0.0), losses.cross_entropy(logits, y), rtol=0, atol=0
    )


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("p", [1e-6, 0.2, 0.5, 0.9, 1 - 1e-6])
def test_against_the_formula(p, gamma):
    logits = torch.tensor([[np.log(p), np.log((1 - p) / 3), np.log((1 - p) * 2 / 3)]])
    value = losses.focal(logits, torch.tensor([0]), gamma=gamma).item()
    assert value == pytest.approx(-((1 - p) ** gamma) * np.log(p), rel=1e-9)


def test_a_gamma_for_each_row():
    logits, y = torch.tensor([[0.3, -1.0], [2.0, 0.5], [0.0, 0.0]]), torch.tensor([0, 1, 1])
    gammas = [0.0, 0.5, 3.0]
    values = losses.focal(logits, y, gamma=torch.tensor(gammas))
    alone = [losses.focal(logits[[i]], y[[i]], gamma=gamma).item() for i, gamma in enumerate(gammas)]
    assert values.tolist() == pytest.approx(alone)


@pytest.mark.parametrize("gamma", [0.01, 0.3, 0.9])
def test_small_gamma_has_a_vanishing_gradient_at_certainty(gamma):
    logits = torch.tensor([[800.0, 0.0]], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(losses.focal(logits, torch.tensor([0]), gamma=gamma), logits)
    assert grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(("p", "gamma"), [(0.1, 5.0), (0.199, 5.0), (0.201, 3.0), (0.95, 3.0)])
def test_flsd_takes_gamma_by_the_probability_of_the_label(p, gamma):
    logits = torch.tensor([[np.log(p), np.log(1 - p)]])
    assert losses.flsd(logits, torch.tensor([0])).item() == pytest.approx(-((1 - p) ** gamma) * np.log(p))


def of_probabilities(*probs):
    return torch.tensor([probs], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("probs", "base"),
    [
        ((0.5, 0.3, 0.2), 1 - 0.5 + 0.3),
        ((0.3, 0.5, 0.2), 1 - 0.3 + 0.2),  # the largest of those below the label's, not the largest of all
        ((0.2, 0.5, 0.3), 1 - 0.2),  # none is below
        ((0.4, 0.4, 0.2), 1 - 0.4 + 0.2),  # a tie is not below
    ],
)
@pytest.mark.parametrize("gamma", [0.0, 1.0, 3.0])
def test_dual_focal_by_hand(probs, base, gamma):
    value = losses.dual_focal(of_probabilities(*probs), torch.tensor([0]), gamma=gamma).item()
    assert value == pytest.approx(-(base**gamma) * np.log(probs[0]))


def test_a_certain_row_counts_twice_as_much_as_in_focal_loss_if_there_are_two_classes():
    """Then p_j is 1 - p_y, also where p_y is so close to one that this difference has few digits."""
    logits, y = torch.tensor([[30.0, 0.0]], dtype=torch.float64), torch.tensor([0])
    ratio = losses.dual_focal(logits, y, gamma=1.0) / losses.focal(logits, y, gamma=1.0)
    assert ratio.item() == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0, 5.0])
def test_bsce_gra_by_hand(gamma):
    distance = np.sqrt(0.5**2 + 0.3**2 + 0.2**2)
    value = losses.bsce_gra(of_probabilities(0.5, 0.3, 0.2), torch.tensor([0]), gamma=gamma).item()
    assert value == pytest.approx(-(distance**gamma) * np.log(0.5))


def test_bsce_gra_scales_the_gradient_of_cross_entropy():
    logits = torch.tensor([[0.3, -1.0, 2.0], [4.0, 0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 0])
    (plain,) = torch.autograd.grad(losses.cross_entropy(logits, y).sum(), logits)
    (scaled,) = torch.autograd.grad(losses.bsce_gra(logits, y).sum(), logits)
    torch.testing.assert_close(scaled, plain * losses.brier(logits, y).detach()[:, None])


def test_the_exponent_of_bsce_gra_can_be_learned_row_by_row():
    logits, y = torch.tensor([[0.3, -1.0], [2.0, 0.5]], dtype=torch.float64), torch.tensor([0, 1])
    gamma = torch.tensor([0.7, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda g: losses.bsce_gra(logits, y, gamma=g), gamma)


class RowGamma(SampleWeights):
    """A free gamma for each training row."""

    provides = frozenset({"gamma"})

    def __call__(self, outer, output, batch):
        return {"gamma": outer["weight"][batch.index]}

    def project(self, outer):
        return {"weight": outer["weight"].clamp(min=0)}


@pytest.mark.parametrize("loudness", [1.0, 1e3], ids=["random", "saturated"])
def test_gamma_is_learned_through_the_training_step(loudness):
    """The cheap hypergradient agrees with the exact one, and both are finite where p is 0 or 1."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (20,), generator=generator)
    moved = []
    for hypergradient in (Unrolled(), OneStep(tangent="forward")):
        module = torch.nn.Linear(3, 3).double()
        with torch.no_grad():
            module.weight.copy_(loudness * torch.eye(3))
            module.bias.zero_()
        recipe = Recipe(
            name="row_gamma",
            loss=losses.focal,
            outer_model=RowGamma(start=0.5),
            objective=ConfidenceBCE(),
            hypergradient=hypergradient,
            outer_optimizer=SGD(lr=1.0),
        )
        step = BilevelStep(module, SGD(lr=0.1), recipe, n_train=10)
        step(Batch(x[:10], y[:10], index=torch.arange(10)), (x[10:], y[10:]))
        moved.append(step.outer_params["weight"] - 0.5)
    assert moved[0].isfinite().all()
    assert loudness > 1 or (moved[0] != 0).all()
    torch.testing.assert_close(moved[1], moved[0])
